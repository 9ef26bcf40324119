# SPDX-License-Identifier: MIT
"""The content of the usage page for one offering, ready for its template: texts, rows, and charts (`charts`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import dropwhile

from agent.cli.options import number
from agent.cli.usage import charts
from agent.cli.usage.charts import BurnDown, Curve, MonthChart, day_of, name_of, short, span_of
from agent.cli.usage.table import PERIODS, counted, formatted, percent
from agent.core.model import ResourceState
from agent.core.printable import shortlist
from agent.plan.usage.figures import (
    AccountFigures,
    Figures,
    Measure,
    Sheet,
    Use,
    period_bounds,
    total,
    used_up,
)
from agent.run.usage.view import UsageView

ACCOUNTS_DRAWN = 15
PROJECTS_DRAWN = 10
USERS_DRAWN = 10
PLACES_NAMED = 2
# Of all accounts, of projects, of others. A page of 5,000 accounts stays below a megabyte.
ROWS_AT_MOST = 5_300
FURTHER_ROWS_AT_MOST = 400
FIGURES_PER_ROW = 2
UNKNOWN = "?"


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
    # When the limit is used up at the rate of its period so far: `28 November`.
    day: str = ""
    description: str = ""
    curve: Curve | None = None


@dataclass(frozen=True)
class ComponentSection:
    """Everything about one component of which something is known."""

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
    burn_down: BurnDown | None
    # How much of the limits' period has passed, in percent.
    passed: float | None
    accounts: tuple[Bar, ...]
    more_accounts: int
    projects: tuple[Bar, ...]
    more_projects: int
    users: tuple[Bar, ...]
    more_users: int
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
        return any(bar.curve and bar.curve.limit_y is not None for bar in self.accounts)

    @property
    def has_days(self) -> bool:
        return any(bar.day for bar in (*self.accounts, *self.projects))


@dataclass(frozen=True, slots=True)
class FigureRow:
    name: str
    detail: str
    cells: tuple[str, ...]
    is_user: bool = False


@dataclass(frozen=True)
class FigureTable:
    """Accounts or projects, those with most use first, with all components in one row."""

    summary: str
    units: str
    columns: tuple[str, ...]
    # Their classes: `past` for months that a narrow page hides, `wide` where a component has no limits.
    kinds: tuple[str, ...]
    # Each with the rows of its users.
    groups: tuple[tuple[FigureRow, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def has_unknown(self) -> bool:
        return any(UNKNOWN in row.cells for group in self.groups for row in group)


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
    notes: tuple[str, ...]
    waldur: str
    # Why there is no component.
    silent: str
    components: tuple[ComponentSection, ...]
    # Tables are made when they are asked for: the page of status shows none.
    view: UsageView
    projects: Sheet
    with_users: bool

    def tables(self) -> Iterator[FigureTable]:
        """Yield all accounts, the projects, and what has ended or is not the offering's."""
        sheet = _known_months(self.view)
        known = [m for m in sheet.measures if _is_known(sheet, m)]
        sheet = replace(sheet, measures=tuple(known or sheet.measures))
        ended: list[AccountFigures] = []
        accounts: list[AccountFigures] = []
        for account in sheet.accounts:
            (ended if _has_ended(account) else accounts).append(account)
        if accounts:
            said = "The account" if len(accounts) == 1 else f"All {len(accounts):,} accounts"
            yield _table(
                said, replace(sheet, accounts=tuple(accounts)), self.view.taken, with_users=self.with_users
            )
        if len((projects := replace(self.projects, measures=sheet.measures)).accounts) > 1:
            said = f"All {len(projects.accounts):,} projects"
            yield _table(said, projects, self.view.taken, rows=FURTHER_ROWS_AT_MOST)
        others = () if self.view.waldur else sheet.others
        if over := (*ended, *others):
            said = f"{number(len(over), 'account')}, ended or of no resource of this offering,"
            yield _table(said, replace(sheet, accounts=over), self.view.taken, rows=FURTHER_ROWS_AT_MOST)


