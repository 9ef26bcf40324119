# SPDX-License-Identifier: MIT
"""What was used, as figures for people: by account, component, month and user, in Waldur's units, against limits.

What is unknown has no figure, and is never zero: an account that the cluster does not have and that had no job, a
month in which the cluster named no job at all, a component whose TRES is not tracked. A limit is compared with what
was used in its own period, and only where all months of that period are among those looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property

from agent.core.account_names import fold
from agent.core.errors import PlanRefused
from agent.core.model import Component, Resource, WaldurComponent
from agent.core.periods import Month
from agent.core.units import Shares, limit_number
from agent.core.usage import Counts, Usage
from agent.plan.shared_limits import shares_of

MONTH, QUARTER, YEAR = "month", "quarterly", "annual"
# A limit of which so much is used is near.
NEAR = 0.9
NOTHING = Decimal(0)
# From the first hours of a period nothing is concluded.
RATE_KNOWN_AFTER = timedelta(days=1)

# Amounts by component and month; what is missing is unknown.
Figures = Mapping[tuple[str, Month], Decimal]


@dataclass(frozen=True, slots=True)
class Measure:
    """A component as people see it."""

    name: str
    label: str
    unit: str
    # What a limit of it is for, in Waldur's word (`month`, `quarterly`, `annual`, `total`).
    period: str = MONTH


@dataclass(frozen=True, slots=True)
class Use:
    """An amount, and the limit that it counts against; None for what is unknown, or not there."""

    spent: Decimal | None = None
    limit: Decimal | None = None

    @property
    def share(self) -> float | None:
        """Return 1.0 where the limit is used up; None where there is none to share, or nothing is known."""
        if self.spent is None or not self.limit:
            return None
        return float(self.spent / self.limit)

    @property
    def is_over(self) -> bool:
        return self.spent is not None and self.limit is not None and self.spent > self.limit

    @property
    def is_measured(self) -> bool:
        """Return whether it is known how much of a limit is used."""
        return self.is_over or self.share is not None

    @property
    def is_near(self) -> bool:
        return not self.is_over and self.share is not None and self.share >= NEAR

    def filled(self, amount: Decimal | None = None, largest: Decimal | None = None) -> float:
        """Return how much of a bar is filled: of the limit where that is known, else as `amount` is to the largest."""
        if self.is_measured:
            return 1.0 if self.is_over else self.share or 0.0
        return float(amount / largest) if amount and largest else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    name: str
    account: str
    # One for each month.
    amounts: tuple[Decimal | None, ...]
    use: Use = Use()
    # 1 for the users of an account.
    level: int = 0


@dataclass(frozen=True)
class AccountFigures:
    """One account, as Waldur spells it where it does, with the resources that name it."""

    account: str
    resources: tuple[Resource, ...] = ()
    figures: Figures = field(default_factory=dict)
    # Their shares, by name.
    users: Mapping[str, Figures] = field(default_factory=dict)
    limits: Mapping[str, Decimal] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return " / ".join(resource.name for resource in self.resources)

    @property
    def project(self) -> str:
        """Return the project with its customer, as Waldur names them; empty where it names none, or the account has no
        resource.
        """
        one = next(iter(self.resources), None)
        if one is None or not one.project_name:
            return ""
        return f"{one.project_name} ({one.customer_name})" if one.customer_name else one.project_name


@dataclass(frozen=True)
class Sheet:
    """One offering."""

    measures: tuple[Measure, ...]
    # Oldest first; the last one is the present month.
    months: tuple[Month, ...]
    accounts: tuple[AccountFigures, ...]
    # Accounts with usage that none of the offering's resources names.
    others: tuple[AccountFigures, ...] = ()

    @property
    def present(self) -> Month:
        return self.months[-1]

    def ranked(self, measure: Measure) -> list[AccountFigures]:
        """Return the accounts, most used first: in the present month, then in all months. Unknown ones last."""
        keys = self.keys(measure)
        return sorted(self.accounts, key=lambda a: (*_rank(a.figures, keys), a.account))

    def rows(self, measure: Measure, *, with_users: bool) -> list[Row]:
        """Return a row for each account, who used most first, each with its users below it if they are wanted."""
        rows = []
        for each in self.ranked(measure):
            use = self.use(each, measure)
            rows.append(Row(each.title, each.account, self.amounts(each.figures, measure), use))
            for user, figures in self.ranked_users(each, measure) if with_users else ():
                rows.append(Row(user, "", self.amounts(figures, measure), level=1))
        return rows

    def row_of_all(self, measure: Measure) -> Row:
        totals = tuple(self.total(measure, month) for month in self.months)
        return Row("all", "", totals, self.use_of_all(measure))

    def by_project(self) -> Sheet:
        """Return the sheet of the projects that Waldur names, each in place of its accounts. A project has a limit
        where each of its accounts has one, and what each has used is known.
        """
        of: dict[str, list[AccountFigures]] = defaultdict(list)
        for account in self.accounts:
            if account.project:
                of[account.project].append(account)
        return replace(
            self, accounts=tuple(self._together(name, each) for name, each in of.items()), others=()
        )

    def _together(self, name: str, accounts: Sequence[AccountFigures]) -> AccountFigures:
        figures: dict[tuple[str, Month], Decimal] = {}
        for account in accounts:
            for key, amount in account.figures.items():
                figures[key] = figures[key] + amount if key in figures else amount
        uses = {m.name: [self.use(account, m) for account in accounts] for m in self.measures}
        limits = {
            measure: sum((use.limit or NOTHING for use in each), NOTHING)
            for measure, each in uses.items()
            if all(use.limit is not None and use.spent is not None for use in each)
        }
        return AccountFigures(name, figures=figures, limits=limits)

    def keys(self, measure: Measure) -> list[tuple[str, Month]]:
        """Return the keys of a measure's figures, a month each."""
        return [(measure.name, month) for month in self.months]

    @cached_property
    def _keys_of_periods(self) -> Mapping[str, Sequence[tuple[str, Month]]]:
        """By measure: the keys of the period of its limits; none where not all of these months are here."""
        periods = {m.name: period_months(m.period, self.present) for m in self.measures}
        return {
            name: [(name, month) for month in months] if set(months) <= set(self.months) else []
            for name, months in periods.items()
        }

    def amounts(self, figures: Figures, measure: Measure) -> tuple[Decimal | None, ...]:
        """Return an amount for each month, None for what is unknown."""
        return tuple(map(figures.get, self.keys(measure)))

    def largest(self, measure: Measure) -> Decimal:
        """Return what the account with most has in the present month."""
        amounts = (a.figures.get((measure.name, self.present)) or NOTHING for a in self.accounts)
        return max(amounts, default=NOTHING)

    def ranked_users(self, account: AccountFigures, measure: Measure) -> list[tuple[str, Figures]]:
        """Return users of an account who had any of it."""
        keys = self.keys(measure)
        had = [(u, f) for u, f in account.users.items() if total(f, keys)]
        return sorted(had, key=lambda user: (*_rank(user[1], keys), user[0]))

    def total(self, measure: Measure, month: Month) -> Decimal | None:
        """Return the sum of all accounts that are known; None where none is."""
        key = (measure.name, month)
        found = [amount for a in self.accounts if (amount := a.figures.get(key)) is not None]
        return sum(found, NOTHING) if found else None

    def total_of_others(self, measure: Measure) -> Decimal | None:
        """Return what accounts that no resource names had in the present month; None where that is not known."""
        key = (measure.name, self.present)
        found = [amount for a in self.others if (amount := a.figures.get(key)) is not None]
        return sum(found, NOTHING) if found else None

    def use(self, account: AccountFigures, measure: Measure) -> Use:
        """Return what an account has used in the period of its limit, against it."""
        keys = self._keys_of_periods[measure.name]
        found = [amount for amount in map(account.figures.get, keys) if amount is not None]
        spent = sum(found, NOTHING) if keys and len(found) == len(keys) else None
        return Use(spent, account.limits.get(measure.name))

    def use_of_all(self, measure: Measure) -> Use:
        """Return the same of all accounts together, where each has a limit and is known."""
        uses = [self.use(account, measure) for account in self.accounts]
        spent = [use.spent for use in uses if use.spent is not None]
        limits = [use.limit for use in uses if use.limit is not None]
        return Use(
            sum(spent, NOTHING) if spent and len(spent) == len(uses) else None,
            sum(limits, NOTHING) if limits and len(limits) == len(uses) else None,
        )

    def top_users(self, measure: Measure) -> list[tuple[str, Decimal, tuple[str, ...]]]:
        """Return who used most in all months together, in how much and in which accounts."""
        keys = self.keys(measure)
        amounts: dict[str, Decimal] = defaultdict(Decimal)
        places: dict[str, list[str]] = defaultdict(list)
        for account in self.accounts:
            for user, figures in account.users.items():
                if amount := total(figures, keys):
                    amounts[user] += amount
                    places[user].append(account.account)
        ranked = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
        return [(user, amount, tuple(places[user])) for user, amount in ranked]


