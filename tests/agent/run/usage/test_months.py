# SPDX-License-Identifier: MIT
"""Months: where they end, which Waldur still takes, and what becomes of those that it does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent.core.periods import Month, last_months
from agent.run.preview import previews
from agent.run.usage import planning as report_plan
from agent.run.usage.planning import MonthEnded
from agent.state import forget, report_state
from agent.state.store import Store
from tests.agent.run.usage.conftest import AGES, MODERN, WorldFactory
from tests.agent.run.usage.world import HOUR, LAST, MEM, THIS, World, scenario

DECEMBER = Month(2026, 12)
CLOSED = (
    "Waldur takes no usage of 2026-10 from this token any more (date: Backfilling past billing periods is for limit "
    "components only.); `historical-usage` with a staff token does it"
)
NO_DATES = (
    "Waldur takes no dates from this token (date: Only the provider's customer level may give a date.), so that only "
    "usage of the present month is submitted: give the token's user a role at the provider, as its owner or "
    "service manager"
)


def cpu(figures: dict[str, dict[str, str]]) -> dict[str, str]:
    return {account: of["cpu"] for account, of in figures.items() if "cpu" in of}


def pulls_past(world: World, border: datetime) -> None:
    """While the cluster is asked, the clock goes over a border."""

    def ask(call: str) -> bool:
        if call == "usage":
            world.now = max(world.now, border)
        return False

    world.backend.outage = ask


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Chicago"])
def test_a_month_that_ends_while_it_is_read_is_dropped(make_world: WorldFactory, zone: str) -> None:
    world = make_world(zone=zone, user="staff")
    border = DECEMBER.start(ZoneInfo(zone)).astimezone(UTC)
    world.now = border - timedelta(seconds=2)
    world.busy()
    pulls_past(world, border + timedelta(seconds=1))
    report = world.report()
    assert isinstance(report.error, MonthEnded)
    assert report.retryable_error is report.error
    assert (world.sent(), world.in_waldur(), world.in_waldur(DECEMBER)) == ([], {}, {})
    assert report_state.load(world.state_dir, world.site.offering.uuid) == report_state.ReportState()
    world.later(hours=16)
    assert world.report().error is None
    assert cpu(world.in_waldur()) == {f"a_{n}": f"{n}.00" for n in range(1, 5)}
    assert world.in_waldur(DECEMBER) == {}


@pytest.mark.parametrize(
    ("site", "server"),
    [
        ("UTC", "America/Chicago"),
        ("UTC", "Asia/Tokyo"),
        ("Asia/Tokyo", "America/Chicago"),
        ("Pacific/Auckland", "Europe/Tallinn"),
        ("America/Chicago", "Pacific/Auckland"),
    ],
)
def test_figures_stand_in_their_month_whatever_the_zone_of_waldur(
    make_world: WorldFactory, site: str, server: str
) -> None:
    world = make_world(zone=site, user="staff")
    world.waldur.store.clock.zone = ZoneInfo(server)
    world.busy()
    world.busy(LAST)
    for day, hour in ((1, 0), (1, 6), (1, 13), (15, 0), (30, 9)):
        world.now = datetime(2026, 11, day, hour, tzinfo=UTC)
        world.report()
    expected = {f"a_{n}": f"{n}.00" for n in range(1, 5)}
    assert (cpu(world.in_waldur()), cpu(world.in_waldur(LAST))) == (expected, expected)
    assert {row.billing_period for row in world.waldur.store.usages} == {THIS.first_day, LAST.first_day}


@pytest.mark.parametrize(
    ("site", "server"),
    [("UTC", "UTC"), ("Asia/Tokyo", "Asia/Tokyo"), ("Asia/Tokyo", "UTC"), ("America/Chicago", "UTC")],
)  # fmt: skip
def test_around_the_border_nothing_lands_in_the_wrong_month(
    make_world: WorldFactory, site: str, server: str
) -> None:
    world = make_world(zone=site, user="staff")
    world.waldur.store.clock.zone = ZoneInfo(server)
    border = DECEMBER.start(ZoneInfo(site)).astimezone(UTC)
    world.ran("a_1", "ann", 3)
    for minutes in (-600, -1):
        world.now = border + timedelta(minutes=minutes)
        world.report()
    world.ran("a_1", "ann", 1, month=DECEMBER)
    for minutes in (1, 30, 8 * 60, 22 * 60):
        world.now = border + timedelta(minutes=minutes)
        assert not world.report().failed
        assert world.in_waldur()["a_1"]["cpu"] == "3.00"
        assert world.in_waldur(DECEMBER).get("a_1", {"cpu": "1.00"})["cpu"] == "1.00"
    assert world.in_waldur(DECEMBER)["a_1"]["cpu"] == "1.00"
    assert {row.billing_period for row in world.waldur.store.usages} == {THIS.first_day, DECEMBER.first_day}


@pytest.mark.parametrize("age", MODERN)
def test_a_closed_month_is_said_once_and_not_tried_in_every_pass(make_world: WorldFactory, age: str) -> None:
    world = make_world(age)
    world.busy()
    world.busy(LAST)
    world.ran("a_2", "u2", 1, month=LAST, mem=1024 * HOUR * 7)
    first = world.report()
    assert first.notes == [CLOSED]
    assert not first.failed
    assert cpu(world.in_waldur(LAST)) == {}
    assert cpu(world.in_waldur()) == {f"a_{n}": f"{n}.00" for n in range(1, 5)}
    # Components with limits are taken, in the same pass and later.
    assert world.in_waldur(LAST) == {"a_2": {"mem": "7.00"}}
    assert world.shares("a_2", "mem", LAST) == {"u2": "7.00"}
    for _ in range(3):
        world.later(hours=5)
        world.restart()
        world.waldur.requests.reset()
        again = world.report()
        assert (again.notes, again.failed, world.sent()) == ([], False, [])
    world.ran("a_2", "u2", 1, month=LAST, mem=1024 * HOUR)
    world.report()
    assert world.in_waldur(LAST) == {"a_2": {"mem": "8.00"}}


def test_a_closed_month_is_tried_again_after_a_day_and_not_logged_again(world: World) -> None:
    world.busy()
    world.busy(LAST)
    world.report()
    refused = len(refusals(world))
    assert refused == 1, "one resource goes first"
    world.later(hours=25)
    assert world.report().notes == []
    assert len(refusals(world)) == refused + 1


def refusals(world: World) -> list[str]:
    return [e.path for e in world.waldur.requests.entries("POST *") if e.status == 400]


def test_who_has_got_the_right_since_reports_the_rest(make_world: WorldFactory) -> None:
    world = make_world()
    world.busy()
    world.busy(LAST)
    world.report()
    agent = next(user for user in world.waldur.store.users if user.username == "agent")
    agent.is_staff = True
    world.later(hours=25)
    world.report()
    assert cpu(world.in_waldur(LAST)) == {f"a_{n}": f"{n}.00" for n in range(1, 5)}
    world.quiet()


def test_the_plan_shows_what_stays_closed(world: World) -> None:
    world.busy()
    world.busy(LAST)
    world.report()
    preview = previews.preview(world.site, previews.Mode.REPORT)
    assert preview.notes == ()
    world.now = datetime.now(UTC)
    month = Month.of(world.now)
    world.ran("a_1", "ann", 1, month=month)
    world.ran("a_1", "ann", 1, month=month.previous)
    world.report()
    (note,) = previews.preview(world.site, previews.Mode.REPORT).notes
    assert note.startswith(
        f"{month.previous}: Waldur does not take all of it from this token any more, and is not"
    )


def test_shares_of_a_closed_month_are_no_failure_either(make_world: WorldFactory) -> None:
    """Totals agree, a user's share was never reported."""
    world = make_world(user="staff")
    world.busy()
    world.busy(LAST)
    world.report()
    shares = world.waldur.store.user_usages
    for share in [
        s
        for s in shares
        if world.waldur.store.usages[s.component_usage_uuid].billing_period == LAST.first_day
    ]:
        share.usage /= 2
    world.demote("staff")
    report = world.report()
    assert (report.notes, report.failed) == ([CLOSED], False)
    assert len(refusals(world)) == 1


