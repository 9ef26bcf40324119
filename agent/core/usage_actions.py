# SPDX-License-Identifier: MIT
"""What Waldur is told of usage: totals of a resource in a month, and the shares of its users.

An action is known by its resource, month and component; the amounts grow from pass to pass and take no part in
equality, so that an approval of a decrease holds for the figures of the next pass, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from agent.core.waldur_actions import WaldurAction

# Names (of components or users) with amounts in Waldur's units, two decimals each; None where Waldur has none.
Amounts = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, kw_only=True)
class ReportUsage(WaldurAction):
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
class ReportUserUsage(WaldurAction):
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
