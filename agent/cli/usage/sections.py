# SPDX-License-Identifier: MIT
"""The content of the usage page for one offering, ready for its template: texts, rows, and charts (`charts`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from agent.cli.options import number
from agent.cli.usage import charts
from agent.cli.usage.charts import MonthChart, Stroke, name_of, short, span_of
from agent.cli.usage.table import PERIODS, WARN_FROM, counted, percent, shown
from agent.plan.usage.figures import AccountFigures, Figures, Measure, Sheet, Use
from agent.run.usage.view import UsageView

ACCOUNTS_DRAWN = 15
USERS_DRAWN = 10
PLACES_NAMED = 2


@dataclass(frozen=True, slots=True)
class Bar:
    """A row with a bar. `filled` in percent; `of_limit`: the bar's whole length is a limit. `state`: `over`, `near`."""

    name: str
    detail: str
    value: str
    percent: str = ""
    filled: float = 0.0
    of_limit: bool = False
    state: str = ""
    told: str = ""
    curve: tuple[Stroke, ...] = ()
    curve_limit: float | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """`cells`: an amount for each month. `level`: 1 for a user of the account above."""

    name: str
    account: str
    cells: tuple[str, ...]
    limit: str = ""
    percent: str = ""
    level: int = 0


@dataclass(frozen=True)
class ComponentSection:
    """Everything about one component. `anchor` is its name in links."""

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
    rows: tuple[TableRow, ...]
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
    notes = [f"{name_of(month)}: unknown, the cluster names no job at all" for month in view.silent]
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
    totals = [sheet.total(measure, month) for month in sheet.months]
    use = sheet.use_of_all(measure)
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
        rows=tuple(_rows(sheet, measure, ranked, with_users=with_users)),
        totals=tuple(shown(amount) for amount in totals),
        others=others,
        filled=_percentage(1.0 if use.is_over else use.share or 0.0),
        limits_are=PERIODS.get(measure.period, measure.period),
        has_limits=any(measure.name in account.limits for account in sheet.accounts),
    )


def _bars(sheet: Sheet, measure: Measure, accounts: Sequence[AccountFigures]) -> list[Bar]:
    largest = max(
        (a.figures.get((measure.name, sheet.present)) or Decimal(0) for a in accounts), default=Decimal(0)
    )
    bars = []
    for account in accounts:
        use, amount = sheet.use(account, measure), account.figures.get((measure.name, sheet.present))
        of_limit = use.share is not None or use.is_over
        if of_limit:
            share = 1.0 if use.is_over else use.share or 0.0
        else:
            share = float(amount / largest) if amount and largest else 0.0
        limit = account.limits.get(measure.name)
        curve, line = charts.curve(sheet, account.figures, measure, limit)
        name = account.title or account.account
        bars.append(
            Bar(
                name=name,
                detail=account.account if account.title else "",
                value=short(amount),
                percent=percent(use),
                filled=_percentage(share),
                of_limit=of_limit,
                state=_state(use),
                told=f"{name}: {shown(amount)} {measure.unit}"
                + (f", limit {limit:,}" if limit is not None else ""),
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
        more = f" and {len(places) - PLACES_NAMED} more" if len(places) > PLACES_NAMED else ""
        bars.append(
            Bar(
                name=user,
                detail=", ".join(places[:PLACES_NAMED]) + more,
                value=short(amount),
                percent=f"{amount / whole:.0%}",
                filled=_percentage(float(amount / largest)),
                told=f"{user}: {shown(amount)} {measure.unit}",
            )
        )
    return bars


def _rows(
    sheet: Sheet, measure: Measure, accounts: Sequence[AccountFigures], *, with_users: bool
) -> list[TableRow]:
    rows = []
    for account in accounts:
        limit = account.limits.get(measure.name)
        rows.append(
            TableRow(
                account.title,
                account.account,
                _cells(sheet, account.figures, measure),
                f"{limit:,}" if limit is not None else "",
                percent(sheet.use(account, measure)),
            )
        )
        if with_users:
            rows += [
                TableRow(user, "", _cells(sheet, figures, measure), level=1)
                for user, figures in sheet.ranked_users(account, measure)
            ]
    return rows


def _cells(sheet: Sheet, figures: Figures, measure: Measure) -> tuple[str, ...]:
    return tuple(shown(figures.get((measure.name, month))) for month in sheet.months)


def _state(use: Use) -> str:
    if use.is_over:
        return "over"
    return "near" if use.share is not None and use.share >= WARN_FROM else ""


def _percentage(share: float) -> float:
    return round(min(100.0, max(0.0, share * 100)), 2)
