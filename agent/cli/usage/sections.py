# SPDX-License-Identifier: MIT
"""The content of the usage page for one offering, ready for its template: texts, rows, and charts (`charts`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from agent.cli.options import number
from agent.cli.usage import charts
from agent.cli.usage.charts import MonthChart, Stroke, name_of, short, span_of
from agent.cli.usage.table import PERIODS, counted, formatted, percent
from agent.core.printable import shortlist
from agent.plan.usage.figures import AccountFigures, Measure, Row, Sheet, Use
from agent.run.usage.view import UsageView

ACCOUNTS_DRAWN = 15
USERS_DRAWN = 10
PLACES_NAMED = 2


@dataclass(frozen=True, slots=True)
class Bar:
    """A row with a bar."""

    name: str
    detail: str
    value: str
    percent: str = ""
    # In percent.
    filled: float = 0.0
    # The bar's whole length is a limit.
    of_limit: bool = False
    # `over`, `near`.
    state: str = ""
    description: str = ""
    curve: tuple[Stroke, ...] = ()
    curve_limit: float | None = None


@dataclass(frozen=True)
class ComponentSection:
    """Everything about one component."""

    # Its name in links.
    anchor: str
    label: str
    unit: str
    total: str
    before: str
    limit: str
    percent: str
    state: str
    chart: MonthChart
    accounts: tuple[Bar, ...]
    more_accounts: int
    users: tuple[Bar, ...]
    more_users: int
    # Each with its amounts, limit, and percentage of it.
    rows: tuple[tuple[Row, list[str], str, str], ...]
    totals: tuple[str, ...]
    others: str
    filled: float = 0.0
    limits_are: str = ""
    has_limits: bool = False

    @property
    def is_measured(self) -> bool:
        return any(bar.of_limit for bar in self.accounts)

    @property
    def has_unmeasured(self) -> bool:
        return any(bar.filled and not bar.of_limit for bar in self.accounts)

    @property
    def has_limit_lines(self) -> bool:
        return any(bar.curve_limit is not None for bar in self.accounts)


@dataclass(frozen=True)
class OfferingSection:
    name: str
    anchor: str
    span: str
    present: str
    taken: str
    zone: str
    cluster: str
    counted: str
    months: tuple[str, ...]
    accounts: int
    notes: tuple[str, ...]
    waldur: str
    components: tuple[ComponentSection, ...]


def offering(view: UsageView, *, with_users: bool = False) -> OfferingSection:
    sheet = view.sheet
    notes = [f"{name_of(month)}: unknown, the cluster names no job at all" for month in view.unanswered]
    return OfferingSection(
        name=view.name,
        anchor=f"o-{view.uuid}",
        span=span_of(sheet.months),
        present=name_of(sheet.present),
        taken=f"{view.taken.day} {name_of(sheet.present)}, {view.taken:%H:%M}",
        zone=view.zone,
        cluster=view.cluster,
        counted=counted(view),
        months=tuple(str(month) for month in sheet.months),
        accounts=len(sheet.accounts),
        notes=(*notes, *view.notes),
        waldur=str(view.waldur) if view.waldur else "",
        components=tuple(
            _component(view, measure, f"o-{view.uuid}-{number}", with_users=with_users)
            for number, measure in enumerate(sheet.measures)
        )
        if sheet.accounts
        else (),
    )


def _component(view: UsageView, measure: Measure, anchor: str, *, with_users: bool) -> ComponentSection:
    sheet = view.sheet
    ranked = sheet.ranked(measure)
    of_all = sheet.row_of_all(measure)
    totals, use = of_all.amounts, of_all.use
    users = sheet.top_users(measure)
    others = ""
    amount = sheet.total_of_others(measure)
    if amount is not None and not view.waldur:
        others = (
            f"Not among these: {short(amount)} {measure.unit} of {number(len(sheet.others), 'other account')} of the "
            "cluster, which no resource of this offering names."
        )
    return ComponentSection(
        anchor=anchor,
        label=measure.label,
        unit=measure.unit,
        total=short(totals[-1]),
        before=f"{short(totals[-2])} in {name_of(sheet.months[-2])}" if len(totals) > 1 else "",
        limit=short(use.limit) if use.limit is not None else "",
        percent=percent(use),
        state=_state(use),
        chart=charts.months(sheet, measure, totals, use.limit),
        accounts=tuple(_bars(sheet, measure, ranked[:ACCOUNTS_DRAWN])),
        more_accounts=max(0, len(ranked) - ACCOUNTS_DRAWN),
        users=tuple(_users(users[:USERS_DRAWN], measure, sum((u[1] for u in users), Decimal(0)))),
        more_users=max(0, len(users) - USERS_DRAWN),
        rows=tuple(
            (row, list(map(formatted, row.amounts)), _limit(row.use.limit), percent(row.use))
            for row in sheet.rows(measure, with_users=with_users)
        ),
        totals=tuple(map(formatted, totals)),
        others=others,
        filled=_percentage(use.filled()),
        limits_are=PERIODS.get(measure.period, measure.period),
        has_limits=any(measure.name in account.limits for account in sheet.accounts),
    )


def _bars(sheet: Sheet, measure: Measure, accounts: Sequence[AccountFigures]) -> list[Bar]:
    largest = sheet.largest(measure)
    bars = []
    for account in accounts:
        use, amount = sheet.use(account, measure), account.figures.get((measure.name, sheet.present))
        curve, line = charts.curve(sheet, sheet.amounts(account.figures, measure), measure, use.limit)
        name = account.title or account.account
        bars.append(
            Bar(
                name=name,
                detail=account.account if account.title else "",
                value=short(amount),
                percent=percent(use),
                filled=_percentage(use.filled(amount, largest)),
                of_limit=use.is_measured,
                state=_state(use),
                description=f"{name}: {formatted(amount)} {measure.unit}"
                + (f", limit {_limit(use.limit)}" if use.limit is not None else ""),
                curve=curve,
                curve_limit=line,
            )
        )
    return bars


def _users(
    users: Sequence[tuple[str, Decimal, tuple[str, ...]]], measure: Measure, whole: Decimal
) -> list[Bar]:
    largest = users[0][1] if users else Decimal(0)
    bars = []
    for user, amount, places in users:
        bars.append(
            Bar(
                name=user,
                detail=shortlist(places, PLACES_NAMED),
                value=short(amount),
                percent=f"{amount / whole:.0%}",
                filled=_percentage(float(amount / largest)),
                description=f"{user}: {formatted(amount)} {measure.unit}",
            )
        )
    return bars


def _state(use: Use) -> str:
    return "over" if use.is_over else "near" if use.is_near else ""


def _limit(limit: Decimal | None) -> str:
    return "" if limit is None else f"{limit:,}"


def _percentage(share: float) -> float:
    return round(min(100.0, max(0.0, share * 100)), 2)
