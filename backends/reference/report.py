# SPDX-License-Identifier: MIT
"""What a backend of the reference reports of one account, as counts: components of Waldur, in its units.

`{"TOTAL_ACCOUNT_USAGE": {component: amount}, "<username>": {component: amount}}`
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from agent.core.bounded_json import read_json
from agent.core.printable import printable
from agent.core.usage import AccountUsage, Counts

TOTAL = "TOTAL_ACCOUNT_USAGE"
# Counts per unit.
SCALE = 1_000_000
# Waldur keeps 18 digits before the point.
MAX_AMOUNT = Decimal(10) ** 18
NAME_AT_MOST = 256
WHOLE = Decimal(1)


class WrongReport(ValueError):
    """What was reported of an account is not usage; the text goes on after the account's name."""


def document_of(line: str) -> Any:
    """Return the document of a line, amounts as Decimal. Raises ValueError."""
    return read_json(line, parse_int=Decimal, parse_float=Decimal)


def account_usage(found: Any, components: Collection[str]) -> AccountUsage:
    """Return the counts of an account. Raises WrongReport."""
    if not isinstance(found, Mapping) or TOTAL not in found:
        raise WrongReport(f"the report is no map with {TOTAL}")
    users = {}
    for user, amounts in found.items():
        if len(user) > NAME_AT_MOST or printable(user) != user:
            raise WrongReport(f"{printable(user)[:NAME_AT_MOST]!r} is no username")
        users[user] = _counts(user, amounts, components)
    return AccountUsage(users.pop(TOTAL), users)


def other_components(found: Any, components: Collection[str]) -> set[str]:
    """Return what else than these components is reported of an account."""
    return {name for amounts in found.values() for name in amounts} - set(components)


def _counts(user: str, amounts: Any, components: Collection[str]) -> Counts:
    if not isinstance(amounts, Mapping):
        raise WrongReport(f"what {user} has used is no map of components")
    return {name: _count(name, amount) for name, amount in amounts.items() if name in components}


def _count(name: str, amount: Any) -> int:
    """Return an amount as a count. A number that JSON does not have (NaN, Infinity) comes as a float."""
    if not isinstance(amount, Decimal) or not 0 <= amount < MAX_AMOUNT:
        shown = f"{amount:.6g}" if isinstance(amount, Decimal) else repr(amount)[:80]
        raise WrongReport(f"{name} is {shown}, and usage is a number from 0 to 10^18")
    return int((amount * SCALE).quantize(WHOLE, ROUND_HALF_EVEN))
