# SPDX-License-Identifier: MIT
"""Accounts without a resource are offered to who asks, once, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.errors import BackendUnavailable, OfferingPaused, WaldurError
from agent.core.model import Account
from agent.core.policy import PolicyMode
from agent.core.retries import policy_for
from agent.run.imports import mode as imports
from agent.state import journal
from agent.state.journal import Query
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.simulator.caller import Caller
from tests.world import World

pytestmark = pytest.mark.events


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur(scenario=Scenario(allocations_per_project=1, backend_prefix="a_")) as server:
        yield server


@pytest.fixture
def world(waldur: SimulatedWaldur, tmp_path: Path) -> World:
    made = World(waldur, tmp_path, resource_import_enabled=True)
    made.fill()
    return made


def add(world: World, name: str, parent: str, **limits: int) -> None:
    accounts = {**world.cluster.accounts, name: Account(name, parent, limits=limits)}
    world.backend.state = replace(world.cluster, accounts=accounts)


def request(waldur: SimulatedWaldur) -> str:
    body = {"offering": waldur.seed.offering_uuid}
    uuid: str = Caller(waldur, "agent").post("backend-resource-requests/", body).json()["uuid"]
    return uuid


def project_account(waldur: SimulatedWaldur) -> str:
    return f"p_{waldur.store.projects[waldur.seed.project_uuids[0]].slug}"


def offers(waldur: SimulatedWaldur) -> list[tuple[str, str, object]]:
    return [(r.backend_id, r.project_uuid, r.backend_metadata) for r in waldur.store.backend_resources]


def state(waldur: SimulatedWaldur, request_uuid: str) -> tuple[str, str]:
    row = waldur.store.import_requests[request_uuid]
    return row.state, row.error_message


def test_accounts_without_a_resource_are_offered_once(waldur: SimulatedWaldur, world: World) -> None:
    add(world, "a_old", project_account(waldur), cpu=600)
    add(world, "c_deep", project_account(waldur))
    add(world, "a_below_another", "c_deep")
    add(world, "a_of_no_project", "p_nowhere")
    add(world, "p_nowhere", "root")
    add(world, "someones", "root")
    first = request(waldur)
    said = imports.run(world.site, first)
    assert offers(waldur) == [("a_old", waldur.seed.project_uuids[0], {"limits": {"cpu": 10}})]
    assert said == "1 accounts offered, 0 were before, 1 belong to no project"
    assert state(waldur, first) == ("Done", "")
    assert imports.run(world.site, first) == "the request is Done: nothing to do"
    imports.run(world.site, request(waldur))
    assert len(offers(waldur)) == 1


def test_accounts_of_other_offerings_are_not_offered(waldur: SimulatedWaldur, world: World) -> None:
    add(world, "a_old", project_account(waldur))
    resource = waldur.seed.resource_uuids[0]
    with waldur.store.lock:
        row = replace(waldur.store.resources[resource], uuid="e" * 32, backend_id="a_old")
        other = replace(waldur.store.offerings[waldur.seed.offering_uuid], uuid="f" * 32)
        waldur.store.offerings.add(other)
        waldur.store.resources.add(replace(row, offering_uuid=other.uuid))
    imports.run(world.site, request(waldur))
    assert offers(waldur) == []


def test_an_outage_leaves_the_request_open(waldur: SimulatedWaldur, world: World) -> None:
    asked = request(waldur)
    world.backend.outage = lambda _: True
    with pytest.raises(BackendUnavailable):
        imports.run(world.site, asked)
    assert state(waldur, asked) == ("Processing", "")
    world.backend.outage = lambda _: False
    imports.run(world.site, asked)
    assert state(waldur, asked) == ("Done", "")


def test_a_pause_leaves_the_request_for_later(waldur: SimulatedWaldur, world: World) -> None:
    """As orders: nothing of it is touched, and its task comes back for a day."""
    add(world, "a_old", project_account(waldur))
    asked = request(waldur)
    paused = replace(world.site.offering.policy, paused=True, paused_why="by ann")
    with pytest.raises(
        OfferingPaused, match="the offering is paused by ann: the import request waits"
    ) as error:
        imports.run(replace(world.site, offering=replace(world.site.offering, policy=paused)), asked)
    policy = policy_for(error.value)
    assert sum(policy.countdown_s(n, 0) for n in range(policy.attempts - 1)) > 24 * 3600
    assert (state(waldur, asked), offers(waldur)) == (("Sent", ""), [])
    imports.run(world.site, asked)
    assert (state(waldur, asked), len(offers(waldur))) == (("Done", ""), 1)


def test_who_only_observes_leaves_the_request_to_others(waldur: SimulatedWaldur, world: World) -> None:
    add(world, "a_old", project_account(waldur))
    asked = request(waldur)
    observing = replace(world.site.offering.policy, mode=PolicyMode.OBSERVE)
    said = imports.run(replace(world.site, offering=replace(world.site.offering, policy=observing)), asked)
    assert said == "mode observe: the request is left as it is"
    assert (state(waldur, asked), offers(waldur)) == (("Sent", ""), [])


def test_each_offer_is_in_the_journal(waldur: SimulatedWaldur, world: World) -> None:
    add(world, "a_old", project_account(waldur), cpu=600)
    asked = request(waldur)
    imports.run(world.site, asked)
    (line,) = journal.read(world.site.state_dir, Query(account="a_old"))
    assert (line["cause"], line["outcome"]) == (f"import request {asked}", "done")
    assert line["action"]["text"] == f"offer import of a_old into project {waldur.seed.project_uuids[0]}"


def test_protected_accounts_are_not_offered(waldur: SimulatedWaldur, world: World) -> None:
    add(world, "a_old", project_account(waldur))
    rules = replace(world.site.offering.policy, protected_accounts=frozenset({"a_old"}))
    imports.run(replace(world.site, offering=replace(world.site.offering, policy=rules)), request(waldur))
    assert offers(waldur) == []


def test_what_cannot_be_done_is_reported(waldur: SimulatedWaldur, world: World) -> None:
    add(world, "a_old", project_account(waldur))
    asked = request(waldur)
    waldur.inject(
        Fault(
            kind=FaultKind.ANSWER,
            path="backend-resources/$",
            method="POST",
            status=403,
            body='{"detail": "no"}',
        )
    )
    with pytest.raises(WaldurError):
        imports.run(world.site, asked)
    became, message = state(waldur, asked)
    assert became == "Erred"
    assert "Waldur answered 403" in message
