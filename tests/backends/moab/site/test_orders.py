# SPDX-License-Identifier: MIT
"""Orders: accounts with a fund of their own, deposits that follow the limit, and endings."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from signal import SIGKILL

import pytest

from agent.config.model import Mode
from agent.core.model import ResourceState
from agent.core.periods import Month
from agent.run import passes
from agent.state import journal
from tests.agent.cli.operator_site import run_program
from tests.backends.moab.site.conftest import WorldFactory
from tests.backends.moab.site.world import World
from tests.scale import FULL
from tests.step_faults import Killed
from tests.world import approve

PROJECT = "p_project-1-1"


def test_an_allocation_is_made_with_its_project_deposit_and_members(world: World) -> None:
    (resource,) = world.place("one", deposit=1000)
    found = world.processed(done=1)
    made = world.mam.books.accounts
    assert set(made) == {PROJECT, "a_one"}
    assert (made["a_one"]["organization"], made[PROJECT]["organization"]) == (PROJECT, PROJECT)
    assert (world.funds("a_one"), world.funds(PROJECT)) == ([("1000.00", "1000.00")], [("0.00", "0.00")])
    assert len(world.members("a_one")) == 2
    seen = world.waldur.resource(resource)
    assert (seen.backend_id, seen.state.value, seen.limits) == ("a_one", "OK", {"deposit": 1000})
    assert found.effort.commands["write"] == 7
    world.mam.watch()
    world.processed()
    assert world.mam.writes() == []


def test_a_customer_without_a_slug_does_not_matter(world: World) -> None:
    for customer in list(world.waldur.store.customers):
        world.waldur.site.change("customers", customer.uuid, slug="")
    world.place("one", deposit=10)
    world.processed(done=1)
    assert set(world.mam.books.accounts) == {PROJECT, "a_one"}


def test_limits_go_up_and_down_by_their_difference(world: World) -> None:
    (resource,) = world.stand("a_one")
    world.charge("a_one", "ann", "30.50")
    for wanted, left in ((250, "219.50"), (250, "219.50"), (80, "49.50")):
        world.waldur.orders.place_update(resource, {"deposit": wanted})
        world.processed(done=1)
        assert world.funds("a_one") == [(f"{wanted}.00", left)]
        assert world.limits(resource) == {"deposit": wanted}
    assert [line.partition(" -f")[0] for line in world.mam.writes()] == [
        "mam-deposit -a a_one -z 150", "mam-withdraw -z 170",
    ]  # fmt: skip


def test_below_what_is_spent_waits_for_a_person_and_then_takes_what_is_left(world: World) -> None:
    (resource,) = world.stand("a_one")
    world.charge("a_one", "ann", "70.25")
    world.waldur.orders.place_update(resource, {"deposit": 50})
    (plan,) = world.processed(waiting=1).held
    assert "deposit from 100 to 50, 71 are used" in plan.reason
    assert world.funds("a_one") == [("100.00", "29.75")]

    site = world.site
    approve(site, Mode.ORDER_PROCESS, plan.id)
    world.processed(done=1)
    assert world.funds("a_one") == [("70.25", "0.00")]
    errors = [line["error"] for line in journal.read(site.state_dir) if line["error"]]
    assert errors == [
        "the deposit of a_one is lowered to 70.25 and no further: 20.25 of what should be taken out as well is "
        "spent already"
    ]
    world.sync()
    assert world.limits(resource) == {"deposit": 70}, "Waldur shows what was given"


def test_the_last_allocation_takes_its_project_along_and_comes_back_with_its_whole_deposit(
    world: World,
) -> None:
    first, second = world.stand("a_one", "a_two")
    world.charge("a_two", "ann", "99")
    world.waldur.orders.place_terminate(first)
    world.processed(done=1)
    assert set(world.mam.books.accounts) == {PROJECT, "a_two"}
    world.waldur.orders.place_terminate(second)
    world.processed(done=1)
    assert (world.mam.books.accounts, world.mam.books.funds) == ({}, {})
    assert {world.waldur.resource(uuid).state.value for uuid in (first, second)} == {"Terminated"}
    world.waldur.orders.place_restore(second)
    world.processed(done=1)
    assert world.funds("a_two") == [("100.00", "100.00")]


def test_a_soft_deletion_takes_what_is_left_and_a_restore_brings_it_back(make_world: WorldFactory) -> None:
    world = make_world(backend={"soft_delete": True})
    (resource,) = world.stand("a_one")
    people = world.members("a_one")
    world.charge("a_one", "ann", "30")
    world.waldur.orders.place_terminate(resource)
    world.processed(done=1)
    assert (world.members("a_one"), world.funds("a_one")) == (set(), [("30.00", "0.00")])
    world.waldur.orders.place_restore(resource)
    world.processed(done=1)
    assert (world.members("a_one"), world.funds("a_one")) == (people, [("100.00", "70.00")])


def test_an_order_is_failed_for_its_own_fault_alone(world: World) -> None:
    """A deposit that is no amount, an account of another owner; and one for nothing, which is fine."""
    with world.mam.changed() as books:
        books.create_account("a_taken", organization="physics")
    world.place("bad", deposit=-5)
    world.place("taken")
    world.place("free", deposit=0)
    world.processed(done=1, failed=2)
    assert set(world.mam.books.accounts) == {PROJECT, "a_free", "a_taken"}
    assert world.mam.books.accounts["a_taken"]["users"] == {}
    assert world.funds("a_free") == [("0.00", "0.00")]


def test_an_outage_errs_no_resource_and_the_next_pass_goes_on(world: World) -> None:
    (resource,) = world.place("one")
    world.mam.faults({"needle": "mam-list", "code": 1, "stderr": "no server\n"})
    assert passes.process_orders(world.site).error is not None
    assert world.waldur.resource(resource).state.value == ResourceState.CREATING
    world.mam.faults({"needle": "mam-list-funds", "skip": 3, "code": 1})
    world.processed(retry=1)
    world.mam.faults()
    world.processed(done=1)
    assert world.funds("a_one") == [("100.00", "100.00")]


@pytest.mark.parametrize("step", range(2, 20) if FULL else [8, 15])
def test_a_pass_that_dies_at_a_command_is_finished_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Between any two commands; while they work is in tests/backends/moab/test_kills.py."""
    world.place("one")
    runner = type(world.site.backend._runner)  # type: ignore[attr-defined]
    started = []
    start = runner._start

    def mortal(self: object, argv: list[str], *args: object, **kwargs: object) -> object:
        started.append(argv)
        if len(started) == step:
            raise Killed
        return start(self, argv, *args, **kwargs)

    monkeypatch.setattr(runner, "_start", mortal)
    with pytest.raises(Killed):
        passes.process_orders(world.site)
    found = passes.process_orders(world.site)
    assert found.counted() == {"done": 1}, found.as_json()
    assert world.funds("a_one") == [("100.00", "100.00")]
    assert len(world.members("a_one")) == 2
    assert "complete order" in " ".join(world.changes(found, reasons=False))


