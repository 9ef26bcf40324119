# SPDX-License-Identifier: MIT
"""Less usage than was reported to Waldur: held with the jobs that explain it, approved, or allowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.config.model import Mode
from agent.run.results import PassReport, Result
from agent.state import pauses
from agent.state.held_plans import HeldPlans
from agent.state.hints import SKIPPED
from simulator.server.faults import Fault
from tests.agent.run.usage.conftest import WorldFactory
from tests.agent.run.usage.world import LAST, World
from tests.agent.state.obstacles import block, unblock

pytestmark = pytest.mark.safety


@pytest.fixture
def reported(world: World) -> World:
    """All accounts have been reported, with a job of a_1 that still ran."""
    world.busy()
    world.ran("a_1", "ann", 5, job="77", live=True)
    assert not world.report().failed
    return world


def held(world: World) -> HeldPlans:
    return HeldPlans(world.state_dir, world.site.offering, Mode.REPORT)


def approve(world: World) -> None:
    (waiting,) = held(world).waiting()
    held(world).approvals.approve(waiting.id, expires=world.now.replace(year=2100), by="tester")


def test_a_decrease_is_held_and_the_rest_is_reported(reported: World) -> None:
    reported.forget("77")
    reported.ran("a_2", "u2", 1)
    found = reported.report()
    assert reported.in_waldur()["a_1"]["cpu"] == "6.00"
    assert reported.shares("a_1") == {"u1": "1.00", "ann": "5.00"}
    assert reported.in_waldur()["a_2"]["cpu"] == "3.00"
    assert {r.account: r.result for r in found.resources} == {"a_1": Result.WAITING, "a_2": Result.DONE}
    assert not found.failed
    (plan,) = found.held
    assert plan.scope == "account a_1, 2026-11"
    assert plan.reason.startswith(
        "usage of a_1 in 2026-11 would get less: cpu from 6.00 to 1.00, cpu of ann from 5.00 to 0.00; "
    )


def test_a_site_may_have_the_other_components_reported(reported: World) -> None:
    reported.forget("77")
    reported.ran("a_1", "u1", 0, mem=7 * 61440 * 60)
    reported.site = replace(reported.site, offering=replace(reported.site.offering, omits_lower_usage=True))
    found = reported.report()
    assert not found.held and not found.failed
    assert reported.in_waldur()["a_1"] == {"cpu": "6.00", "mem": "7.00"}
    assert (
        "usage of a_1 in 2026-11 would get less: cpu from 6.00 to 1.00; omitted, as "
        "omit_anomalous_usage_components says" in found.notes
    )


def test_the_result_is_short_and_approve_shows_the_rest(reported: World) -> None:
    reported.forget("77")
    found = reported.report()
    (result,) = found.resources
    (plan,) = found.held
    assert result.message == (
        f"held as plan {plan.short_id}: usage of a_1 in 2026-11 would get less: cpu from 6.00 to 1.00, cpu of ann from "
        f"5.00 to 0.00; `approve` shows why, `approve {plan.short_id}` releases it"
    )
    (waiting,) = held(reported).waiting()
    assert waiting.reason.endswith("`count a_1 2026-11` lists what counts now")


def test_where_it_cannot_be_recorded_no_person_is_sent_to_approve(
    reported: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk: it is held all the same, and waits for approval once the disk has room."""
    reported.forget("77")
    block(reported.state_dir)
    (result,) = reported.report().resources
    assert reported.in_waldur()["a_1"]["cpu"] == "6.00"
    assert f"it cannot be written to {reported.state_dir}, so that it cannot be approved" in result.message
    assert "releases it" not in result.message
    (warned,) = [r.getMessage() for r in caplog.records if "is held" in r.getMessage()]
    assert "it cannot be approved" in warned and "until `approve" not in warned
    unblock(reported.state_dir)
    (result,) = reported.report().resources
    assert "releases it" in result.message
    approve(reported)
    assert reported.report().held == ()


EXPLAINED: dict[str, tuple[Callable[[World], None], str]] = {
    "gone": (lambda world: world.forget("77"), "job 77 had counted 18000 s and is gone"),
    "cut": (
        lambda world: world.alter("77", seconds=3600, counts={"cpu": 3600}, live=False),
        "job 77 of ann had counted 18000 s, now 3600 s (COMPLETED)",
    ),
    "moved": (
        lambda world: world.alter("77", account="a_2"),
        "job 77 of ann had counted 18000 s and is in account a_2 now",
    ),
}


@pytest.mark.parametrize(("change", "words"), EXPLAINED.values(), ids=EXPLAINED)
def test_the_jobs_that_explain_it_are_named(
    reported: World, change: Callable[[World], None], words: str
) -> None:
    change(reported)
    (plan,) = reported.report().held
    assert f"; {words}; `count a_1 2026-11` lists what counts now" in plan.reason


