# SPDX-License-Identifier: MIT
"""A fault or a kill at every step of a termination: its last usage is reported, and once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.core.associations import Association
from simulator.server.faults import Fault
from tests.agent.run.orders.endings import STEPS_AT_MOST, Endings, endings, finished, make
from tests.agent.run.usage.conftest import make_world
from tests.scale import steps
from tests.step_faults import FAULTS, MortalClient, killed_at

__all__ = ["endings", "make", "make_world"]

pytestmark = pytest.mark.safety


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_of_any_one_request_loses_nothing(make: Callable[..., Endings], fault: str) -> None:
    for skip in steps(40, start=list(FAULTS).index(fault) * 10 // len(FAULTS)):
        endings = make("2024")
        world = endings.world
        world.site = world.connected(attempts=1)
        world.ran("a_1", "ann", 8)
        endings.end("a_1")
        world.waldur.inject(Fault(skip=skip, times=1, **FAULTS[fault]))
        endings.process()
        struck = world.waldur.requests.count() > skip
        world.waldur.faults.clear()
        for _ in range(2):
            endings.process()
        finished(endings)
        if not struck:
            break


def test_a_pass_killed_at_any_step_loses_nothing_and_doubles_nothing(make: Callable[..., Endings]) -> None:
    for step in steps(STEPS_AT_MOST, start=1):
        endings = make("2024")
        world = endings.world
        world.ran("a_1", "ann", 8)
        state = replace(
            world.cluster, associations=frozenset({Association("a_1", "u1")}) | world.cluster.associations
        )
        world.backend.state = state
        endings.end("a_1")
        offering = world.site.offering
        client = MortalClient(
            offering.access, user_agent="waldur-site-agent-test", offering_uuid=offering.uuid, attempts=1
        )
        world.site = replace(world.site, client=client)
        killed = killed_at(step, client, world.backend, endings.process)
        for _ in range(2):
            endings.process()
        finished(endings)
        if not killed:
            break
    assert step < STEPS_AT_MOST - 1
