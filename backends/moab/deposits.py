# SPDX-License-Identifier: MIT
"""From a limit to the deposit or withdrawals that bring the funds of an account there. Pure.

A limit is what the funds were given in all (`Allocated`), which charges do not change: only the difference is ever
moved, so that doing it again moves nothing. What is spent cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from backends.moab.ledger import ZERO, Fund, total


@dataclass(frozen=True, slots=True)
class Move:
    """An amount into a fund, or out of it where it is below zero."""

    fund: int
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Moves:
    """What is deposited and withdrawn."""

    moves: tuple[Move, ...] = ()
    # What should be taken out as well, and is spent.
    missing: Decimal = ZERO


def moves(funds: Sequence[Fund], wanted: int) -> Moves:
    """Into the oldest fund; out of the newest first, each down to nothing. There must be a fund."""
    difference = Decimal(wanted) - total(tuple(funds))
    if difference >= 0:
        return Moves((Move(funds[0].id, difference),) if difference else ())
    left = -difference
    found = []
    for fund in reversed(funds):
        part = min(left, max(fund.balance, ZERO))
        if part > 0:
            found.append(Move(fund.id, -part))
            left -= part
    return Moves(tuple(found), left)


def printed(amount: Decimal) -> str:
    """As MAM takes it: plain digits, no exponent, no zeros behind."""
    text = f"{abs(amount):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
