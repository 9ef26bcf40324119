# SPDX-License-Identifier: MIT
"""One month counted in several ways, and where they differ: as the reference asked, what jobs asked for, what they were
given, what the cluster's own summary (sreport) has, and what Waldur was told.

A count that is not known is None, and differs from nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from agent.core.model import Component
from agent.core.units import reported_amount, targets_of
from agent.core.usage import Counts, Usage, UsageSource


class Way(StrEnum):
    """How a month is counted."""

    REFERENCE = "reference"
    REQUESTED = "requested"
    ALLOCATED = "allocated"
    SUMMARY = "sreport"


OF_SOURCE = {UsageSource.REQUESTED: Way.REQUESTED, UsageSource.ALLOCATED: Way.ALLOCATED}


@dataclass(frozen=True)
class Readings:
    """`last_runs`: as requested, but of requeued jobs only the last run; None where that was not asked. `waldur`: what
    it was told, by account and component; None where Waldur did not say.
    """

    usages: Mapping[Way, Usage]
    known: frozenset[str]
    components: Sequence[Component]
    source: UsageSource
    last_runs: Usage | None = None
    untracked: frozenset[str] = frozenset()
    waldur: Mapping[tuple[str, str], Decimal | None] | None = None
    resources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seconds:
    """One TRES, in TRES-seconds. `requeues` and `border`: what the reference leaves out, as far as that is known: runs
    of requeued jobs but the last, and the last second of the month.
    """

    tres: str
    counts: Mapping[Way, int | None]
    requeues: int | None = None
    border: int | None = None

    def gap(self, one: Way, other: Way) -> int:
        """How much more `other` has; 0 where one of them is not known."""
        left, right = self.counts.get(one), self.counts.get(other)
        return right - left if left is not None and right is not None else 0

    @property
    def as_asked(self) -> bool:
        return not self.gap(Way.REFERENCE, Way.REQUESTED)

    @property
    def as_given(self) -> bool:
        return not self.gap(Way.REQUESTED, Way.ALLOCATED)

    @property
    def as_summed(self) -> bool:
        return not self.gap(Way.ALLOCATED, Way.SUMMARY)

    @property
    def is_summed(self) -> bool:
        """Whether both of these are known."""
        return None not in (self.counts.get(Way.ALLOCATED), self.counts.get(Way.SUMMARY))


@dataclass(frozen=True, slots=True)
class Amounts:
    """One component, in Waldur's units. `told`: what Waldur has, None where it has nothing or does not say. `next`:
    what it is to be told, as the offering is configured.
    """

    component: str
    amounts: Mapping[Way, Decimal | None]
    tres: tuple[str, ...]
    next: Decimal | None
    told: Decimal | None = None
    is_told_known: bool = False

    @property
    def moves(self) -> Decimal:
        """How much Waldur's figure would move; 0 where nothing is known, or it has the same."""
        if self.next is None or not self.is_told_known:
            return Decimal(0)
        return self.next - (self.told or Decimal(0))


@dataclass(frozen=True)
class Line:
    """One account, or all of them together (`account` empty)."""

    account: str
    seconds: Mapping[str, Seconds]
    amounts: Mapping[str, Amounts]
    resource: str = ""

    @property
    def differs(self) -> bool:
        """Whether any two counts differ at all."""
        return (
            any(not (s.as_asked and s.as_given and s.as_summed) for s in self.seconds.values()) or self.moves
        )

    @property
    def moves(self) -> bool:
        return any(amounts.moves for amounts in self.amounts.values())


@dataclass(frozen=True)
class Comparison:
    """`lines`: those with differences first. `equals_summary`: whether AllocTRES is what sreport has, for every account
    and TRES; None where that is not known. `unknown`: the account that was asked for, where the cluster neither has it
    nor saw a job of it.
    """

    lines: tuple[Line, ...]
    total: Line
    equals_summary: bool | None = None
    unknown: str = ""

    @property
    def moves(self) -> bool:
        return any(line.moves for line in self.lines)


def compare(readings: Readings, only: str = "") -> Comparison:
    """`only`: this account, whether or not it used anything."""
    accounts = {only} if only else _accounts(readings)
    lines = [_line(readings, account) for account in sorted(accounts)]
    if not only:
        lines = [line for line in lines if _says_something(line)]
    lines.sort(key=lambda line: (not line.differs, line.account))
    unknown = only if only and not _is_known(readings, only) else ""
    return Comparison(tuple(lines), _total(readings, lines), _equals_summary(lines), unknown)