def test_of_a_requeued_job_the_run_is_named_that_counts_less(reported: World) -> None:
    """However much its other runs count."""
    reported.alter("77", submitted="1795000000")
    reported.ran("a_1", "ann", 9, job="77")
    reported.report()
    (lives,) = (job for job in reported.backend.jobs if job.id == "77" and job.live)
    reported.backend.jobs.remove(lives)
    reported.backend.jobs.insert(0, replace(lives, seconds=60, counts={"cpu": 60}))
    (plan,) = reported.report().held
    assert "; job 77 of ann had counted 18000 s, now 60 s (RUNNING); " in plan.reason


def test_what_cannot_be_explained_is_said_with_the_command_to_look(reported: World) -> None:
    """A job that had ended before the last report is not remembered."""
    reported.backend.jobs = [job for job in reported.backend.jobs if job.account != "a_3"]
    (plan,) = reported.report().held
    assert plan.reason.endswith(
        "; no job is known that explains it; `count a_3 2026-11` lists what counts now"
    )


def test_a_cluster_that_cannot_report_jobs_holds_all_the_same(reported: World) -> None:
    reported.forget("77")
    reported.backend.outage = lambda call: call == "job_uses"
    (plan,) = reported.report().held
    assert "no job is known that explains it" in plan.reason


def test_many_jobs_are_counted(world: World) -> None:
    for number in range(9):
        world.ran("a_1", "ann", 1, job=str(number), live=True)
    world.ran("a_2", "bob", 1)
    world.report()
    world.backend.jobs = [job for job in world.backend.jobs if job.account != "a_1"]
    (plan,) = world.report().held
    assert plan.reason.count(" s and is gone") == 5
    assert " and 4 more jobs" in plan.reason


def test_users_alone_may_get_less(world: World) -> None:
    world.ran("a_1", "ann", 5, job="77", live=True)
    world.report()
    world.alter("77", user="bob")
    (plan,) = world.report().held
    assert plan.reason.startswith("usage of a_1 in 2026-11 would get less: cpu of ann from 5.00 to 0.00; ")
    assert world.shares("a_1") == {"ann": "5.00"}


def test_a_hold_stays_explained_and_is_logged_once(reported: World, caplog: pytest.LogCaptureFixture) -> None:
    reported.forget("77")
    plans = []
    for _ in range(3):
        reported.ran("a_1", "u1", 0.5)
        plans += reported.report().held
    assert len({plan.id for plan in plans}) == 1
    assert all("job 77 had counted 18000 s and is gone" in plan.reason for plan in plans)
    assert "cpu from 6.00 to 2.50" in plans[-1].reason
    warned = [r.getMessage() for r in caplog.records if "is held" in r.getMessage()]
    assert len(warned) == 1
    (waiting,) = held(reported).waiting()
    assert waiting.reason == plans[-1].reason


def test_approved_it_is_reported_with_the_figures_of_that_time(reported: World) -> None:
    reported.forget("77")
    reported.report()
    approve(reported)
    reported.ran("a_1", "u1", 2)
    found = reported.report()
    assert reported.in_waldur()["a_1"]["cpu"] == "3.00"
    assert reported.shares("a_1") == {"u1": "3.00", "ann": "0.00"}
    assert (found.held, found.counted()) == ((), {"done": 1})
    reported.quiet()
    assert held(reported).waiting() == []
    assert held(reported).approvals.open() == []


def test_an_approval_is_for_one_decrease(reported: World) -> None:
    reported.forget("77")
    reported.report()
    approve(reported)
    reported.report()
    reported.backend.jobs = [job for job in reported.backend.jobs if job.account != "a_2"]
    (plan,) = reported.report().held
    assert plan.scope == "account a_2, 2026-11"
    assert reported.in_waldur()["a_2"]["cpu"] == "2.00"


def test_an_approval_is_no_approval_of_what_falls_further(reported: World) -> None:
    reported.forget("77")
    reported.report()
    approve(reported)
    reported.backend.jobs = [job for job in reported.backend.jobs if job.account != "a_1"]
    (plan,) = reported.report().held
    assert "cpu from 6.00 to 0.00" in plan.reason
    assert reported.in_waldur()["a_1"]["cpu"] == "6.00"
    assert held(reported).approvals.open() == []
    approve(reported)
    assert reported.report().held == ()
    assert reported.in_waldur()["a_1"]["cpu"] == "0.00"


def test_after_an_approved_decrease_another_one_waits(reported: World) -> None:
    """Also while the approval lives on: the same component of another user gets less in the next pass."""
    reported.ran("a_1", "bob", 50, job="88", live=True)
    reported.report()
    reported.forget("77")
    reported.report()
    approve(reported)
    reported.report()
    reported.forget("88")
    (plan,) = reported.report().held
    assert "cpu of bob from 50.00 to 0.00" in plan.reason
    assert reported.shares("a_1")["bob"] == "50.00"


