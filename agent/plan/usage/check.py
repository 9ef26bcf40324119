# SPDX-License-Identifier: MIT
"""One month counted in several ways, and where they differ: as the reference asked, what jobs asked for, what they were
given, what the cluster's own summary (sreport) has, and what was reported to Waldur.

A count that is not known is None, and differs from nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import TypeVar

from agent.core.model import Component
from agent.core.units import ZERO, Shares, targets_of, tres_shares
from agent.core.usage import Counts, Usage, UsageSource

Number = TypeVar("Number", int, Decimal)


class CountedBy(StrEnum):
    """How a month is counted."""

    REFERENCE = "reference"
    REQUESTED = "requested"
    ALLOCATED = "allocated"
    SUMMARY = "sreport"


OF_SOURCE = {UsageSource.REQUESTED: CountedBy.REQUESTED, UsageSource.ALLOCATED: CountedBy.ALLOCATED}


@dataclass(frozen=True, slots=True)
class Seconds:
    """One TRES, in TRES-seconds."""

    tres: str
    counts: Mapping[CountedBy, int | None]
    # What the reference omits, as far as that is known: runs of requeued jobs but the last.
    requeues: int | None = None
    # The same of the last second of the month.
    border: int | None = None

    @classmethod
    def sum(cls, tres: str, parts: Sequence[Seconds]) -> Seconds:
        """Add up what several accounts have of one TRES."""
        ways = _ways(part.counts for part in parts)
        return cls(
            tres,
            {way: _sum(part.counts.get(way) for part in parts) for way in ways},
            _sum(part.requeues for part in parts),
            _sum(part.border for part in parts),
        )

    def gap(self, one: CountedBy, other: CountedBy) -> int:
        """Return how much more `other` has; 0 where one of them is not known."""
        left, right = self.counts.get(one), self.counts.get(other)
        return right - left if left is not None and right is not None else 0

    @property
    def as_asked(self) -> bool:
        return not self.gap(CountedBy.REFERENCE, CountedBy.REQUESTED)

    @property
    def as_given(self) -> bool:
        return not self.gap(CountedBy.REQUESTED, CountedBy.ALLOCATED)

    @property
    def as_summed(self) -> bool:
        return not self.gap(CountedBy.ALLOCATED, CountedBy.SUMMARY)

    @property
    def is_summed(self) -> bool:
        """Return whether both of these are known."""
        return None not in (self.counts.get(CountedBy.ALLOCATED), self.counts.get(CountedBy.SUMMARY))


@dataclass(frozen=True, slots=True)
class Amounts:
    """One component, in Waldur's units."""

    component: str
    amounts: Mapping[CountedBy, Decimal | None]
    tres: tuple[str, ...]
    # What is to be reported, as the offering is configured.
    next: Decimal | None
    # What Waldur has, None where it has nothing or does not say.
    reported: Decimal | None = None
    is_reported_known: bool = False
    # The part of what is to be reported in accounts that no resource names.
    unnamed: Decimal = ZERO

    @classmethod
    def sum(cls, parts: Sequence[Amounts]) -> Amounts:
        """Add up what several accounts have of one component."""
        ways = _ways(part.amounts for part in parts)
        return cls(
            component=parts[0].component,
            amounts={way: _sum(part.amounts.get(way) for part in parts) for way in ways},
            tres=parts[0].tres,
            next=_sum(part.next for part in parts if part.is_reported_known),
            reported=_sum(part.reported for part in parts),
            is_reported_known=any(part.is_reported_known for part in parts),
            unnamed=_sum(part.next for part in parts if not part.is_reported_known) or ZERO,
        )

    @property
    def moves(self) -> Decimal:
        """Return how much Waldur's figure would move; 0 where nothing is known, or it has the same."""
        if self.next is None or not self.is_reported_known:
            return ZERO
        return self.next - (self.reported or ZERO)