def _equals_summary(lines: Iterable[Line]) -> bool | None:
    """Where nothing was counted in both ways there is nothing to be equal."""
    compared = [s.as_summed for line in lines for s in line.seconds.values() if s.is_summed]
    return all(compared) if compared else None


def _is_known(readings: Readings, account: str) -> bool:
    usages = [*readings.usages.values(), *((readings.last_runs,) if readings.last_runs else ())]
    return account in readings.known or any(account in usage.accounts for usage in usages)


def _accounts(readings: Readings) -> set[str]:
    told = {account for (account, _), amount in (readings.waldur or {}).items() if amount}
    return told.union(*(usage.accounts for usage in readings.usages.values()))


def _says_something(line: Line) -> bool:
    return any(any(s.counts.values()) for s in line.seconds.values()) or any(
        a.told for a in line.amounts.values()
    )


def _line(readings: Readings, account: str) -> Line:
    is_known = _is_known(readings, account)
    counts = {way: _counts(usage, account) if is_known else None for way, usage in readings.usages.items()}
    last_runs = _counts(readings.last_runs, account) if readings.last_runs and is_known else None
    return Line(
        account,
        {tres: _seconds(tres, counts, last_runs) for tres in _tres(readings, counts.values())},
        {c.name: _amounts(readings, c, counts, account) for c in readings.components},
        readings.resources.get(account, ""),
    )


def _counts(usage: Usage, account: str) -> Counts | None:
    """None where there was no answer at all."""
    found = usage.accounts.get(account)
    if not usage.records:
        return None
    return found.total if found else {}


def _tres(readings: Readings, counts: Iterable[Counts | None]) -> list[str]:
    """All that anybody counted, and what the components name, which may be nothing."""
    named = {name for c in readings.components if c.name not in readings.untracked for name in targets_of(c)}
    return sorted(named.union(*(found for found in counts if found)))


def _seconds(tres: str, counts: Mapping[Way, Counts | None], last_runs: Counts | None) -> Seconds:
    found = {way: None if each is None else each.get(tres, 0) for way, each in counts.items()}
    asked, reference = found.get(Way.REQUESTED), found.get(Way.REFERENCE)
    if last_runs is None or asked is None:
        return Seconds(tres, found)
    last = last_runs.get(tres, 0)
    return Seconds(tres, found, asked - last, None if reference is None else last - reference)


def _amounts(
    readings: Readings, component: Component, counts: Mapping[Way, Counts | None], account: str
) -> Amounts:
    def amount(way: Way, found: Counts | None) -> Decimal | None:
        if found is None or component.name in readings.untracked:
            return None
        return reported_amount(component, found, readings.usages[way].scale)

    amounts = {way: amount(way, found) for way, found in counts.items()}
    waldur = readings.waldur
    return Amounts(
        component=component.name,
        amounts=amounts,
        tres=tuple(sorted(targets_of(component))),
        next=amounts.get(OF_SOURCE[readings.source]),
        told=waldur.get((account, component.name)) if waldur is not None else None,
        is_told_known=waldur is not None and (account, component.name) in waldur,
    )


def _total(readings: Readings, lines: Sequence[Line]) -> Line:
    tres = sorted({name for line in lines for name in line.seconds})
    return Line(
        "",
        {name: _sum_of_seconds(name, [s for x in lines if (s := x.seconds.get(name))]) for name in tres},
        {
            c.name: _sum_of_amounts([line.amounts[c.name] for line in lines])
            for c in readings.components
            if lines
        },
    )


def _sum_of_seconds(tres: str, parts: Sequence[Seconds]) -> Seconds:
    return Seconds(
        tres,
        {way: _sum(part.counts.get(way) for part in parts) for way in _ways(part.counts for part in parts)},
        _sum(part.requeues for part in parts),
        _sum(part.border for part in parts),
    )


def _sum_of_amounts(parts: Sequence[Amounts]) -> Amounts:
    ways = _ways(part.amounts for part in parts)
    return Amounts(
        component=parts[0].component,
        amounts={way: _sum_of_decimals(part.amounts.get(way) for part in parts) for way in ways},
        tres=parts[0].tres,
        next=_sum_of_decimals(part.next for part in parts if part.is_told_known),
        told=_sum_of_decimals(part.told for part in parts),
        is_told_known=any(part.is_told_known for part in parts),
    )


def _ways(parts: Iterable[Mapping[Way, object]]) -> list[Way]:
    found = {way for part in parts for way in part}
    return [way for way in Way if way in found]


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Of those that are known; None where none is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _sum_of_decimals(numbers: Iterable[Decimal | None]) -> Decimal | None:
    known = [number for number in numbers if number is not None]
    return sum(known, Decimal(0)) if known else None
