# SPDX-License-Identifier: MIT
"""Periodic limits that the policy holds or refuses, or that come in a pause: what is held is kept, and goes on when
somebody lets it; what comes in a pause goes on after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.errors import BackendUnavailable, ClusterBusy, OfferingPaused, PassUnfinished
from agent.core.periodic import LimitType
from agent.core.periodic_actions import SetPeriodicLimits
from agent.core.policy import BUDGETS, Budget, Charge, Cost, LimitCuts, PolicyMode
from agent.run import passes
from agent.run.periodic import mode as periodic_limits
from agent.run.periodic import parking
from agent.run.periodic.mode import PeriodicFacts, PeriodicMessage
from agent.run.preview.previews import preview
from agent.state import charges, held_plans, journal
from rig.site import configuration
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.cli.conftest import Command, command
from tests.events.periodic_world import ACCOUNT, PERIODIC, PeriodicWorld
from tests.state.obstacles import block, unblock

__all__ = ["command"]

LOWER = {"fairshare": 7, "grp_tres_mins": {"cpu": 600}, "reset_raw_usage": True}
MINUTES = LimitType.GRP_TRES_MINS


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur("8.0", scenario=Scenario(allocations_per_project=1)) as server:
        yield server


@pytest.fixture
def world(waldur: SimulatedWaldur, tmp_path: Path) -> PeriodicWorld:
    """Of 1000 CPU minutes 800 are used."""
    made = PeriodicWorld(waldur, tmp_path)
    made.account_settings.limits = {MINUTES: {"cpu": 1000}}
    made.cluster.uses(cpu=800)
    return made


def approve(world: PeriodicWorld) -> str:
    """Approve the one plan that waits; its id."""
    (found,) = [
        (held, plan)
        for held in held_plans.all_held(world.site.state_dir, [world.offering])
        for plan in held.waiting()
    ]
    held, plan = found
    held.approvals.approve(plan.id, expires=datetime.now(UTC) + timedelta(hours=1), by="ann")
    return plan.id


def test_a_limit_below_what_is_used_waits_for_a_person_with_all_of_its_message(world: PeriodicWorld) -> None:
    message = world.message(LOWER)
    world.told(message)
    (plan,) = world.waiting()
    sentence = (
        f"held as plan {plan[:12]}: lowers limits of a_one (in the cluster's units): cpu from 1000 to 600, 800 are "
        f"used; where more is used than left, running jobs may be killed; `approve {plan[:12]}` releases it"
    )
    assert world.reported() == [(False, sentence, 0)]
    world.told(message)
    assert (world.waiting(), world.reported()) == ([plan], [(False, sentence, 0)] * 2)
    assert world.order_pass().problems == []
    assert (world.account_settings.share, world.account_settings.limits, world.account_settings.resets) == (
        None,
        {MINUTES: {"cpu": 1000}},
        0,
    )
    assert approve(world) == plan
    report = world.order_pass()
    assert [outcome.action.verb for outcome in report.outcomes] == [
        "set fairshare",
        "set periodic limits",
        "reset raw usage",
    ]
    assert (world.account_settings.share, world.account_settings.limits, world.account_settings.resets) == (
        7,
        {MINUTES: {"cpu": 600}},
        1,
    )
    assert world.reported()[2:] == [(True, "", 3)]
    assert (world.parked(), world.waiting()) == ([], [])
    causes = {line["cause"] for line in journal.read(world.site.state_dir)}
    assert causes == {f"policy {world.policy}"}
    world.order_pass()
    assert (world.account_settings.resets, len(world.reported())) == (1, 3)


def test_a_message_that_waits_costs_a_pass_nothing(world: PeriodicWorld) -> None:
    world.order_pass()
    idle = world.order_pass().effort
    world.told(world.message(LOWER))
    waiting = world.order_pass().effort
    assert (waiting.requests, waiting.commands) == (idle.requests, idle.commands)


def test_what_is_not_below_the_use_is_set_at_once(world: PeriodicWorld) -> None:
    world.told(world.message({"grp_tres_mins": {"cpu": 900}}))
    assert (world.reported(), world.parked()) == ([(True, "", 1)], [])


@pytest.mark.parametrize("how", ["ignored", "refused"])
def test_nothing_is_reset_where_the_settings_are_not_in_force(world: PeriodicWorld, how: str) -> None:
    world.cluster.periodic.ignores_settings = how == "ignored"
    world.cluster.refuses = lambda action: how == "refused" and isinstance(action, SetPeriodicLimits)
    world.told(world.message({**LOWER, "grp_tres_mins": {"cpu": 900}}))
    words = "the cluster took the commands and did not do it: set fairshare of a_one parent -> 7"
    assert world.reported() == [(False, words if how == "ignored" else "no", 2)]
    assert world.account_settings.resets == 0
    world.cluster.periodic.ignores_settings, world.cluster.refuses = False, lambda _: False
    world.told(world.message({**LOWER, "grp_tres_mins": {"cpu": 900}}))
    assert (world.account_settings.resets, world.reported()[1][:2]) == (1, (True, ""))


def test_unknown_use_holds_and_the_site_may_allow_cuts(world: PeriodicWorld) -> None:
    message = world.message({"grp_tres_mins": {"cpu": 900}})
    world.cluster.outage = lambda call: call == "observe" and world.cluster.executed["read"] > 1
    world.told(message)
    assert "what is used is not known" in world.reported()[0][1]
    world.cluster.outage = lambda _: False
    world.told(message, world.with_policy(limit_cuts=LimitCuts.ALLOW))
    assert world.reported()[1:] == [(True, "", 1)]
    assert (world.parked(), world.waiting()) == ([], [])


def test_the_newest_message_is_the_one_that_waits(world: PeriodicWorld) -> None:
    world.told(world.message(LOWER))
    first = approve(world)
    world.told(world.message({"grp_tres_mins": {"cpu": 500}}, timestamp="2026-01-01T00:20:00"))
    (second,) = world.waiting()
    assert second != first
    world.told(world.message(LOWER))
    assert world.reported()[2][:2] == (
        False,
        f"older than the message of 2026-01-01 00:20:00, which is held as plan {second}",
    )
    assert world.order_pass().outcomes == []
    approve(world)
    world.order_pass()
    assert (world.account_settings.limits, world.account_settings.share) == ({MINUTES: {"cpu": 500}}, None)


def test_a_newer_message_that_is_carried_out_ends_the_waiting(world: PeriodicWorld) -> None:
    world.told(world.message(LOWER))
    world.told(world.message({"grp_tres_mins": {"cpu": 2000}}, timestamp="2026-01-02T00:00:00"))
    assert (world.parked(), world.waiting()) == ([], [])
    assert world.account_settings.limits == {MINUTES: {"cpu": 2000}}
    assert [success for success, *_ in world.reported()] == [False, True]


def test_what_a_budget_has_held_is_gone_with_its_message(world: PeriodicWorld) -> None:
    """A plan that is held for what happened before waits until a person decides; there is nothing left to decide."""
    world.cluster.uses(cpu=10)
    site = world.with_policy(budgets={**BUDGETS, Cost.LIMITS_CUT: Budget(1, 1)})
    before = [Charge(Cost.LIMITS_CUT, "a_two")]
    where = {"cluster": "memory", "offering": world.offering.uuid, "mode": "membership_sync"}
    charges.reserve(site.state_dir, before, **where, pass_id="x", now=datetime.now(UTC))
    world.told(world.message(LOWER), site)
    assert len(world.waiting()) == 1
    assert "(limits_cut is 1 an hour); `approve " in world.reported()[0][1]
    world.told(world.message({"fairshare": 9}, timestamp="2026-01-02T00:00:00"), site)
    assert (world.reported()[1], world.parked(), world.waiting()) == ((True, "", 1), [], [])


REFUSALS = [
    ({"mode": PolicyMode.UPSERT_ONLY}, "mode upsert-only: nothing is taken away, blocked or lowered"),
    ({"mode": PolicyMode.CREATE_ONLY}, "mode create-only: "),
    ({"protected_accounts": frozenset({ACCOUNT})}, f"account {ACCOUNT} is protected"),
    ({"ignore_accounts": frozenset({"a_*"})}, f"account {ACCOUNT} matches ignore_accounts"),
]


@pytest.mark.parametrize(("rules", "words"), REFUSALS, ids=str)
def test_what_the_policy_refuses_is_told_and_not_kept(
    world: PeriodicWorld, rules: dict[str, Any], words: str
) -> None:
    world.told(world.message(LOWER), world.with_policy(**rules))
    ((success, sentence, commands),) = world.reported()
    assert (success, commands) == (False, 0)
    assert sentence.startswith(words)
    assert (world.parked(), world.waiting(), world.cluster.executed["write"]) == ([], [], 0)


LATER = "2026-01-02T00:00:00"
ASKED = {**LOWER, "grp_tres_mins": {"cpu": 900}}


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize(
    "changes", [{}, {"settings": {}}, {"backend_id": "a_other"}, {"backend_id": None}], ids=str
)
def test_who_only_observes_tells_the_policy_nothing(
    world: PeriodicWorld, changes: dict[str, Any], paused: bool
) -> None:
    """Beside a live agent: neither of what it would do, nor that all is well, nor of what cannot be."""
    observing = world.with_policy(mode=PolicyMode.OBSERVE, paused=paused)
    assert world.told(world.message(**{"settings": LOWER, **changes}), observing) is None
    assert world.order_pass(observing).problems == []
    world.order_pass()
    assert (world.reported(), world.parked(), world.waiting()) == ([], [], [])
    assert world.cluster.executed["write"] == 0


def test_who_only_observes_logs_what_would_be_done(
    world: PeriodicWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        world.told(world.message(LOWER), world.with_policy(mode=PolicyMode.OBSERVE))
    assert "3 actions are left out: " in caplog.text
    assert "mode observe: nothing is changed" in caplog.text
    assert f"periodic limits of resource {world.resource} are left as they are: mode observe" in caplog.text


def test_a_newer_message_for_others_ends_the_waiting_of_an_older_one(world: PeriodicWorld) -> None:
    """Else the older one would be carried out over the newer one, should this agent go on."""
    world.told(world.message(LOWER))
    approve(world)
    world.told(world.message(ASKED, timestamp=LATER), world.with_policy(mode=PolicyMode.OBSERVE))
    assert (world.parked(), world.waiting()) == ([], [])
    world.order_pass()
    assert (world.cluster.executed["write"], len(world.reported())) == (0, 1)


def test_a_newer_message_that_fails_for_others_ends_the_waiting_of_an_older_one(world: PeriodicWorld) -> None:
    world.told(world.message(LOWER))
    observing = world.with_policy(mode=PolicyMode.OBSERVE)
    for timestamp, left in (("2025-12-01T00:10:02", 1), (LATER, 0)):
        message = world.message(ASKED, timestamp=timestamp)
        periodic_limits.report_failure(
            observing.offering, observing.state_dir, message, BackendUnavailable("away"), client=world.client
        )
        assert len(world.parked()) == left
    assert len(world.reported()) == 1


def test_a_message_in_a_pause_waits_and_is_carried_out_after_it(world: PeriodicWorld) -> None:
    paused = world.with_policy(paused=True)
    for _ in range(2):
        assert world.told(world.message(ASKED), paused) is None
    world.order_pass(paused)
    assert (len(world.parked()), world.reported(), world.cluster.executed["write"]) == (1, [], 0)
    world.order_pass()
    settings = world.account_settings
    assert (settings.share, settings.limits, settings.resets) == (7, {MINUTES: {"cpu": 900}}, 1)
    assert (world.parked(), world.reported()) == ([], [(True, "", 3)])
    world.order_pass()
    assert (settings.resets, len(world.reported())) == (1, 1)


def test_a_pause_by_command_keeps_a_message_too(
    world: PeriodicWorld, waldur: SimulatedWaldur, tmp_path: Path, command: Command
) -> None:
    file = str(configuration(waldur, tmp_path, backend=PERIODIC))
    assert command("pause", world.offering.uuid, "-c", file).code == 0
    world.told(world.message(ASKED))
    world.order_pass()
    assert (len(world.parked()), world.reported()) == (1, [])
    assert command("pause", world.offering.uuid, "--off", "-c", file).code == 0
    world.order_pass()
    assert (world.parked(), world.reported(), world.account_settings.resets) == ([], [(True, "", 3)], 1)


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "the other way round"])
def test_of_two_messages_in_a_pause_the_newer_one_counts(world: PeriodicWorld, order: int) -> None:
    paused = world.with_policy(paused=True)
    messages = [
        world.message({"fairshare": 3, "reset_raw_usage": True}, timestamp="2026-01-01T00:10:00"),
        world.message({"fairshare": 4, "reset_raw_usage": True}, timestamp="2026-01-01T00:20:00"),
    ]
    for message in messages[::order]:
        world.told(message, paused)
    world.order_pass()
    assert (world.account_settings.share, world.account_settings.resets) == (4, 1)
    assert world.reported() == [(True, "", 2)]


def test_after_a_pause_a_newer_message_comes_first(world: PeriodicWorld) -> None:
    world.told(world.message({"fairshare": 3}), world.with_policy(paused=True))
    world.told(world.message({"fairshare": 2}, timestamp="2025-12-31T00:00:00"))
    words = "older than the message of 2026-01-01 00:10:02, which came in a pause and waits"
    assert world.reported() == [(False, words, 0)]
    world.told(world.message({"fairshare": 4}, timestamp=LATER))
    world.order_pass()
    assert (world.account_settings.share, world.parked()) == (4, [])
    assert world.reported()[1:] == [(True, "", 1)]


def test_a_message_in_a_pause_takes_the_place_of_one_that_is_held(world: PeriodicWorld) -> None:
    world.told(world.message(LOWER))
    (plan,) = world.waiting()
    paused = world.with_policy(paused=True)
    world.told(world.message(LOWER), paused)
    assert world.waiting() == [plan], "the same message: the policy and the operator know of this plan"
    world.told(world.message({"grp_tres_mins": {"cpu": 500}}, timestamp=LATER), paused)
    assert (world.waiting(), len(world.reported())) == ([], 1)
    world.order_pass()
    (other,) = world.waiting()
    assert other != plan
    assert world.reported()[1][1].startswith(f"held as plan {other[:12]}: ")
    approve(world)
    world.order_pass()
    assert (world.account_settings.limits, world.reported()[2]) == ({MINUTES: {"cpu": 500}}, (True, "", 1))


def test_what_cannot_be_is_told_after_the_pause(world: PeriodicWorld) -> None:
    world.told(world.message(LOWER, backend_id="a_other"), world.with_policy(paused=True))
    assert world.reported() == []
    world.order_pass()
    words = f"it is about account a_other, and resource {world.resource} has {ACCOUNT}"
    assert (world.reported(), world.parked()) == ([(False, words, 0)], [])


def test_what_fails_before_its_beginning_waits_in_a_pause_as_well(world: PeriodicWorld) -> None:
    """A lock that is never free, or no usable backend: the task ends, its message stays."""
    paused = world.with_policy(paused=True)
    busy, document = ClusterBusy("it is being worked on by another task"), world.message(ASKED)
    periodic_limits.report_failure(paused.offering, world.site.state_dir, document, busy, client=world.client)
    world.order_pass()
    assert world.reported() == [(True, "", 3)]


def test_in_a_pause_a_message_that_cannot_be_written_down_stays_with_its_task(world: PeriodicWorld) -> None:
    """For as long as what else waits for the end of a pause: a day."""
    paused = world.with_policy(paused=True)
    block(world.site.state_dir)
    error = world.told(world.message(ASKED), paused)
    periodic_limits.report_failure(
        paused.offering, world.site.state_dir, world.message(ASKED), OfferingPaused("x"), client=world.client
    )
    unblock(world.site.state_dir)
    assert isinstance(error, OfferingPaused)
    assert (world.parked(), world.reported()) == ([], [])
    assert world.told(world.message(ASKED)) is None
    assert world.reported() == [(True, "", 3)]


def test_many_messages_after_a_pause_make_way_for_orders(
    world: PeriodicWorld, waldur: SimulatedWaldur, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = waldur.site.add_policy(period=2)
    paused = world.with_policy(paused=True)
    world.told(world.message({"fairshare": 3}), paused)
    world.told(world.message({"grp_tres": {"cpu": 8}}, policy_uuid=other), paused)
    monkeypatch.setattr(periodic_limits, "RESUMED_FOR_S", -1)
    report = world.order_pass()
    assert (isinstance(report.retryable_error, PassUnfinished), report.problems) == (True, [])
    assert (len(world.parked()), world.reported()) == (1, [(True, "", 1)])
    assert world.order_pass().retryable_error is None
    assert (world.parked(), world.reported()) == ([], [(True, "", 1)] * 2)


def test_a_message_that_fails_keeps_none_behind_it_waiting(
    world: PeriodicWorld, waldur: SimulatedWaldur, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = waldur.site.add_policy(period=2)
    paused = world.with_policy(paused=True)
    for policy in (world.policy, other):
        world.told(world.message({"fairshare": 3}, policy_uuid=policy), paused)
    monkeypatch.setattr(periodic_limits, "RESUMED_FOR_S", -1)
    bad = min(world.policy, other)
    observed = PeriodicMessage.observe

    def fails(message: PeriodicMessage) -> PeriodicFacts | None:
        if message.waiting is not None and message.waiting.document["policy_uuid"] == bad:
            raise BackendUnavailable("slurmdbd is away")
        return observed(message)

    monkeypatch.setattr(PeriodicMessage, "observe", fails)
    for _ in range(2):
        world.order_pass()
    assert [each.document["policy_uuid"] for each in world.parked()] == [bad]


def test_what_came_after_a_plan_was_looked_at_waits_for_the_next_pass(world: PeriodicWorld) -> None:
    """Nothing of it is done, so nothing of it is reported."""
    looked_at = preview(world.site, Mode.ORDER_PROCESS)
    world.told(world.message({"fairshare": 3}), world.with_policy(paused=True))
    report = looked_at.apply()
    assert (world.account_settings.share, world.reported(), len(world.parked())) == (None, [], 1)
    assert (report.problems, isinstance(report.retryable_error, PassUnfinished)) == ([], True)
    world.order_pass()
    assert (world.account_settings.share, world.reported(), world.parked()) == (3, [(True, "", 1)], [])


def test_what_was_looked_at_of_a_message_that_waits_is_done(world: PeriodicWorld) -> None:
    world.told(world.message({"fairshare": 3}), world.with_policy(paused=True))
    looked_at = preview(world.site, Mode.ORDER_PROCESS)
    assert len(looked_at.allowed.actions) == 1
    assert (world.account_settings.share, world.reported(), len(world.parked())) == (None, [], 1)
    assert looked_at.apply().problems == []
    assert (world.account_settings.share, world.reported(), world.parked()) == (3, [(True, "", 1)], [])


def test_where_nothing_is_lowered_limits_are_raised(world: PeriodicWorld) -> None:
    message = world.message({"fairshare": 3, "grp_tres_mins": {"cpu": 2000}})
    world.told(message, world.with_policy(mode=PolicyMode.UPSERT_ONLY))
    assert world.reported() == [(True, "", 2)]


def test_a_pause_keeps_what_waits(world: PeriodicWorld) -> None:
    world.told(world.message(LOWER))
    approve(world)
    world.order_pass(world.with_policy(paused=True))
    assert (len(world.parked()), world.account_settings.resets, len(world.reported())) == (1, 0, 1)
    world.order_pass()
    assert (world.parked(), world.account_settings.resets) == ([], 1)


def test_what_is_not_below_the_use_any_more_goes_on_by_itself(
    world: PeriodicWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at again once in an hour, whether nothing has changed or all is well now."""
    world.told(world.message(LOWER))
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