def offering(view: UsageView, *, with_users: bool = False) -> OfferingSection:
    sheet = _known_months(view)
    notes = [
        f"{name_of(month)}: unknown, the cluster names no job at all"
        for month in view.unanswered
        if month in sheet.months
    ]
    known = [measure for measure in sheet.measures if _is_known(sheet, measure)]
    projects = sheet.by_project()
    silent = ""
    if len(view.unanswered) == len(view.sheet.months):
        silent = (
            f"The cluster names no job at all in {span_of(view.sheet.months)}: nothing is known of usage."
        )
        notes = []
    elif sheet.accounts and not known and not view.notes:
        silent = "Nothing is known of what these accounts have used."
    elif not sheet.accounts:
        silent = "No resource of this offering has an account yet."
    elif len(sheet.months) < len(view.sheet.months):
        notes.insert(0, f"Before {name_of(sheet.months[0])}: unknown, the cluster names no job at all")
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
        notes=(*notes, *view.notes),
        waldur=str(view.waldur) if view.waldur else "",
        silent=silent,
        components=tuple(
            _component(view, sheet, projects, measure, f"o-{view.uuid}-{number}")
            for number, measure in enumerate(known)
        ),
        view=view,
        projects=projects,
        with_users=with_users,
    )


def _known_months(view: UsageView) -> Sheet:
    """Return the sheet from the first month on in which the cluster names a job; of the present one, where in none."""
    months = tuple(dropwhile(lambda month: month in view.unanswered, view.sheet.months))
    return replace(view.sheet, months=months or view.sheet.months[-1:])


def _is_known(sheet: Sheet, measure: Measure) -> bool:
    return any(
        (measure.name, month) in account.figures for account in sheet.accounts for month in sheet.months
    )


def _has_ended(account: AccountFigures) -> bool:
    """Return whether its resources end, and it has used nothing of what is known."""
    ends = all(each.state is ResourceState.TERMINATING for each in account.resources)
    return ends and bool(account.resources) and not any(account.figures.values())


def _component(
    view: UsageView, sheet: Sheet, projects: Sheet, measure: Measure, anchor: str
) -> ComponentSection:
    keys = sheet.keys(measure)
    used = [each for each in sheet.ranked(measure) if total(each.figures, keys)]
    of_all = sheet.row_of_all(measure)
    totals, use = of_all.amounts, of_all.use
    users = sheet.top_users(measure)
    ranked = projects.ranked(measure) if len(projects.accounts) > 1 else []
    bounds = period_bounds(measure.period, view.taken)
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
        before=f"{short(totals[-2])} in {name_of(sheet.months[-2])}"
        if len(totals) > 1 and totals[-2] is not None
        else "",
        limit=short(use.limit) if use.limit is not None else "",
        percent=percent(use),
        state=_state(use),
        chart=charts.months(sheet, measure, totals, use.limit),
        burn_down=charts.burn_down(sheet, measure, use, view.taken),
        passed=_percentage((view.taken - bounds[0]) / (bounds[1] - bounds[0])) if bounds else None,
        accounts=tuple(_bars(sheet, measure, used[:ACCOUNTS_DRAWN], view.taken)),
        more_accounts=len(sheet.accounts) - len(used[:ACCOUNTS_DRAWN]),
        projects=tuple(_bars(projects, measure, ranked[:PROJECTS_DRAWN], view.taken)),
        more_projects=max(0, len(ranked) - PROJECTS_DRAWN),
        users=tuple(_users(users[:USERS_DRAWN], measure, sum((u[1] for u in users), Decimal(0)))),
        more_users=max(0, len(users) - USERS_DRAWN),
        totals=tuple(map(formatted, totals)),
        others=others,
        filled=_percentage(use.filled()),
        limits_are=PERIODS.get(measure.period, measure.period),
        has_limits=any(measure.name in account.limits for account in sheet.accounts),
    )