def test_an_agent_that_is_killed_while_it_deposits_deposits_once(world: World) -> None:
    """The command outlives it; whoever comes next, at once, waits for that and then looks."""
    world.place("one")
    world.mam.make_programs()
    world.mam.faults({"needle": "mam-deposit", "times": 1, "kill": "parent", "sleep_s": 0.3})
    assert run_program("run", "order_process", "--once", "-c", str(world.path)).code == -SIGKILL
    world.processed(done=1)
    assert world.funds("a_one") == [("100.00", "100.00")]
    assert sum(line.startswith("mam-deposit") for line in world.mam.writes()) == 1


ENDING = ["mam-delete-account -a a_one", "mam-delete-fund -f 17"]


@pytest.mark.parametrize("command", ENDING)
def test_an_agent_that_is_killed_while_it_ends_the_last_allocation_leaves_no_project(
    world: World, command: str
) -> None:
    (resource,) = world.stand("a_one")
    world.waldur.orders.place_terminate(resource)
    world.mam.make_programs()
    world.mam.faults({"needle": command, "times": 1, "kill": "parent", "sleep_s": 0.1})
    assert run_program("run", "order_process", "--once", "-c", str(world.path)).code == -SIGKILL
    world.processed(done=1)
    assert (world.mam.books.accounts, world.mam.books.funds) == ({}, {})
    assert world.waldur.resource(resource).state.value == "Terminated"


