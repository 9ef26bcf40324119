# SPDX-License-Identifier: MIT
"""Orders under the policy: what is held or refused waits as it is, and nothing of it has begun."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.core.actions import AddMember
from agent.run import passes
from agent.state import journal
from tests.agent.run.gate.conftest import World, untouched
from tests.agent.state.obstacles import block

pytestmark = pytest.mark.safety

SOON = timedelta(hours=1)


def approve(world: World, plan: str, lasts: timedelta = SOON) -> None:
    world.held().approvals.approve(plan, expires=datetime.now(UTC) + lasts, by="ann")


# Too many terminations ---------------------------------------------------------------------------------


def test_too_many_terminations_wait_and_nothing_is_touched(world: World) -> None:
    ended = world.end(*world.allocate_all("one", "two", "three"))
    before = untouched(world)
    report = world.process_orders(max_removed_accounts=2)
    assert report.counted() == {"waiting": 3}
    assert (report.failed, report.retryable_error, report.outcomes) == (False, None, [])
    assert untouched(world) == before
    assert world.states(ended) == {"pending-provider"}
    (plan,) = report.held
    assert plan.scope == "cluster memory"
    assert all(f"approve {plan.short_id}" in order.message for order in report.orders)
    assert "3 accounts would be deleted or emptied at once: a_one, a_three, a_two" in plan.reason


def test_as_many_as_allowed_are_carried_out(world: World) -> None:
    ended = world.end(*world.allocate_all("one", "two"))
    assert world.process_orders(max_removed_accounts=2).counted() == {"done": 2}
    assert world.states(ended) == {"done"}
    assert not {name for name in world.backend.state.accounts if name.startswith("a_")}


def test_other_orders_go_on_while_some_are_held(world: World) -> None:
    ended = world.end(*world.allocate_all("one", "two"))
    (created,) = world.place("three")
    report = world.process_orders(max_removed_accounts=1)
    assert report.counted() == {"waiting": 2, "done": 1}
    assert world.waldur.resource(created).state.value == "OK"
    assert world.states(ended) == {"pending-provider"}


def test_soft_deletions_count_as_well(world: World) -> None:
    world.offering = {"backend": {"soft_delete": True}}
    world.end(*world.allocate_all("one", "two"))
    before = world.backend.state
    assert world.process_orders(max_removed_accounts=1).counted() == {"waiting": 2}
    assert world.backend.state == before
    (plan,) = world.held().planned()
    approve(world, plan.id)
    assert world.process_orders(max_removed_accounts=1).counted() == {"done": 2}
    assert dict(world.backend.state.accounts["a_one"].limits)["cpu"] == 0


def test_an_approval_lets_the_plan_go_once(world: World) -> None:
    ended = world.end(*world.allocate_all("one", "two"))
    (plan,) = world.process_orders(max_removed_accounts=1).held
    approve(world, plan.id)
    assert world.process_orders(max_removed_accounts=1).counted() == {"done": 2}
    assert world.states(ended) == {"done"}
    assert world.process_orders(max_removed_accounts=1).counted() == {}
    held = world.held()
    assert (held.waiting(), held.approvals.open()) == ([], [])


def empty_the_team(world: World) -> None:
    """No default accounts bind the orders to each other."""
    project = world.waldur.seed.project_uuids[0]
    for username in world.waldur.seed.members[project]:
        world.waldur.people.remove_member(project, username)


def test_an_approval_survives_one_more_order_and_is_for_what_was_shown_only(world: World) -> None:
    empty_the_team(world)
    one, two, *others = world.allocate_all("one", "two", "three", "four")
    world.end(one, two)
    (plan,) = world.process_orders(max_removed_accounts=1).held
    approve(world, plan.id)
    ended = world.end(*others)
    report = world.process_orders(max_removed_accounts=1)
    assert report.counted() == {"done": 2, "waiting": 2}
    (other,) = report.held
    assert other.id != plan.id
    assert "2 accounts would be deleted or emptied at once: a_four, a_three" in other.reason
    assert world.states(ended) == {"pending-provider"}
    world.process_orders(max_removed_accounts=1)
    assert world.held().approvals.open() == [], "it was for one act"


def test_a_later_order_is_not_drawn_into_a_plan_that_waits(world: World) -> None:
    empty_the_team(world)
    one, two, three = world.allocate_all("one", "two", "three")
    world.end(one, two)
    (plan,) = world.process_orders(max_removed_accounts=1).held
    (ended,) = world.end(three)
    report = world.process_orders(max_removed_accounts=1)
    assert report.counted() == {"done": 1, "waiting": 2}
    assert world.states([ended]) == {"done"}
    (still,) = report.held
    assert still.reason == plan.reason
    # The project's account would go with the last of its allocations: that was not shown before.
    assert still.lines.keys() > plan.lines.keys()
    assert still.id != plan.id


def test_an_approval_expires(world: World) -> None:
    world.end(*world.allocate_all("one", "two"))
    (plan,) = world.process_orders(max_removed_accounts=1).held
    approve(world, plan.id, timedelta(seconds=-1))
    assert world.process_orders(max_removed_accounts=1).counted() == {"waiting": 2}


def test_an_approved_plan_that_was_cut_off_is_finished(world: World) -> None:
    """The rest is another plan by its id; it was approved all the same."""
    ended = world.end(*world.allocate_all("one", "two", "three", "four"))
    (plan,) = world.process_orders(max_removed_accounts=1).held
    approve(world, plan.id)
    accounts = {"a_one", "a_two", "a_three", "a_four"}

    def outage(call: str) -> bool:
        return call == "apply" and not accounts <= set(world.backend.state.accounts)

    world.backend.outage = outage
    assert world.process_orders(max_removed_accounts=1).failed
    assert len(accounts & set(world.backend.state.accounts)) == 3
    world.backend.outage = lambda _: False
    report = world.process_orders(max_removed_accounts=1)
    assert report.held == ()
    assert world.states(ended) == {"done"}


def test_the_id_stays_the_same_and_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.end(*world.allocate_all("one", "two"))
    (first,) = world.process_orders(max_removed_accounts=1).held
    since = world.held().waiting()[0].since
    assert [r.levelname for r in caplog.records if first.short_id in r.getMessage()] == ["WARNING"]
    caplog.clear()
    caplog.set_level(logging.INFO)
    (second,) = world.process_orders(max_removed_accounts=1).held
    assert second.id == first.id
    assert world.held().waiting()[0].since == since
    assert caplog.records == [], "nothing has changed"


def test_a_plan_that_is_gone_is_not_held_any_more(world: World) -> None:
    resources = world.allocate_all("one", "two")
    world.end(*resources)
    assert world.process_orders(max_removed_accounts=1).held
    for record in world.waldur.site.state()["orders"]:
        if record["type"] == "Terminate":
            world.waldur.site.change("orders", record["uuid"], state="canceled")
    world.process_orders(max_removed_accounts=1)
    assert world.held().planned() == [], "an answer may lack something: it is remembered for an hour"


def test_an_event_about_one_order_does_not_slip_past_the_plan_that_waits(world: World) -> None:
    """Each order alone would be few enough."""
    ended = world.end(*world.allocate_all("one", "two", "three"))
    (plan,) = world.process_orders(max_removed_accounts=2).held
    for order in ended:
        report = passes.process_orders(world.under(max_removed_accounts=2), order_uuid=order)
        assert report.counted() == {"waiting": 1}
        assert [p.id for p in report.held] == [plan.id]
    (waiting,) = world.held().waiting()
    assert waiting.keys == plan.lines.keys(), "the plan is still the whole one"
    approve(world, plan.id)
    assert passes.process_orders(world.under(max_removed_accounts=2), order_uuid=ended[0]).counted() == {
        "done": 1
    }


def test_a_hold_that_cannot_be_written_is_a_hold(world: World, caplog: pytest.LogCaptureFixture) -> None:
    ended = world.end(*world.allocate_all("one", "two"))
    state = world.folder / "state"
    _block(state)
    assert world.process_orders(max_removed_accounts=1).counted() == {"waiting": 2}
    assert world.states(ended) == {"pending-provider"}
    assert "cannot be written" in caplog.text


def test_a_state_folder_that_cannot_be_written_stops_no_pass(world: World) -> None:
    _block(world.folder / "state")
    (created,) = world.place("one")
    assert world.process_orders().counted() == {"done": 1}
    assert world.waldur.resource(created).state.value == "OK"


def _block(state: Path) -> None:
    """Neither the store nor the journal can be written."""
    block(state)
    if (state / "journal").is_dir():
        (state / "journal").rename(state / "journal.old")
    (state / "journal").write_text("")


# Whose it is ------------------------------------------------------------------------------------------------


def test_an_order_about_a_protected_account_waits(world: World) -> None:
    (resource,) = world.allocate_all("one")
    (order,) = world.end(resource)
    report = world.process_orders(protected_accounts=["a_one"])
    assert [(o.result, o.message) for o in report.orders] == [("waiting", "account a_one is protected")]
    assert world.states([order]) == {"pending-provider"}


def test_protected_members_are_skipped_in_an_order_that_goes_on(world: World) -> None:
    """Members never hold an order back."""
    world.allocate_all("first")
    users = sorted(world.backend.state.users_of("a_first"))
    world.place("second")
    assert world.process_orders(protected_users=[users[0]]).counted() == {"done": 1}
    assert sorted(world.backend.state.users_of("a_second")) == users[1:]


@pytest.mark.parametrize("name", ["root", "nobody", "munge", "slurm"])
def test_a_user_of_the_system_is_no_member(world: World, name: str) -> None:
    """Who may choose a username in Waldur could be one otherwise."""
    world.waldur.people.add_member(world.waldur.seed.project_uuids[0], "mallory", account=name)
    world.place("first")
    assert world.process_orders().counted() == {"done": 1}
    members = world.backend.state.users_of("a_first")
    assert members
    assert name not in members


def test_without_prefixes_waldurs_names_prove_what_is_ours(world: World) -> None:
    world.offering = {"backend": {"allocation_prefix": "", "project_prefix": "", "customer_prefix": ""}}
    world.end(*world.allocate_all("one"))
    assert world.process_orders().counted() == {"done": 1}
    assert "one" not in world.backend.state.accounts


def test_a_project_account_that_must_stay_does_not_hold_its_last_allocation_back(world: World) -> None:
    (resource,) = world.allocate_all("one")
    (project,) = [name for name in world.backend.state.accounts if name.startswith("p_")]
    world.end(resource)
    assert world.process_orders(ignore_accounts=["P_*"]).counted() == {"done": 1}
    assert project in world.backend.state.accounts
    assert "a_one" not in world.backend.state.accounts


# Limits ------------------------------------------------------------------------------------------------------


def test_an_update_below_what_is_used_waits_and_says_how_much_is_used(world: World) -> None:
    (resource,) = world.allocate_all("one", cpu=10)
    world.backend.state = replace(world.backend.state, used={"a_one": {"cpu": 400}})
    world.waldur.orders.place_update(resource, {"cpu": 5})
    report = world.process_orders()
    assert report.counted() == {"waiting": 1}
    assert "cpu from 600 to 300, 400 are used" in report.orders[0].message
    assert dict(world.backend.state.accounts["a_one"].limits) == {"cpu": 600}
    approve(world, report.held[0].id)
    assert world.process_orders().counted() == {"done": 1}
    assert dict(world.backend.state.accounts["a_one"].limits) == {"cpu": 300}


@pytest.mark.parametrize(("used", "policy"), [({"cpu": 200}, {}), ({"cpu": 400}, {"limit_cuts": "allow"})])
def test_an_update_that_cuts_into_nothing_or_may_cut_is_carried_out(
    world: World, used: dict[str, int], policy: dict[str, str]
) -> None:
    (resource,) = world.allocate_all("one", cpu=10)
    world.backend.state = replace(world.backend.state, used={"a_one": used})
    world.waldur.orders.place_update(resource, {"cpu": 5})
    assert world.process_orders(**policy).counted() == {"done": 1}


def test_a_raise_asks_for_no_usage(world: World) -> None:
    (resource,) = world.allocate_all("one", cpu=10)
    world.backend.executed.clear()
    world.waldur.orders.place_update(resource, {"cpu": 20})
    assert world.process_orders().counted() == {"done": 1}
    assert world.backend.executed["read"] == 2


# The journal ---------------------------------------------------------------------------------------------------


def test_every_action_of_an_order_is_in_the_journal(world: World) -> None:
    (resource,) = world.place("one")
    report = world.process_orders()
    lines = list(journal.read(world.site.state_dir))
    assert [line["action"]["text"] for line in lines] == [o.action.render() for o in report.outcomes]
    order = report.orders[0].order_uuid
    assert {line["cause"] for line in lines if line["ids"].get("order") == order} == {f"order {order}"}
    (claim,) = [line for line in lines if line["action"]["action"] == "ClaimAccount"]
    assert claim["ids"] == {"order": order, "resource": resource, "account": "a_one"}
    (first,) = {line["offering"] for line in lines}
    assert first == world.site.offering.uuid
    assert {line["outcome"] for line in lines} == {"done"}


def test_what_failed_is_in_the_journal_with_its_error(world: World) -> None:
    world.place("one")
    world.backend.outage = lambda call: call == "apply"
    world.process_orders()
    failed = [line for line in journal.read(world.site.state_dir) if line["outcome"] == "failed"]
    assert failed and all("does not answer" in line["error"] for line in failed)
    assert any(line["action"]["action"] == AddMember.__name__ for line in failed)
