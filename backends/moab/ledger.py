# SPDX-License-Identifier: MIT
"""State of MAM as values: accounts with their members, and funds. Pure.

Names are looked up folded, as Waldur and the plans have them; `name` is how MAM spells them, for commands. The funds
of an account are those whose only constraint is this account: what else a user of it can draw on is the site's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from agent.core.account_names import fold
from backends.moab.components import DEPOSIT

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class MamAccount:
    """An account of MAM."""

    name: str
    organization: str = ""
    active: bool = True
    # Spelling by folded name, whether they are active members or not.
    users: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fund:
    """Credit of one account."""

    id: int
    # All that was deposited and not withdrawn, whatever was charged since.
    allocated: Decimal
    # What is left.
    balance: Decimal
    constraints: str = ""

    @property
    def owner(self) -> str:
        """Return the account that it is for, alone and with no further condition; empty for all other funds."""
        kind, equals, name = self.constraints.partition("=")
        return name if equals and kind == "Account" and "," not in name else ""


@dataclass(frozen=True)
class Ledger:
    """What MAM holds."""

    # By folded name.
    accounts: Mapping[str, MamAccount] = field(default_factory=dict)
    # Of accounts, by the spelling of their constraint, lowest id first.
    funds: Mapping[str, tuple[Fund, ...]] = field(default_factory=dict)
    # For people, the funds that an account shares or has for a part of it only.
    uncounted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def spelled(self, account: str) -> str:
        """Return the account as MAM spells it, or as it will be made."""
        found = self.accounts.get(account)
        return found.name if found else account

    def funds_of(self, account: str) -> tuple[Fund, ...]:
        return self.funds.get(self.spelled(account), ())

    def users_of(self, account: str) -> Mapping[str, str]:
        found = self.accounts.get(account)
        return found.users if found else {}

    def without(self, account: str) -> Ledger:
        """Return the ledger without the account and its funds."""
        spelled = self.spelled(account)
        return Ledger(
            {name: found for name, found in self.accounts.items() if name != account},
            {owner: funds for owner, funds in self.funds.items() if owner != spelled},
            self.uncounted,
        )

    def key_path(self, account: str) -> frozenset[str]:
        """Return the accounts that have this one as their organization."""
        return frozenset(name for name in self.accounts if self.parent(name) == account)

    def parent(self, account: str) -> str:
        """Return the organization, folded, where it can stand above the account; empty where it cannot."""
        above = self._organization(account)
        seen = {account}
        place = above
        while place and place not in seen:
            seen.add(place)
            place = self._organization(place)
        return "" if place == account else above

    def _organization(self, account: str) -> str:
        found = self.accounts.get(account)
        return fold(found.organization) if found else ""

    def limits(self, account: str) -> Mapping[str, int]:
        """Return what its funds were given, in whole units of the currency: none for an account without a fund. Where
        MAM shows no fund of any account that may be a fault, and nothing is said.
        """
        given = total(self.funds_of(account))
        return {DEPOSIT: int(given.to_integral_value(ROUND_FLOOR))} if self.funds else {}

    def least(self, account: str) -> Mapping[str, int]:
        """Return what its limit can be lowered to: all but what is left can be taken out of no fund."""
        funds = self.funds_of(account)
        left = sum((max(fund.balance, ZERO) for fund in funds), ZERO)
        return {DEPOSIT: int((total(funds) - left).to_integral_value(ROUND_FLOOR))} if self.funds else {}

    def used(self, account: str) -> Mapping[str, int]:
        """Return what of that is gone, a begun unit counted whole; nothing is known of an account that is not there."""
        if not self.funds or account not in self.accounts:
            return {}
        gone = sum((fund.allocated - fund.balance for fund in self.funds_of(account)), ZERO)
        return {DEPOSIT: int(max(gone, ZERO).to_integral_value(ROUND_CEILING))}

    def remarks(self, account: str) -> tuple[str, ...]:
        """Return what people should know about the funds of an account that stands."""
        found = []
        if self.funds and not self.funds_of(account):
            found.append(
                "it has no fund of its own in MAM: its deposit counts as 0, and the next one makes a fund"
            )
        if others := self.uncounted.get(account):
            found.append(f"funds that are not for it alone are not counted: {', '.join(others)}")
        return tuple(found)

    def funds_of_deleted(self, account: str) -> tuple[Fund, ...]:
        """Return the funds of an account that does not exist any more which have, or had, something in them."""
        if account in self.accounts:
            return ()
        return tuple(fund for fund in self.funds_of(account) if fund.allocated or fund.balance)


def total(funds: tuple[Fund, ...]) -> Decimal:
    return sum((fund.allocated for fund in funds), ZERO)