def period_months(period: str, present: Month) -> tuple[Month, ...]:
    """Return the months of a limit's period, up to the present one; none where it has no beginning (`total`)."""
    if period == MONTH:
        return (present,)
    if period == QUARTER:
        first = Month(present.year, (present.month - 1) // 3 * 3 + 1)
    elif period == YEAR:
        first = Month(present.year, 1)
    else:
        return ()
    return tuple(Month(present.year, number) for number in range(first.month, present.month + 1))


def period_bounds(period: str, taken: datetime) -> tuple[datetime, datetime] | None:
    """Return when a limit's period begins and ends, in the zone of `taken`, a moment in it; None for one in total."""
    months = period_months(period, Month.of(taken))
    if not months:
        return None
    length = {QUARTER: 3, YEAR: 12}.get(period, 1)
    last, zone = Month(taken.year, months[0].month + length - 1), taken.tzinfo or UTC
    return months[0].start(zone), last.next.start(zone)


def used_up(use: Use, bounds: tuple[datetime, datetime] | None, taken: datetime) -> datetime | None:
    """Return when in its period a limit is used up, if as much is used in each hour as in those before. None where it
    lasts, is used up already, or nothing can be said. `taken`: when `use` was read, in the site's zone.
    """
    if bounds is None or not use.spent or not use.limit or use.spent >= use.limit:
        return None
    start, end = bounds
    passed, share = taken - start, float(use.spent / use.limit)
    if passed < RATE_KNOWN_AFTER or share <= passed / (end - start):
        return None
    return start + passed / share


def total(figures: Figures, keys: Iterable[tuple[str, Month]]) -> Decimal | None:
    """Return the sum of those of the figures that are known."""
    found = [amount for amount in map(figures.get, keys) if amount is not None]
    return sum(found, NOTHING) if found else None


def measures(components: Iterable[Component], waldur: Iterable[WaldurComponent]) -> tuple[Measure, ...]:
    """Return the components as Waldur shows them; as the configuration has them where Waldur does not report them."""
    fields = {component.type: component.fields for component in waldur}
    return tuple(
        Measure(
            name=c.name,
            label=str(fields.get(c.name, {}).get("name") or c.label or c.name),
            unit=str(fields.get(c.name, {}).get("measured_unit") or c.measured_unit),
            # A limit without a period is billed by the month (Waldur 8.0).
            period=str(fields.get(c.name, {}).get("limit_period") or MONTH),
        )
        for c in components
    )


@dataclass(frozen=True)
class FigureFacts:
    """What was read for a sheet."""

    # Oldest month first.
    usages: Sequence[Usage]
    components: tuple[Component, ...]
    # The accounts of the cluster.
    known: frozenset[str]
    # The offering's, None where Waldur does not report them.
    resources: Sequence[Resource] | None = None
    # Components of which nothing is known.
    untracked: frozenset[str] = frozenset()


def sheet(facts: FigureFacts, chosen: tuple[Measure, ...]) -> Sheet:
    """Return the figures of one offering; without resources, of every account of the cluster that used anything."""
    holders: dict[str, list[Resource]] = defaultdict(list)
    for resource in facts.resources or ():
        if resource.backend_id:
            holders[fold(resource.backend_id)].append(resource)
    used = {account for usage in facts.usages for account in usage.accounts}
    listed = sorted(holders) if facts.resources is not None else sorted(used)
    others = sorted(used - set(listed))
    return Sheet(
        measures=chosen,
        months=tuple(usage.query.month for usage in facts.usages),
        accounts=tuple(_of_account(facts, account, holders.get(account, ())) for account in listed),
        others=tuple(_of_account(facts, account, ()) for account in others),
    )


def _of_account(facts: FigureFacts, account: str, holders: Sequence[Resource]) -> AccountFigures:
    shares = shares_of(holders[0] if len(holders) == 1 else None, facts.components)
    figures: dict[tuple[str, Month], Decimal] = {}
    users: dict[str, dict[tuple[str, Month], Decimal]] = defaultdict(dict)
    for usage in facts.usages:
        found = usage.accounts.get(account)
        if not usage.records or (found is None and account not in facts.known):
            continue
        figures |= _amounts(facts, found.total if found else {}, usage, shares)
        for user, counts in found.users.items() if found else ():
            users[user] |= _amounts(facts, counts, usage, shares)
    nothing = {
        key: amount * 0 for key, amount in figures.items()
    }  # of a user whom a known month does not name
    return AccountFigures(
        account=min((r.backend_id for r in holders), default=account),
        resources=tuple(sorted(holders, key=lambda r: (r.name, r.uuid))),
        figures=figures,
        users={user: {**nothing, **had} for user, had in users.items()},
        limits=_limits(holders[0], facts.components) if len(holders) == 1 else {},
    )


def _amounts(
    facts: FigureFacts, counts: Counts, usage: Usage, shares: Shares
) -> dict[tuple[str, Month], Decimal]:
    return {
        (c.name, usage.query.month): amount
        for c in facts.components
        if c.name not in facts.untracked and (amount := usage.amount(c, counts, shares)) is not None
    }


def _limits(resource: Resource, components: Iterable[Component]) -> dict[str, Decimal]:
    """Return the limits that are numbers; what else stands there is for the membership pass to complain of."""
    limits = {}
    for component in components:
        if resource.limits.get(component.name) is None:
            continue
        try:
            limits[component.name] = limit_number(component.name, resource.limits[component.name])
        except PlanRefused:
            continue
    return limits


def _rank(figures: Figures, keys: Sequence[tuple[str, Month]]) -> tuple[bool, Decimal, Decimal]:
    """Return what to sort by: known before unknown, then by the present month, then by all of them."""
    present, whole = figures.get(keys[-1]), total(figures, keys)
    return whole is None, -(present or NOTHING), -(whole or NOTHING)
