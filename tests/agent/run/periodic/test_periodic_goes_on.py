# SPDX-License-Identifier: MIT
"""What becomes of a periodic limit that was held: it goes on, is replaced, or ends with a report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agent.core.errors import BackendUnavailable
from agent.run import passes
from agent.run.periodic import mode as periodic_limits
from agent.run.periodic import parking
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.periodic.periodic_world import ACCOUNT, PeriodicWorld
from tests.agent.run.periodic.used_limits import LOWER, MINUTES, approve, waldur, world
from tests.agent.state.obstacles import block, unblock

__all__ = ["waldur", "world"]

pytestmark = pytest.mark.events


def test_what_is_not_below_the_use_any_more_goes_on_by_itself(
    world: PeriodicWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at again once in an hour, whether nothing has changed or all is well now."""
    world.received(world.message(LOWER))
    (plan,) = world.waiting()
    now = datetime.now(UTC).replace(tzinfo=None)
    monkeypatch.setattr(parking, "now", lambda: now + timedelta(minutes=61))
    reads = world.cluster.executed["read"]
    world.order_pass()
    assert (world.waiting(), len(world.reported())) == ([plan], 1), "the policy knows that already"
    assert world.cluster.executed["read"] > reads
    world.cluster.uses(cpu=10)
    world.order_pass()
    assert world.account_settings.limits == {MINUTES: {"cpu": 1000}}
    monkeypatch.setattr(parking, "now", lambda: now + timedelta(minutes=123))
    world.order_pass()
    assert world.account_settings.limits == {MINUTES: {"cpu": 600}}
    assert (world.parked(), world.waiting()) == ([], [])
    assert world.reported()[1:] == [(True, "", 3)]


def test_another_plan_for_the_same_message_is_reported(
    world: PeriodicWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster changed in between: what was shown to a person is not what would be done."""
    world.received(world.message({"grp_tres_mins": {"cpu": 600, "mem": 5}}))
    (first,) = world.waiting()
    approve(world)
    world.account_settings.limits[MINUTES]["mem"] = 5
    assert world.order_pass().problems == []
    (second,) = world.waiting()
    assert second != first
    assert [sentence[:26] for _, sentence, _ in world.reported()] == [
        f"held as plan {first[:12]}:",
        f"held as plan {second[:12]}:",
    ]
    approve(world)
    world.order_pass()
    assert world.reported()[2] == (True, "", 1)


def test_a_message_that_can_never_be_carried_out_ends_with_a_report(
    world: PeriodicWorld, waldur: SimulatedWaldur
) -> None:
    world.received(world.message(LOWER))
    approve(world)
    waldur.site.change("resources", world.resource, backend_id="a_other")
    report = world.order_pass()
    words = f"it is about account {ACCOUNT}, and resource {world.resource} has a_other"
    assert report.problems == [f"periodic limits: {words}"]
    assert world.reported()[1] == (False, words, 0)
    assert (world.parked(), world.waiting(), world.order_pass().problems) == ([], [], [])


def test_an_outage_leaves_an_approved_message_for_the_next_pass(world: PeriodicWorld) -> None:
    world.received(world.message(LOWER))
    approve(world)
    world.cluster.outage = lambda call: call == "before the command"
    report = world.order_pass()
    assert isinstance(report.retryable_error, BackendUnavailable | periodic_limits.PeriodicFailed)
    assert (len(world.parked()), len(world.reported())) == (1, 1)
    world.cluster.outage = lambda _: False
    world.order_pass()
    assert (world.parked(), [success for success, *_ in world.reported()]) == ([], [False, True])


def test_a_report_that_waldur_did_not_take_is_sent_again(
    world: PeriodicWorld, waldur: SimulatedWaldur
) -> None:
    world.received(world.message(LOWER))
    approve(world)
    waldur.inject(Fault(path="report-command-result", status=500, carried_out=False))
    world.order_pass()
    assert (len(world.parked()), len(world.reported())) == (1, 1)
    world.order_pass()
    assert (world.parked(), world.reported()[1:], world.account_settings.resets) == ([], [(True, "", 3)], 1)


def test_without_its_rights_in_waldur_the_agent_forgets_no_message(
    world: PeriodicWorld, waldur: SimulatedWaldur
) -> None:
    world.received(world.message(LOWER))
    approve(world)
    waldur.inject(Fault(path="marketplace-provider-resources", status=403, body="{}"))
    assert world.order_pass().problems
    assert len(world.parked()) == 1
    world.order_pass()
    assert world.reported()[1:] == [(True, "", 3)]


@pytest.mark.parametrize("status", [403, 500])
def test_a_message_is_kept_even_if_its_policy_cannot_get_a_report(
    world: PeriodicWorld, waldur: SimulatedWaldur, status: int
) -> None:
    waldur.inject(Fault(path="report-command-result", status=status, carried_out=False, body="{}"))
    error = world.received(world.message(LOWER))
    assert (error is None, len(world.parked())) == ((True, 1) if status == 403 else (False, 0))
    world.received(world.message(LOWER))
    assert (len(world.parked()), [success for success, *_ in world.reported()]) == (1, [False])


def test_a_message_whose_lock_is_taken_is_left_to_its_holder(world: PeriodicWorld) -> None:
    world.received(world.message(LOWER))
    approve(world)
    asked: list[str] = []
    passes.process_orders(world.site, lock=lambda name: bool(asked.append(name)))
    assert (asked, len(world.parked())) == ([f"periodic_limits:{world.resource}"], 1)


@pytest.mark.parametrize("used", [800, 10], ids=["held", "allowed"])
def test_where_nothing_can_be_written_down_a_message_stays_with_its_task(
    world: PeriodicWorld, used: int
) -> None:
    world.cluster.uses(cpu=used)
    block(world.site.state_dir)
    error = world.received(world.message(LOWER))
    unblock(world.site.state_dir)
    assert error is not None, "it comes back"
    assert world.account_settings.limits == {MINUTES: {"cpu": 1000}}
    assert world.received(world.message(LOWER)) is None
    assert len(world.parked()) == (used == 800)
