# SPDX-License-Identifier: MIT
"""What Waldur is told of usage: totals of a resource in a month, and the shares of its users.

An action is known by its resource, month and component; the amounts grow from pass to pass and take no part in
equality, so that an approval of a decrease holds for the figures of the next pass, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar

from agent.core.waldur_actions import WaldurAction

# Names (of components or users) with amounts in Waldur's units, two decimals each; None where Waldur has none.
Amounts = tuple[tuple[str, str | None], ...]


class UsageAction(WaldurAction):
    """Something is told of a resource's usage in a month."""

    resource: str
    account: str
    month: str
    before: Amounts
    after: Amounts

    @property
    def is_routine(self) -> bool:
        """Usage that is told as it grows: jobs go on while a plan is looked at."""
        return not any(self.lowered())

    def lowered(self) -> Iterator[tuple[str, str, str]]:
        """Names with the amount that Waldur has and the smaller one that was counted."""
        before = dict(self.before)
        for name, amount in self.after:
            held = before.get(name)
            if held is not None and amount is not None and Decimal(amount) < Decimal(held):
                yield name, held, amount


@dataclass(frozen=True, kw_only=True)
class ReportUsage(UsageAction):
    """Set the month's totals of a resource, all its components at once. `month` is written `2024-03`."""

    verb: ClassVar[str] = "report usage"
    resource: str
    account: str
    month: str
    before: Amounts = field(default=(), compare=False)
    after: Amounts = field(compare=False)

    def target(self) -> str:
        return f"of {self.account} in {self.month}: {told(self.before, self.after)}"


@dataclass(frozen=True, kw_only=True)
class ReportUserUsage(UsageAction):
    """Set what users had of one component in the month; users not named keep theirs."""

    verb: ClassVar[str] = "report usage of users"
    resource: str
    account: str
    month: str
    component: str
    before: Amounts = field(default=(), compare=False)
    after: Amounts = field(compare=False)

    def target(self) -> str:
        return f"of {self.account} in {self.month}, {self.component}: {told(self.before, self.after)}"


def told(before: Amounts, after: Amounts) -> str:
    """`cpu 10.00 -> 12.50, mem 3.00`: what changes, in Waldur's units."""
    known = dict(before)
    return ", ".join(
        f"{name} {known[name]} -> {amount}" if known.get(name) is not None else f"{name} {amount}"
        for name, amount in after
    )