def test_the_rest_of_an_approved_decrease_needs_no_second_approval(reported: World) -> None:
    """An outage came between its total and its shares."""
    reported.forget("77")
    reported.report()
    approve(reported)
    reported.site = reported.connected(attempts=1)
    reported.waldur.inject(Fault(path="set_user_usages", status=503, times=None))
    assert reported.report().retryable_error is not None
    assert (reported.in_waldur()["a_1"]["cpu"], reported.shares("a_1")["ann"]) == ("1.00", "5.00")
    reported.waldur.faults.clear()
    assert reported.report().held == ()
    assert reported.shares("a_1")["ann"] == "0.00"
    reported.quiet()
    assert held(reported).approvals.open() == []


def test_what_counts_again_is_held_no_more(reported: World) -> None:
    reported.forget("77")
    reported.report()
    reported.ran("a_1", "ann", 6)
    assert reported.report().held == ()
    assert held(reported).waiting() == []
    assert reported.in_waldur()["a_1"]["cpu"] == "7.00"


def test_a_site_may_allow_decreases(reported: World) -> None:
    reported.forget("77")
    reported.policy(usage_decreases="allow")
    found = reported.report()
    assert (found.held, reported.in_waldur()["a_1"]["cpu"]) == ((), "1.00")
    reported.quiet()


@pytest.mark.parametrize("gap", ["no job in the month", "the month has ended", "an outage"])
def test_a_month_of_which_nothing_is_known_forgets_no_hold(reported: World, gap: str) -> None:
    """And no approval either: it was given for what is still to come."""
    reported.forget("77")
    reported.report()
    approve(reported)
    jobs, reported.backend.jobs = reported.backend.jobs, []
    if gap == "an outage":
        reported.backend.outage = lambda call: call == "usage"
    if gap == "the month has ended":
        reported.now = reported.now.replace(month=12, day=1, hour=0, minute=1)
    reported.report()
    assert len(held(reported).waiting()) == 1
    assert len(held(reported).approvals.open()) == 1
    reported.backend.jobs = jobs
    reported.backend.outage = lambda _: False
    if gap != "the month has ended":
        reported.report()
        assert reported.in_waldur()["a_1"]["cpu"] == "1.00"


def test_a_decrease_of_the_month_before_waits_next_to_the_present_one(make_world: WorldFactory) -> None:
    world = make_world(user="staff")
    world.busy()
    world.busy(LAST)
    world.report()
    world.backend.jobs = [
        replace(job, counts={"cpu": 0}) if job.month == LAST and job.account == "a_2" else job
        for job in world.backend.jobs
    ]
    world.ran("a_2", "u2", 1)
    found = world.report()
    assert [plan.scope for plan in found.held] == ["account a_2, 2026-10"]
    assert (world.in_waldur(LAST)["a_2"]["cpu"], world.in_waldur()["a_2"]["cpu"]) == ("2.00", "3.00")


def test_decreases_that_were_reported_are_in_the_journal_with_their_reason(reported: World) -> None:
    reported.policy(usage_decreases="allow")
    reported.forget("77")
    reported.report()
    text = (reported.state_dir / "journal" / "journal.jsonl").read_text()
    lines = [json.loads(line)["action"] for line in text.splitlines()]
    kept = [line for line in lines if line["action"] == "ReportUsage"]
    assert [line["account"] for line in kept] == ["a_1"]
    assert "job 77 had counted 18000 s and is gone" in kept[0]["text"]


def observing(world: World) -> PassReport:
    world.policy(mode="observe")
    return world.report()


def paused(world: World) -> PassReport:
    pauses.pause(world.state_dir, world.site.offering, by="tester")
    return world.report()


@pytest.mark.parametrize("stop", [observing, paused])
def test_who_only_looks_reports_nothing(
    world: World, stop: Callable[[World], PassReport], caplog: pytest.LogCaptureFixture
) -> None:
    world.busy()
    world.waldur.requests.reset()
    found = stop(world)
    assert (world.sent(), found.failed) == ([], False)
    assert {r.result for r in found.resources} == {Result.WAITING}
    left = SKIPPED.get(world.state_dir, world.site.offering.uuid, Mode.REPORT)
    assert left is not None and left.count == 8
    warned = len([r for r in caplog.records if "are skipped" in r.getMessage()])
    # That figures grow is no news; that another account is skipped is.
    world.ran("a_1", "u1", 1)
    world.report()
    assert len([r for r in caplog.records if "are skipped" in r.getMessage()]) == warned == 1
    left = SKIPPED.get(world.state_dir, world.site.offering.uuid, Mode.REPORT)
    assert left is not None and any("cpu 2.00" in line for line in left.lines)


def test_a_pause_that_ends_loses_nothing(world: World) -> None:
    world.busy()
    paused(world)
    pauses.resume(world.state_dir, world.site.offering)
    world.report()
    assert {account: figures["cpu"] for account, figures in world.in_waldur().items()} == {
        f"a_{n}": f"{n}.00" for n in range(1, 5)
    }