def _table(
    summary: str, sheet: Sheet, taken: datetime, *, rows: int = ROWS_AT_MOST, with_users: bool = False
) -> FigureTable:
    """Return a row for each account of a sheet, with so many of the last months as there is room for. `rows`: how many
    there are at the most, those of users among them.
    """
    ranked = sheet.ranked(sheet.measures[0])
    room = FIGURES_PER_ROW * rows // (min(len(ranked), rows) * len(sheet.measures))
    shown = replace(sheet, months=sheet.months[-max(1, room) :])
    limited = {m.name for m in sheet.measures if any(m.name in each.limits for each in ranked)}
    heads: list[str] = []
    kinds: list[str] = []
    for m in sheet.measures:
        heads += (f"{m.label} {month}".replace("-", "\u2011") for month in shown.months)
        kinds += ["past"] * (len(shown.months) - 1)
        kinds += ("", "", "", "") if m.name in limited else ("wide",)
        heads += ("limit", "of limit", "used up") if m.name in limited else ()
    groups: list[tuple[FigureRow, ...]] = []
    spare, bounds = rows - len(ranked), {m: period_bounds(m.period, taken) for m in sheet.measures}
    for each in ranked[:rows]:
        cells: list[str] = []
        for m in sheet.measures:
            cells += _amounts(shown, each.figures, m)
            if m.name in limited:
                use = sheet.use(each, m)
                cells += (_limit(use.limit), percent(use), _until(use, bounds[m], taken))
        name, detail = (each.title, f"{each.project} · {each.account}") if each.title else (each.account, "")
        users = _user_rows(shown, each, limited) if with_users and spare > 0 else []
        spare -= len(users)
        groups.append((FigureRow(name, detail.removeprefix(" · "), tuple(cells)), *users))
    cut = {
        "the months before": len(shown.months) < len(sheet.months),
        "the others": len(ranked) > rows,
        "the users of all accounts": with_users and spare <= 0,
    }
    notes = [
        f"There is no room here for {what}: `usage --json` has all." for what, is_cut in cut.items() if is_cut
    ]
    units = ", ".join(f"{m.label} in {m.unit}" for m in sheet.measures)
    return FigureTable(summary, units, tuple(heads), tuple(kinds), tuple(groups), tuple(notes))


def _until(use: Use, bounds: tuple[datetime, datetime] | None, taken: datetime) -> str:
    """Return the day on which a limit is used up; empty where it lasts, or that is not known."""
    if use.limit is not None and use.spent is not None and use.spent >= use.limit:
        return "used up"
    day = used_up(use, bounds, taken)
    return f"{day:%Y-%m-%d}" if day else ""


def _user_rows(sheet: Sheet, account: AccountFigures, limited: set[str]) -> list[FigureRow]:
    had = [(user, figures) for user, figures in account.users.items() if any(figures.values())]
    rows = []
    for user, figures in sorted(had, key=lambda each: (-sum(each[1].values()), each[0])):
        cells: list[str] = []
        for m in sheet.measures:
            cells += _amounts(sheet, figures, m)
            cells += ("", "", "") if m.name in limited else ()
        rows.append(FigureRow(user, "", tuple(cells), is_user=True))
    return rows


def _amounts(sheet: Sheet, figures: Figures, measure: Measure) -> list[str]:
    return [UNKNOWN if each is None else f"{each:,.2f}" for each in sheet.amounts(figures, measure)]


def _bars(sheet: Sheet, measure: Measure, accounts: Sequence[AccountFigures], taken: datetime) -> list[Bar]:
    largest, bounds = sheet.largest(measure), period_bounds(measure.period, taken)
    bars = []
    for account in accounts:
        use, amount = sheet.use(account, measure), account.figures.get((measure.name, sheet.present))
        curve = charts.curve(sheet.amounts(account.figures, measure), measure, use.limit)
        name = account.title or account.account
        day = used_up(use, bounds, taken)
        bars.append(
            Bar(
                name=name,
                detail=account.account if account.title else "",
                value=short(amount),
                percent=percent(use),
                filled=_percentage(use.filled(amount, largest)),
                of_limit=use.is_measured,
                state=_state(use),
                day=day_of(day) if day else "",
                description=f"{name}: {formatted(amount)} {measure.unit}"
                + (f", limit {_limit(use.limit)}" if use.limit is not None else "")
                + (f", used up on {day_of(day)} at this rate" if day else ""),
                curve=curve,
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
