# SPDX-License-Identifier: MIT
"""Figures of usage: what is unknown, which months count against which limit, and who comes first."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from agent.core.model import AccountingType, Component, Resource, ResourceState, WaldurComponent
from agent.core.periods import Month, last_months
from agent.core.usage import AccountUsage, Usage, UsageQuery
from agent.plan.usage import figures as usage_figures
from agent.plan.usage.figures import (
    FigureFacts,
    Measure,
    Sheet,
    Use,
    period_bounds,
    period_months,
    used_up,
)
from tests.agent.cli.usage.sheets import CPU, account, figures, many

OCTOBER, NOVEMBER = Month(2026, 10), Month(2026, 11)
CORES = Component("cpu", "core-hours", AccountingType.LIMIT, "CPU", unit_factor=60)


def usage(month: Month, records: int = 1, **cpu_hours: dict[str, int]) -> Usage:
    """Hours of one core, by account and user."""
    accounts = {
        name: AccountUsage(
            {"cpu": 3600 * sum(users.values())}, {u: {"cpu": 3600 * n} for u, n in users.items()}
        )
        for name, users in cpu_hours.items()
    }
    return Usage(UsageQuery(month), accounts, records)


def resource(account: str, name: str = "One", **limits: object) -> Resource:
    return Resource(name.ljust(32, "0"), name, "slug", ResourceState.OK, account, limits=limits)


def made(*usages: Usage, known: str = "a b", resources: list[Resource] | None, **values: object) -> Sheet:
    readings = FigureFacts(usages, (CORES,), frozenset(known.split()), resources, **values)  # type: ignore[arg-type]
    return usage_figures.sheet(readings, (CPU,))


def test_who_had_no_job_has_zero_and_who_is_not_there_is_unknown() -> None:
    sheet = made(
        usage(OCTOBER, a={"ann": 3}), usage(NOVEMBER, gone={"bob": 1}),
        resources=[resource("A"), resource("b"), resource("gone"), resource("lost"), resource("")],
    )  # fmt: skip
    found = {a.account: [a.figures.get(("cpu", m)) for m in sheet.months] for a in sheet.accounts}
    assert found == {
        "A": [Decimal("3.00"), Decimal("0.00")],
        "b": [Decimal("0.00"), Decimal("0.00")],
        "gone": [None, Decimal("1.00")],
        "lost": [None, None],
    }
    assert sheet.total(CPU, OCTOBER) == Decimal("3.00")
    assert sheet.accounts[0].users == {
        "ann": {("cpu", OCTOBER): Decimal("3.00"), ("cpu", NOVEMBER): Decimal("0.00")}
    }


def test_an_answer_without_any_job_says_nothing_of_anybody() -> None:
    sheet = made(usage(OCTOBER, a={"ann": 3}), usage(NOVEMBER, records=0), resources=[resource("a")])
    assert sheet.accounts[0].figures == {("cpu", OCTOBER): Decimal("3.00")}
    assert sheet.total(CPU, NOVEMBER) is None


def test_accounts_that_no_resource_names_stand_aside_and_without_waldur_they_are_all() -> None:
    read = [usage(NOVEMBER, a={"ann": 3}, b={"bob": 1})]
    with_waldur, without = made(*read, resources=[resource("a")]), made(*read, resources=None)
    assert [a.account for a in with_waldur.accounts] == ["a"]
    assert [a.account for a in with_waldur.others] == ["b"]
    assert [a.account for a in without.accounts] == ["a", "b"]
    assert without.others == ()


def test_an_account_of_several_resources_has_no_limit() -> None:
    sheet = made(
        usage(NOVEMBER, a={"ann": 3}), resources=[resource("a", "Two", cpu=9), resource("a", "One", cpu=5)]
    )
    assert [(a.title, a.limits) for a in sheet.accounts] == [("One / Two", {})]


@pytest.mark.parametrize(
    ("limit", "shown"), [("7.5", "7.5"), (0, "0"), (None, None), ("much", None), (-1, None)]
)
def test_limits_are_numbers_or_not_there(limit: object, shown: str | None) -> None:
    (only,) = made(usage(NOVEMBER, a={"ann": 3}), resources=[resource("a", cpu=limit)]).accounts
    assert only.limits.get("cpu") == (None if shown is None else Decimal(shown))


@pytest.mark.parametrize(
    ("period", "present", "first", "count"),
    [
        ("month", NOVEMBER, NOVEMBER, 1),
        ("quarterly", NOVEMBER, OCTOBER, 2),
        ("quarterly", Month(2026, 1), Month(2026, 1), 1),
        ("annual", NOVEMBER, Month(2026, 1), 11),
    ],
)
def test_a_limit_counts_from_the_beginning_of_its_period(
    period: str, present: Month, first: Month, count: int
) -> None:
    months = period_months(period, present)
    assert (months[0], months[-1], len(months)) == (first, present, count)


def test_a_limit_in_total_has_no_beginning() -> None:
    assert period_months("total", NOVEMBER) == ()


@pytest.mark.parametrize(
    ("period", "shown", "share"),
    [
        ("month", 1, 0.5),
        ("quarterly", 2, 0.75),
        ("quarterly", 1, None),
        ("annual", 2, None),
        ("total", 9, None),
    ],
)
def test_use_of_a_limit_is_known_where_its_whole_period_is_seen(
    period: str, shown: int, share: float | None
) -> None:
    measure = Measure("cpu", "CPU", "core-hours", period)
    amounts = figures({"cpu": {OCTOBER: "5.00", NOVEMBER: "10.00"}})
    one = account("a", figures=amounts, limits={"cpu": Decimal(20)})
    assert Sheet((measure,), last_months(NOVEMBER, shown), (one,)).use(one, measure).share == share


def test_a_limit_of_nothing_is_passed_by_anything() -> None:
    one = account("a", figures=figures({"cpu": {NOVEMBER: "0.01"}}), limits={"cpu": Decimal(0)})
    use = Sheet((CPU,), (NOVEMBER,), (one,)).use(one, CPU)
    assert (use.share, use.is_over) == (None, True)


def test_all_together_are_measured_where_each_has_a_limit() -> None:
    limited = account("a", figures=figures({"cpu": {NOVEMBER: "10.00"}}), limits={"cpu": Decimal(20)})
    free = account("b", figures=figures({"cpu": {NOVEMBER: "10.00"}}))
    assert Sheet((CPU,), (NOVEMBER,), (limited, limited)).use_of_all(CPU).share == 0.5
    assert Sheet((CPU,), (NOVEMBER,), (limited, free)).use_of_all(CPU).share is None


def test_who_used_most_comes_first_and_the_unknown_last() -> None:
    amounts = {
        "small": {NOVEMBER: "1.00"},
        "old": {OCTOBER: "99.00", NOVEMBER: "0.00"},
        "big": {NOVEMBER: "7.00"},
    }
    accounts = [account(name, figures=figures({"cpu": months})) for name, months in amounts.items()]
    sheet = Sheet((CPU,), (OCTOBER, NOVEMBER), (account("lost"), *accounts))
    assert [a.account for a in sheet.ranked(CPU)] == ["big", "small", "old", "lost"]


def test_users_are_summed_over_accounts_and_months() -> None:
    months = figures({"cpu": {OCTOBER: "2.00", NOVEMBER: "1.00"}})
    accounts = (
        account("a", users={"ann": months, "bob": months}),
        account("b", users={"ann": months, "eve": {}}),
    )
    assert Sheet((CPU,), (OCTOBER, NOVEMBER), accounts).top_users(CPU) == [
        ("ann", Decimal("6.00"), ("a", "b")),
        ("bob", Decimal("3.00"), ("a",)),
    ]


def test_what_waldur_says_of_a_component_goes_before_the_configuration() -> None:
    waldur = [
        WaldurComponent("", "cpu", {"name": "Cores", "measured_unit": "k-hours", "limit_period": "annual"})
    ]
    assert usage_figures.measures([CORES], waldur) == (Measure("cpu", "Cores", "k-hours", "annual"),)
    assert usage_figures.measures([CORES], []) == (Measure("cpu", "CPU", "core-hours", "month"),)


def test_sums_are_those_of_the_parts() -> None:
    sheet = many(40)
    for measure in sheet.measures:
        for month in sheet.months:
            parts = [a.figures[measure.name, month] for a in sheet.accounts]
            assert sheet.total(measure, month) == sum(parts, Decimal(0))


@pytest.mark.parametrize(
    ("period", "spent", "taken", "day"),
    [
        ("month", "50", "2026-11-11T00:00", "2026-11-21"),
        ("month", "34", "2026-11-11T00:00", "2026-11-30"),
        ("month", "33", "2026-11-11T00:00", None),  # it lasts
        ("month", "100", "2026-11-11T00:00", None),  # used up
        ("month", "0", "2026-11-11T00:00", None),
        ("month", "0.000000001", "2026-11-11T00:00", None),
        ("month", "50", "2026-11-01T23:59", None),  # too early to say
        ("quarterly", "50", "2026-11-01T00:00", "2026-12-02"),
        ("annual", "95", "2026-11-11T00:00", "2026-11-27"),
        ("total", "50", "2026-11-11T00:00", None),
    ],
)
def test_the_day_on_which_a_limit_is_used_up(period: str, spent: str, taken: str, day: str | None) -> None:
    at = datetime.fromisoformat(taken).replace(tzinfo=ZoneInfo("Europe/Tallinn"))
    found = used_up(Use(Decimal(spent), Decimal(100)), period_bounds(period, at), at)
    assert (f"{found:%Y-%m-%d}" if found else None) == day


def test_a_project_is_counted_against_its_limits_where_all_are_known() -> None:
    october = {("cpu", OCTOBER): Decimal(1)}
    one = figures({"cpu": {OCTOBER: "1.00", NOVEMBER: "5.00"}})
    sheet = Sheet(
        (CPU,),
        (OCTOBER, NOVEMBER),
        (
            account("a", title="A", project="P", figures=one, limits={"cpu": Decimal(10)}),
            account("b", title="B", project="P", figures=one, limits={"cpu": Decimal(6)}),
            account("c", title="C", project="Q", figures=one, limits={"cpu": Decimal(10)}),
            account("d", title="D", project="Q", figures=october, limits={"cpu": Decimal(10)}),
            account("e", title="E", figures=one),
        ),
    )
    rows = {row.name or row.account: row for row in sheet.by_project().rows(CPU, with_users=False)}
    assert rows.keys() == {"P", "Q"}
    assert (rows["P"].amounts, rows["P"].use.limit) == ((Decimal("2.00"), Decimal("10.00")), Decimal(16))
    assert (rows["Q"].amounts, rows["Q"].use.limit) == ((Decimal("2.00"), Decimal("5.00")), None)