@dataclass(frozen=True)
class AccountCheck:
    """One account, or all of them together."""

    # Empty for all.
    account: str
    seconds: Mapping[str, Seconds]
    amounts: Mapping[str, Amounts]
    resource: str = ""
    # The resource that names it is terminated, and Waldur takes no usage of it any more.
    has_ended: bool = False

    @classmethod
    def sum(cls, lines: Sequence[AccountCheck]) -> AccountCheck:
        """Add up the lines of several accounts."""
        tres = sorted({name for line in lines for name in line.seconds})
        components = lines[0].amounts if lines else ()
        return cls(
            account="",
            seconds={
                name: Seconds.sum(name, [s for x in lines if (s := x.seconds.get(name))]) for name in tres
            },
            amounts={name: Amounts.sum([line.amounts[name] for line in lines]) for name in components},
        )

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was counted of it, and nothing reported to Waldur."""
        return not any(any(s.counts.values()) for s in self.seconds.values()) and not any(
            a.reported for a in self.amounts.values()
        )

    @property
    def differs(self) -> bool:
        """Return whether any two counts differ at all."""
        return (
            any(not (s.as_asked and s.as_given and s.as_summed) for s in self.seconds.values()) or self.moves
        )

    @property
    def moves(self) -> bool:
        return any(amounts.moves for amounts in self.amounts.values())


@dataclass(frozen=True)
class Comparison:
    """What the ways of counting give, by account."""

    # Those with differences first.
    lines: tuple[AccountCheck, ...]
    total: AccountCheck
    # Whether AllocTRES is what sreport has, for every account and TRES; None where that is not known.
    equals_summary: bool | None = None
    # The account that was asked for, where the cluster neither has it nor saw a job of it.
    unknown: str = ""

    @property
    def moves(self) -> bool:
        return any(line.moves for line in self.lines)


@dataclass(frozen=True)
class CheckFacts:
    """What was read of one month."""

    usages: Mapping[CountedBy, Usage]
    known: frozenset[str]
    components: Sequence[Component]
    source: UsageSource
    # As requested, but of requeued jobs only the last run; None where that was not asked.
    last_runs: Usage | None = None
    untracked: frozenset[str] = frozenset()
    # What was reported to it, by account and component; None where Waldur did not say.
    waldur: Mapping[tuple[str, str], Decimal | None] | None = None
    resources: Mapping[str, str] = field(default_factory=dict)
    # By account, of TRES that several components name.
    shares: Mapping[str, Shares] = field(default_factory=dict)
    # Accounts that terminated resources alone name.
    ended: frozenset[str] = frozenset()

    @property
    def accounts(self) -> set[str]:
        """Return the accounts that used anything, or that were reported to Waldur."""
        reported = {account for (account, _), amount in (self.waldur or {}).items() if amount}
        return reported.union(*(usage.accounts for usage in self.usages.values()))

    def is_known(self, account: str) -> bool:
        """Return whether the cluster has the account, or saw a job of it."""
        usages = [*self.usages.values(), *((self.last_runs,) if self.last_runs else ())]
        return account in self.known or any(account in usage.accounts for usage in usages)

    def line(self, account: str) -> AccountCheck:
        """Return all counts of one account."""
        is_known = self.is_known(account)
        counts = {way: _counts(usage, account) if is_known else None for way, usage in self.usages.items()}
        last_runs = _counts(self.last_runs, account) if self.last_runs and is_known else None
        # All that anybody counted, and what the components name, which may be nothing.
        named = {tres for c in self.components if c.name not in self.untracked for tres in targets_of(c)}
        named = named.union(*(found for found in counts.values() if found))
        return AccountCheck(
            account,
            {tres: _seconds(tres, counts, last_runs) for tres in sorted(named)},
            {c.name: self.amounts(c, counts, account) for c in self.components},
            self.resources.get(account, ""),
            has_ended=account in self.ended,
        )

    def amounts(
        self, component: Component, counts: Mapping[CountedBy, Counts | None], account: str
    ) -> Amounts:
        """Return what an account has of one component, of these `counts` of its TRES."""
        shares = self.shares.get(account) or tres_shares(self.components, {})
        amounts = {
            way: None
            if found is None or component.name in self.untracked
            else self.usages[way].amount(component, found, shares)
            for way, found in counts.items()
        }
        waldur = self.waldur or {}
        place = (account, component.name)
        return Amounts(
            component=component.name,
            amounts=amounts,
            tres=tuple(sorted(targets_of(component))),
            next=amounts.get(OF_SOURCE[self.source]),
            reported=waldur.get(place),
            is_reported_known=place in waldur,
        )


def compare(facts: CheckFacts, only: str = "") -> Comparison:
    """Compare the counts of all accounts, or of this one, whether or not it used anything."""
    lines = [facts.line(account) for account in ([only] if only else sorted(facts.accounts))]
    if not only:
        lines = [line for line in lines if not line.is_empty]
    lines.sort(key=lambda line: (not line.differs, line.account))
    # Where nothing was counted in both ways there is nothing to be equal.
    compared = [s.as_summed for line in lines for s in line.seconds.values() if s.is_summed]
    return Comparison(
        lines=tuple(lines),
        total=AccountCheck.sum(lines),
        equals_summary=all(compared) if compared else None,
        unknown=only if only and not facts.is_known(only) else "",
    )


def _counts(usage: Usage, account: str) -> Counts | None:
    """Return nothing where the cluster named no job at all: there was no answer."""
    if not usage.records:
        return None
    found = usage.accounts.get(account)
    return found.total if found else {}


def _seconds(tres: str, counts: Mapping[CountedBy, Counts | None], last_runs: Counts | None) -> Seconds:
    found = {way: None if each is None else each.get(tres, 0) for way, each in counts.items()}
    asked, reference = found.get(CountedBy.REQUESTED), found.get(CountedBy.REFERENCE)
    if last_runs is None or asked is None:
        return Seconds(tres, found)
    last = last_runs.get(tres, 0)
    return Seconds(tres, found, asked - last, None if reference is None else last - reference)


def _ways(parts: Iterable[Mapping[CountedBy, object]]) -> list[CountedBy]:
    found = {way for part in parts for way in part}
    return [way for way in CountedBy if way in found]


def _sum(numbers: Iterable[Number | None]) -> Number | None:
    """Add up those that are known; None where none is."""
    known = [number for number in numbers if number is not None]
    return sum(known[1:], known[0]) if known else None
