# SPDX-License-Identifier: MIT
"""Terminate orders in a world of reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent.cli import status as status_text
from agent.core.ownership import Origin
from agent.run import passes
from agent.run.diagnosis import picture
from agent.run.results import PassReport
from agent.run.usage import last as last_usage
from agent.state import journal, ledger
from simulator.world.records import ResourceState
from tests.agent.run.usage.conftest import WorldFactory
from tests.agent.run.usage.world import NOW, World

NOT_VALID = json.dumps({"resource": ["Resource is not in valid state."]})
SET_USAGE = "set_usage/"
LAST_SECOND = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
STEPS_AT_MOST = 200


class Endings:
    """Terminate orders in a world of reports. `process`: one pass over orders, by the clock of that world."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        monkeypatch.setattr(last_usage, "present", lambda _: world.clock())
        for account in world.accounts:
            # Older than the month before, so that this is open as well until a report has counted it.
            world.waldur.site.change("resources", world.resource(account), created=NOW - timedelta(days=100))
        made = dict.fromkeys(world.accounts, Origin.MADE)
        ledger.write(world.state_dir, world.backend.cluster, world.site.offering, made, is_seen=True)
        self.reported()

    def reported(self) -> None:
        """A report that went well has counted the month before."""
        self.world.busy()
        assert not self.world.report().failed
        self.world.backend.queries.clear()
        self.world.waldur.requests.reset()

    @property
    def site(self) -> Any:
        return replace(self.world.site, usage_backend=self.world.backend)

    def end(self, *accounts: str) -> list[str]:
        return [self.world.waldur.orders.place_terminate(self.world.resource(a)) for a in accounts]

    def process(self) -> PassReport:
        return passes.process_orders(self.site)

    def state(self, account: str) -> ResourceState:
        return self.world.waldur.resource(self.world.resource(account)).state

    def is_over(self, account: str) -> bool:
        gone = account not in self.world.cluster.accounts
        return gone and self.state(account) is ResourceState.TERMINATED

    def unreported(self) -> list[str]:
        """What `status` says of usage that is not in Waldur."""
        found = picture.of_site(self.world.settings, self.world.settings.offerings)
        return [line.strip() for line in status_text.lines(found) if "is not in Waldur" in line]

    def tries(self) -> list[dict[str, Any]]:
        """What the journal has of usage that failed."""
        lines = journal.read(self.world.state_dir)
        return [
            line for line in lines if line["outcome"] == "failed" and "report usage" in line["action"]["text"]
        ]


@pytest.fixture
def make(make_world: WorldFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Endings]:
    return lambda *args, **options: Endings(make_world(*args, **options), monkeypatch)


@pytest.fixture
def endings(make: Callable[..., Endings]) -> Endings:
    return make("2024")


def finished(endings: Endings) -> None:
    world = endings.world
    assert endings.is_over("a_1")
    assert world.in_waldur()["a_1"]["cpu"] == "9.00"
    assert world.shares("a_1") == {"u1": "1.00", "ann": "8.00"}
    assert endings.unreported() == []