def test_components_with_limits_alone_are_reported_for_closed_months(make_world: WorldFactory) -> None:
    limits = {"cpu": {"measured_unit": "h", "accounting_type": "limit", "label": "CPU", "unit_factor": 60}}
    cpu_by_limit = type(MEM)(type="cpu", name="CPU", measured_unit="h")
    world = make_world(seeded=scenario(components=(cpu_by_limit,)), components=limits)
    world.busy()
    world.busy(LAST)
    report = world.report()
    assert report.notes == []
    assert cpu(world.in_waldur(LAST)) == {f"a_{n}": f"{n}.00" for n in range(1, 5)}
    assert refusals(world) == []


def test_past_months_are_never_reported_to_a_server_of_2024(make_world: WorldFactory) -> None:
    world = make_world("2024")
    world.busy()
    world.busy(LAST)
    for _ in range(2):
        report = world.report()
        assert report.notes == [
            "this Waldur files all usage under its present month: no past months are submitted"
        ]
        world.restart()
    assert {q.month for q in world.backend.queries} == {THIS}
    assert cpu(world.in_waldur()) == {f"a_{n}": f"{n}.00" for n in range(1, 5)}
    assert world.in_waldur(LAST) == {}
    assert all("date" not in str(entry.body) for entry in world.waldur.requests.entries("POST *"))


@pytest.mark.parametrize(
    ("zone", "now", "reported"),
    [
        ("UTC", "2026-11-30T23:50:00Z", THIS),
        ("UTC", "2026-11-30T23:56:00Z", None),
        ("UTC", "2026-12-01T00:04:00Z", None),
        ("UTC", "2026-12-01T00:06:00Z", DECEMBER),
        # December has begun in Tokyo, and Waldur would file it under November.
        ("Asia/Tokyo", "2026-11-30T18:00:00Z", None),
        ("Asia/Tokyo", "2026-12-01T00:06:00Z", DECEMBER),
        # November goes on in Chicago, and Waldur would file it under December.
        ("America/Chicago", "2026-12-01T03:00:00Z", None),
        ("America/Chicago", "2026-12-01T06:06:00Z", DECEMBER),
    ],
)
def test_a_server_without_dates_gets_reports_while_the_month_is_certain(
    make_world: WorldFactory, zone: str, now: str, reported: Month | None
) -> None:
    world = make_world("2024", zone=zone)
    world.now = datetime.fromisoformat(now)
    world.busy(THIS)
    world.busy(DECEMBER)
    report = world.report()
    assert report.error is None
    months = {row.billing_period for row in world.waldur.store.usages}
    assert months == ({reported.first_day} if reported else set())


