# SPDX-License-Identifier: MIT
"""Periodic limits that the policy holds or refuses: what is held is kept, and listed for a person."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.errors import BackendUnavailable, PassUnfinished
from agent.core.model import Account
from agent.core.periodic_actions import SetPeriodicLimits
from agent.core.policy import BUDGETS, Budget, Charge, Cost, LimitCuts, PolicyMode
from agent.run.periodic import mode as periodic_limits
from agent.run.periodic.mode import PeriodicFacts, PeriodicMessage
from agent.run.preview.previews import preview
from agent.state import charges, journal
from agent.waldur import policies
from rig.site import configuration
from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli.conftest import Command, command
from tests.agent.run.periodic.periodic_world import ACCOUNT, PERIODIC, PeriodicWorld
from tests.agent.run.periodic.used_limits import ASKED, LATER, LOWER, MINUTES, approve, waldur, world

__all__ = ["command", "waldur", "world"]

pytestmark = pytest.mark.events


def test_a_limit_below_what_is_used_waits_for_a_person_with_all_of_its_message(world: PeriodicWorld) -> None:
    message = world.message(LOWER)
    world.received(message)
    (plan,) = world.waiting()
    sentence = (
        f"held as plan {plan[:12]}: lowers limits of a_one (in the cluster's units): cpu from 1000 to 600, 800 are "
        f"used; where more is used than left, running jobs may be killed; `approve {plan[:12]}` releases it"
    )
    assert world.reported() == [(False, sentence, 0)]
    world.received(message)
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
    world.received(world.message(LOWER))
    waiting = world.order_pass().effort
    assert (waiting.requests, waiting.commands) == (idle.requests, idle.commands)


def test_what_is_not_below_the_use_is_set_at_once(world: PeriodicWorld) -> None:
    world.received(world.message({"grp_tres_mins": {"cpu": 900}}))
    assert (world.reported(), world.parked()) == ([(True, "", 1)], [])


@pytest.mark.parametrize("how", ["ignored", "refused"])
def test_nothing_is_reset_where_the_settings_are_not_in_force(world: PeriodicWorld, how: str) -> None:
    world.cluster.periodic.ignores_settings = how == "ignored"
    world.cluster.refuses = lambda action: how == "refused" and isinstance(action, SetPeriodicLimits)
    world.received(world.message({**LOWER, "grp_tres_mins": {"cpu": 900}}))
    words = "the cluster took the commands and did not do it: set fairshare of a_one parent -> 7"
    assert world.reported() == [(False, words if how == "ignored" else "no", 2)]
    assert world.account_settings.resets == 0
    world.cluster.periodic.ignores_settings, world.cluster.refuses = False, lambda _: False
    world.received(world.message({**LOWER, "grp_tres_mins": {"cpu": 900}}))
    assert (world.account_settings.resets, world.reported()[1][:2]) == (1, (True, ""))


def test_unknown_use_holds_and_the_site_may_allow_cuts(world: PeriodicWorld) -> None:
    message = world.message({"grp_tres_mins": {"cpu": 900}})
    world.cluster.outage = lambda call: call == "observe" and world.cluster.executed["read"] > 1
    world.received(message)
    assert "what is used is not known" in world.reported()[0][1]
    world.cluster.outage = lambda _: False
    world.received(message, world.with_policy(limit_cuts=LimitCuts.ALLOW))
    assert world.reported()[1:] == [(True, "", 1)]
    assert (world.parked(), world.waiting()) == ([], [])


def test_the_newest_message_is_the_one_that_waits(world: PeriodicWorld) -> None:
    world.received(world.message(LOWER))
    first = approve(world)
    world.received(world.message({"grp_tres_mins": {"cpu": 500}}, timestamp="2026-01-01T00:20:00"))
    (second,) = world.waiting()
    assert second != first
    world.received(world.message(LOWER))
    assert world.reported()[2][:2] == (
        False,
        f"older than the message of 2026-01-01 00:20:00, which is held as plan {second}",
    )
    assert world.order_pass().outcomes == []
    approve(world)
    world.order_pass()
    assert (world.account_settings.limits, world.account_settings.share) == ({MINUTES: {"cpu": 500}}, None)


def test_a_newer_message_that_is_carried_out_ends_the_waiting(world: PeriodicWorld) -> None:
    world.received(world.message(LOWER))
    world.received(world.message({"grp_tres_mins": {"cpu": 2000}}, timestamp="2026-01-02T00:00:00"))
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
    world.received(world.message(LOWER), site)
    assert len(world.waiting()) == 1
    assert "(limits_cut is 1 an hour); `approve " in world.reported()[0][1]
    world.received(world.message({"fairshare": 9}, timestamp="2026-01-02T00:00:00"), site)
    assert (world.reported()[1], world.parked(), world.waiting()) == ((True, "", 1), [], [])


REFUSALS = [
    ({"mode": PolicyMode.UPSERT_ONLY}, "mode upsert-only: nothing is taken away, blocked or lowered"),
    ({"mode": PolicyMode.CREATE_ONLY}, "mode create-only: "),
    ({"protected_accounts": frozenset({ACCOUNT})}, f"account {ACCOUNT} is protected"),
    ({"ignore_accounts": frozenset({"a_*"})}, f"account {ACCOUNT} matches ignore_accounts"),
]


@pytest.mark.parametrize(("rules", "words"), REFUSALS, ids=str)
def test_what_the_policy_refuses_is_reported_and_not_kept(
    world: PeriodicWorld, rules: dict[str, Any], words: str
) -> None:
    world.received(world.message(LOWER), world.with_policy(**rules))
    ((success, sentence, commands),) = world.reported()
    assert (success, commands) == (False, 0)
    assert sentence.startswith(words)
    assert (world.parked(), world.waiting(), world.cluster.executed["write"]) == ([], [], 0)


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize(
    "changes", [{}, {"settings": {}}, {"backend_id": "a_other"}, {"backend_id": None}], ids=str
)
def test_who_only_observes_reports_nothing_to_the_policy(
    world: PeriodicWorld, changes: dict[str, Any], paused: bool
) -> None:
    """While another agent is live: neither of what it would do, nor that all is well, nor of what cannot be."""
    observing = world.with_policy(mode=PolicyMode.OBSERVE, paused=paused)
    assert world.received(world.message(**{"settings": LOWER, **changes}), observing) is None
    assert world.order_pass(observing).problems == []
    world.order_pass()
    assert (world.reported(), world.parked(), world.waiting()) == ([], [], [])
    assert world.cluster.executed["write"] == 0


def test_who_only_observes_logs_what_would_be_done(
    world: PeriodicWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        world.received(world.message(LOWER), world.with_policy(mode=PolicyMode.OBSERVE))
    assert "3 actions are skipped: " in caplog.text
    assert "mode observe: nothing is changed" in caplog.text
    assert f"periodic limits of resource {world.resource} are left as they are: mode observe" in caplog.text


def test_a_newer_message_for_others_ends_the_waiting_of_an_older_one(world: PeriodicWorld) -> None:
    """Else the older one would be carried out over the newer one, should this agent go on."""
    world.received(world.message(LOWER))
    approve(world)
    world.received(world.message(ASKED, timestamp=LATER), world.with_policy(mode=PolicyMode.OBSERVE))
    assert (world.parked(), world.waiting()) == ([], [])
    world.order_pass()
    assert (world.cluster.executed["write"], len(world.reported())) == (0, 1)


def test_a_newer_message_that_fails_for_others_ends_the_waiting_of_an_older_one(world: PeriodicWorld) -> None:
    world.received(world.message(LOWER))
    observing = world.with_policy(mode=PolicyMode.OBSERVE)
    for timestamp, left in (("2025-12-01T00:10:02", 1), (LATER, 0)):
        message = world.message(ASKED, timestamp=timestamp)
        periodic_limits.report_failure(
            observing.offering, observing.state_dir, message, BackendUnavailable("away"), client=world.client
        )
        assert len(world.parked()) == left
    assert len(world.reported()) == 1


def test_many_messages_after_a_pause_make_way_for_orders(
    world: PeriodicWorld, waldur: SimulatedWaldur, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = waldur.site.add_policy(period=2)
    paused = world.with_policy(paused=True)
    world.received(world.message({"fairshare": 3}), paused)
    world.received(world.message({"grp_tres": {"cpu": 8}}, policy_uuid=other), paused)
    monkeypatch.setattr(periodic_limits, "RESUMED_FOR_S", -1)
    report = world.order_pass()
    assert (isinstance(report.retryable_error, PassUnfinished), report.problems) == (True, [])
    assert (len(world.parked()), world.reported()) == (1, [(True, "", 1)])
    assert world.order_pass().retryable_error is None
    assert (world.parked(), world.reported()) == ([], [(True, "", 1)] * 2)


def test_messages_of_one_policy_ask_for_its_period_and_for_the_tres_once(
    world: PeriodicWorld, waldur: SimulatedWaldur
) -> None:
    other = waldur.seed.resource_uuids[1]
    waldur.site.change("resources", other, backend_id="a_two")
    accounts = world.cluster.state.accounts
    world.cluster.state = replace(
        world.cluster.state,
        accounts={**accounts, "a_two": Account("a_two", "root")},
        used={name: {"cpu": 1} for name in (ACCOUNT, "a_two")},
    )
    paused = world.with_policy(paused=True)
    world.received(world.message(ASKED), paused)
    world.received(world.message(ASKED, resource_uuid=other, backend_id="a_two"), paused)
    report = world.order_pass()
    assert world.reported() == [(True, "", 3)] * 2
    assert report.effort.requests[f"GET /api/{policies.PATH}{{uuid}}/"] == 1, report.effort.requests
    # The TRES once; of each account its settings twice, and what is used of its limits.
    assert report.effort.commands["read"] == 1 + 2 * 3


def test_a_message_that_fails_keeps_none_behind_it_waiting(
    world: PeriodicWorld, waldur: SimulatedWaldur, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = waldur.site.add_policy(period=2)
    paused = world.with_policy(paused=True)
    for policy in (world.policy, other):
        world.received(world.message({"fairshare": 3}, policy_uuid=policy), paused)
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
    world.received(world.message({"fairshare": 3}), world.with_policy(paused=True))
    report = looked_at.apply()
    assert (world.account_settings.share, world.reported(), len(world.parked())) == (None, [], 1)
    assert (report.problems, isinstance(report.retryable_error, PassUnfinished)) == ([], True)
    world.order_pass()
    assert (world.account_settings.share, world.reported(), world.parked()) == (3, [(True, "", 1)], [])


def test_what_was_looked_at_of_a_message_that_waits_is_done(world: PeriodicWorld) -> None:
    world.received(world.message({"fairshare": 3}), world.with_policy(paused=True))
    looked_at = preview(world.site, Mode.ORDER_PROCESS)
    assert len(looked_at.allowed.actions) == 1
    assert (world.account_settings.share, world.reported(), len(world.parked())) == (None, [], 1)
    assert looked_at.apply().problems == []
    assert (world.account_settings.share, world.reported(), world.parked()) == (3, [(True, "", 1)], [])


def test_where_nothing_is_lowered_limits_are_raised(world: PeriodicWorld) -> None:
    message = world.message({"fairshare": 3, "grp_tres_mins": {"cpu": 2000}})
    world.received(message, world.with_policy(mode=PolicyMode.UPSERT_ONLY))
    assert world.reported() == [(True, "", 2)]


def test_the_command_lists_and_approves_it(
    world: PeriodicWorld, waldur: SimulatedWaldur, tmp_path: Path, command: Command
) -> None:
    world.received(world.message(LOWER))
    (plan,) = world.waiting()
    file = str(configuration(waldur, tmp_path, backend=PERIODIC))
    assert f"plan {plan[:12]}  Test SLURM, periodic_limits" in command("approve", "-c", file).out
    assert command("approve", plan, "-c", file).code == 0
    world.order_pass()
    assert world.reported()[1] == (True, "", 3)
