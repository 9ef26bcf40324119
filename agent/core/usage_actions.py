# SPDX-License-Identifier: MIT
"""What is reported to Waldur of usage: totals of a resource in a month, and the shares of its users.

An action is known by its resource, month and component; the amounts grow from pass to pass and take no part in
equality, so that an approval of a decrease holds for the figures of the next pass, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import ClassVar, Self

from agent.core.actions import Target
from agent.core.waldur_actions import WaldurAction

# Names (of components or users) with amounts in Waldur's units, two decimals each; None where Waldur has none.
Amounts = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, kw_only=True)
class UsageAction(WaldurAction):
    """Report a resource's usage in one month."""

    target: ClassVar[Target] = Target.RESOURCE
    identifiers: ClassVar[Mapping[str, str]] = {"resource": "resource", "account": "account"}
    fleeting: ClassVar[frozenset[str]] = frozenset({"before", "after", "may_fall"})
    grows: ClassVar[bool] = True
    # Its totals, which its users' shares add up to.
    is_total: ClassVar[bool]

    resource: str
    account: str
    # Written `2024-03`.
    month: str
    # Less than Waldur has is no mistake (`Usage.may_fall`).
    may_fall: bool = field(default=False, compare=False)
    before: Amounts = field(default=(), compare=False)
    after: Amounts = field(compare=False)

    def decreases(self) -> Iterator[tuple[str, str, str]]:
        before = dict(self.before)
        for name, amount in self.after:
            was = before.get(name)
            if was is not None and amount is not None and Decimal(amount) < Decimal(was):
                yield self.called(name), was, amount

    def called(self, name: str) -> str:
        """Return what an operator knows this figure by."""
        return name

    @property
    def figures(self) -> str:
        return changed_amounts(self.before, self.after)

    @property
    def components(self) -> tuple[str, ...]:
        """Return the components that it reports."""
        return tuple(name for name, _ in self.after)

    def part(self, components: Set[str]) -> Self | None:
        """Return what of it is about these components; None where that is nothing."""
        after = tuple((name, amount) for name, amount in self.after if name in components)
        return replace(self, after=after) if after else None

    def in_short(self) -> str:
        """Return what it reports, without the account."""
        return f"{self.month}: {self.figures}"


@dataclass(frozen=True, kw_only=True)
class ReportUsage(UsageAction):
    """Set the month's totals of a resource, all its components at once."""

    subject = "of {account} in {month}: {figures}"
    is_total: ClassVar[bool] = True

    @property
    def month_total(self) -> tuple[str, str, Mapping[str, str | None]]:
        return self.month, self.account, dict(self.after)


@dataclass(frozen=True, kw_only=True)
class ReportUserUsage(UsageAction):
    """Set what users had of one component in the month; users not named keep theirs."""

    verb = "report usage of users"
    subject = "of {account} in {month}, {component}: {figures}"
    is_total: ClassVar[bool] = False
    component: str

    def called(self, name: str) -> str:
        return f"{self.component} of {name}"

    @property
    def components(self) -> tuple[str, ...]:
        return (self.component,)

    def part(self, components: Set[str]) -> Self | None:
        return self if self.component in components else None

    def in_short(self) -> str:
        return f"{self.component} of {len(self.after)} user{'s' if len(self.after) > 1 else ''}"


def changed_amounts(before: Amounts, after: Amounts) -> str:
    """Return what changes, in Waldur's units: `cpu 10.00 -> 12.50, mem 3.00`."""
    known = dict(before)
    return ", ".join(
        f"{name} {known[name]} -> {amount}" if known.get(name) is not None else f"{name} {amount}"
        for name, amount in after
    )