@pytest.mark.parametrize("age", AGES)
def test_a_month_that_ends_while_usage_is_reported(make_world: WorldFactory, age: str) -> None:
    """With a date nothing can go wrong; without, the rest waits for the next report."""
    world = make_world(age, user="staff")
    world.now = datetime(2026, 11, 30, 23, 54, tzinfo=UTC)
    world.busy()
    plan = world.plan()
    world.now = datetime(2026, 12, 1, 0, 1, tzinfo=UTC)
    report = world.deliver(plan)
    months = {row.billing_period for row in world.waldur.store.usages}
    if age == "2024":
        assert months == set()
        assert report.counted() == {"retry": 4}
    else:
        assert months == {THIS.first_day}
        assert report.counted() == {"done": 4}


@pytest.mark.parametrize("age", MODERN)
def test_a_token_of_the_offering_alone_reports_the_present_month(make_world: WorldFactory, age: str) -> None:
    """Waldur takes a date only from who has rights at the provider's customer."""
    world = make_world(age, user="agent-offering-manager")
    world.busy()
    world.busy(LAST)
    first = world.report()
    assert first.notes == [NO_DATES]
    assert not first.failed, first.as_json()
    assert cpu(world.in_waldur()) == {f"a_{n}": f"{n}.00" for n in range(1, 5)}
    assert world.shares("a_3") == {"u3": "3.00"}
    assert world.in_waldur(LAST) == {}
    assert len(refusals(world)) == 1
    world.restart()
    world.ran("a_1", "u1", 1)
    world.waldur.requests.reset()
    again = world.report()
    assert (again.notes, refusals(world)) == ([], [])
    assert world.in_waldur()["a_1"]["cpu"] == "2.00"
    assert {q.month for q in world.backend.queries[2:]} == {THIS}
    world.later(hours=25)
    world.ran("a_1", "u1", 1)
    assert world.report().notes == []
    assert len(refusals(world)) == 1, "tried once a day"


def test_a_token_of_the_offering_alone_with_nothing_to_say_of_the_past(make_world: WorldFactory) -> None:
    world = make_world(user="agent-offering-manager", periods=1)
    world.busy()
    report = world.report()
    assert (report.notes, report.failed) == ([NO_DATES], False)
    assert cpu(world.in_waldur()) == {f"a_{n}": f"{n}.00" for n in range(1, 5)}
    assert len(refusals(world)) == 1
    world.quiet()


@pytest.mark.parametrize(
    ("zone", "now"),
    [
        ("UTC", "2026-11-30T23:57:00Z"),
        ("America/Chicago", "2026-12-01T06:03:00Z"),
        ("Asia/Tokyo", "2026-11-30T15:10:00Z"),
    ],
)
def test_such_a_token_near_the_border_reports_nothing(make_world: WorldFactory, zone: str, now: str) -> None:
    """Waldur's own month is that of its zone, which may be the site's or UTC."""
    world = make_world(user="agent-offering-manager", periods=1, zone=zone)
    world.waldur.store.clock.zone = ZoneInfo(zone)
    world.now = datetime.fromisoformat(now)
    world.busy()
    world.busy(DECEMBER)
    world.report()
    assert list(world.waldur.store.usages) == []


@pytest.mark.parametrize("how", ["forgotten", "the file is gone"])
def test_a_memory_that_is_lost_costs_one_more_question(world: World, how: str) -> None:
    world.busy()
    world.busy(LAST)
    world.report()
    if how == "forgotten":
        assert forget.forget(world.state_dir, "refused-months", world.site.offering.uuid) == 1
    else:
        Store(world.state_dir).path.unlink()
    report: Any = world.report()
    assert (report.error, report.failed) == (None, False)
    assert len(refusals(world)) == 2
    assert world.report().notes == []


def test_where_the_cluster_is_slow_the_present_month_is_read_and_the_others_in_turn(
    make_world: WorldFactory,
) -> None:
    world = make_world(user="staff", periods=4)
    months = last_months(THIS, 4)
    for month in months:
        world.busy(month)
    seen: list[set[str]] = []
    for _ in range(4):
        planned = report_plan.plan(
            report_plan.observe(world.site, lambda: world.now, iter([False, True]).__next__)
        )
        seen.append({str(month.month) for month in planned.months})
        assert planned.has_gaps
        assert "the cluster answers slowly" in planned.notes[-1]
        world.later(hours=0.5)
    assert all(len(some) == 2 and str(THIS) in some for some in seen)
    assert set().union(*seen) == {str(month) for month in months}