def test_another_plan_for_the_same_message_is_told(
    world: PeriodicWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster changed meanwhile: what was shown to a person is not what would be done."""
    world.told(world.message({"grp_tres_mins": {"cpu": 600, "mem": 5}}))
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
    world.told(world.message(LOWER))
    approve(world)
    waldur.site.change("resources", world.resource, backend_id="a_other")
    report = world.order_pass()
    words = f"it is about account {ACCOUNT}, and resource {world.resource} has a_other"
    assert report.problems == [f"periodic limits: {words}"]
    assert world.reported()[1] == (False, words, 0)
    assert (world.parked(), world.waiting(), world.order_pass().problems) == ([], [], [])


def test_an_outage_leaves_an_approved_message_for_the_next_pass(world: PeriodicWorld) -> None:
    world.told(world.message(LOWER))
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
    world.told(world.message(LOWER))
    approve(world)
    waldur.inject(Fault(path="report-command-result", status=500, carried_out=False))
    world.order_pass()
    assert (len(world.parked()), len(world.reported())) == (1, 1)
    world.order_pass()
    assert (world.parked(), world.reported()[1:], world.account_settings.resets) == ([], [(True, "", 3)], 1)


def test_without_its_rights_in_waldur_the_agent_forgets_no_message(
    world: PeriodicWorld, waldur: SimulatedWaldur
) -> None:
    world.told(world.message(LOWER))
    approve(world)
    waldur.inject(Fault(path="marketplace-provider-resources", status=403, body="{}"))
    assert world.order_pass().problems
    assert len(world.parked()) == 1
    world.order_pass()
    assert world.reported()[1:] == [(True, "", 3)]


@pytest.mark.parametrize("status", [403, 500])
def test_a_message_is_kept_even_if_its_policy_cannot_be_told(
    world: PeriodicWorld, waldur: SimulatedWaldur, status: int
) -> None:
    waldur.inject(Fault(path="report-command-result", status=status, carried_out=False, body="{}"))
    error = world.told(world.message(LOWER))
    assert (error is None, len(world.parked())) == ((True, 1) if status == 403 else (False, 0))
    world.told(world.message(LOWER))
    assert (len(world.parked()), [success for success, *_ in world.reported()]) == (1, [False])


def test_a_message_whose_lock_is_taken_is_left_to_its_holder(world: PeriodicWorld) -> None:
    world.told(world.message(LOWER))
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
    error = world.told(world.message(LOWER))
    unblock(world.site.state_dir)
    assert error is not None, "it comes back"
    assert world.account_settings.limits == {MINUTES: {"cpu": 1000}}
    assert world.told(world.message(LOWER)) is None
    assert len(world.parked()) == (used == 800)


def test_the_command_lists_and_approves_it(
    world: PeriodicWorld, waldur: SimulatedWaldur, tmp_path: Path, command: Command
) -> None:
    world.told(world.message(LOWER))
    (plan,) = world.waiting()
    file = str(configuration(waldur, tmp_path, backend=PERIODIC))
    assert f"plan {plan[:12]}  Test SLURM, periodic_limits" in command("approve", "-c", file).out
    assert command("approve", plan, "-c", file).code == 0
    world.order_pass()
    assert world.reported()[1] == (True, "", 3)