def test_no_fund_is_made_again_while_mam_does_not_show_it(world: World) -> None:
    """Whatever is listed: one for each account, and the deposit when it is seen."""
    world.place("one")
    world.mam.faults({"needle": "mam-list-funds", "code": 0, "stdout": ""})
    for result in ("retry", "stuck", "stuck"):
        found = passes.process_orders(world.site)
        assert found.counted() == {result: 1}
    assert "no other one is made. Look at `mam-list-funds -a a_one`" in str(found.as_json())
    made = ["mam-create-fund -a p_project-1-1", "mam-create-fund -a a_one"]
    assert [line for line in world.mam.writes() if "fund" in line or "deposit" in line] == made
    world.mam.faults()
    world.processed(done=1)
    assert world.funds("a_one") == [("100.00", "100.00")]
    assert sum(line.startswith("mam-create-fund") for line in world.mam.writes()) == 2


def test_a_list_that_lacks_a_fund_deposits_nothing(world: World) -> None:
    """Each list of the pass once, between its lines; the account's funds are asked for alone before one is made."""
    (resource,) = world.stand("a_one")
    world.waldur.orders.place_update(resource, {"deposit": 250})
    lacking = {"needle": "mam-list-funds --raw --quiet --show Id,Allocated,Balance,Constraints", "code": 0}
    world.mam.faults({**lacking, "skip": 1, "times": 1, "stdout": "17|0.00|0.00|Account=p_project-1-1\n"})
    world.processed(retry=1)
    assert world.mam.writes() == []
    assert sum(line.endswith("-a a_one") for line in world.mam.calls()) == 1
    world.processed(done=1)
    assert world.funds("a_one") == [("250.00", "250.00")]


def test_a_part_of_a_unit_is_left_out_with_a_note(world: World, caplog: pytest.LogCaptureFixture) -> None:
    (resource,) = world.stand("a_one")
    world.waldur.orders.place_update(resource, {"deposit": 150.75})
    with caplog.at_level("INFO"):
        world.processed(done=1)
    assert world.funds("a_one") == [("150.00", "150.00")]
    assert "deposit: 150.75 of deposit * 1 is kept as 150: the cluster counts in whole units" in caplog.text


def test_what_was_charged_since_the_last_report_is_reported_before_the_account_goes(world: World) -> None:
    """Waldur takes none of a resource that ended."""
    resources = world.place("one", "two")
    world.processed(done=2)
    user = min(world.members("a_one"))
    world.charge("a_one", user, "5.00")
    world.charge("a_two", user, "2.50")
    assert not world.report().failed
    world.charge("a_one", user, "8.00")
    for resource in resources:
        world.waldur.orders.place_terminate(resource)
    found = world.processed(done=2)
    assert "a_one" not in world.mam.books.accounts
    month = str(Month.of(datetime.now(UTC)).first_day)
    assert [world.usage(resource)[month] for resource in resources] == [Decimal("13.00"), Decimal("2.50")]
    assert {share.username for share in world.waldur.store.user_usages} == {user}
    reported = [o.action.render() for o in found.outcomes if o.action.verb.startswith("report usage")]
    assert reported and all("a_one" in line for line in reported)
