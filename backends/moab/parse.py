# SPDX-License-Identifier: MIT
"""From the text of MAM's lists to values. Parsed whole or not at all: an answer that is broken anywhere is none.

Every command names its columns; the last one may hold `|`, which parts the others (`--raw`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal

from agent.core.account_names import fold
from agent.core.errors import ParseError
from backends.command_output import is_whole, lines
from backends.moab.allowed_names import RESERVED
from backends.moab.ledger import ZERO, Fund, MamAccount

log = logging.getLogger(__name__)

ACCOUNT_COLUMNS = ("Name", "Active", "Users", "Organization")
FUND_COLUMNS = ("Id", "Allocated", "Balance", "Constraints")
USER_COLUMNS = ("Name", "DefaultAccount")
USAGE_COLUMNS = ("Account", "User", "Charge")
# No amount of a site's currency has more digits, before or after the point.
_AMOUNT = re.compile(r"[+-]?[0-9]{1,16}(?:\.[0-9]{0,15})?")
CHARGES_REMEMBERED = 50_000
# MAM prints True and False; older commands of its family 1 and 0.
_ACTIVE = {"true": True, "1": True, "false": False, "0": False}


def accounts(stdout: str) -> dict[str, MamAccount]:
    """`mam-list-accounts` by folded name. Two that differ in their case only: the one in lower case is meant."""
    found: dict[str, MamAccount] = {}
    for line, (name, active, users, organization) in _rows("mam-list-accounts", stdout, 4):
        state = _ACTIVE.get(active.strip().lower())
        if not name.strip() or state is None:
            raise ParseError("mam-list-accounts", line, "it should begin like a_demo|True|")
        account = MamAccount(name, organization.strip(), state, _members(users))
        key = fold(name)
        other = found.get(key)
        if other is not None:
            log.warning("MAM has accounts %s and %s: Waldur can only mean one of them", other.name, name)
            account = other if other.name == key else account
        found[key] = account
    return found


def funds(stdout: str) -> dict[str, tuple[Fund, ...]]:
    """`mam-list-funds`: the funds of accounts, by account as the constraint spells it. What the site's other funds
    hold is not looked at: it may be `unlimited`, or nothing.
    """
    found: dict[str, list[Fund]] = {}
    for line, (number, allocated, balance, constraints) in _rows("mam-list-funds", stdout, 4):
        if not is_whole(number.strip()):
            raise ParseError("mam-list-funds", line, "the id of a fund is a whole number")
        fund = Fund(int(number), ZERO, ZERO, constraints)
        if fund.owner:
            given, left = (amount("mam-list-funds", text, line) for text in (allocated, balance))
            found.setdefault(fund.owner, []).append(replace(fund, allocated=given, balance=left))
    return {owner: tuple(sorted(several, key=lambda fund: fund.id)) for owner, several in found.items()}


def uncounted(stdout: str) -> dict[str, tuple[str, ...]]:
    """Funds for an account and something else as well, by folded account: id and constraints, for people."""
    found: dict[str, list[str]] = {}
    for _, (number, _, _, constraints) in _rows("mam-list-funds", stdout, 4):
        several = constraints.split(",")
        for word in several if len(several) > 1 else ():
            kind, _, name = word.strip().partition("=")
            if kind == "Account" and name:
                found.setdefault(fold(name), []).append(f"{number.strip()} ({constraints})")
    return {name: tuple(funds) for name, funds in found.items()}


def default_accounts(stdout: str) -> dict[str, str]:
    """`mam-list-users`: every user, with "" for who has no default account.

    Whoever runs the commands is a user of MAM: without anybody nothing was read.
    """
    found = {fold(name): fold(account) for _, (name, account) in _rows("mam-list-users", stdout, 2)}
    if not found:
        raise ParseError("mam-list-users", "", "no user is listed, and whoever asks should be")
    return found


def usage(records: Iterable[str]) -> Iterator[tuple[str, str, Decimal]]:
    """Lines of `mam-list-usagerecords`: account, user and charge of each job."""
    # Most jobs of a month cost one of a few amounts.
    charges: dict[str, Decimal] = {}
    for line in records:
        row = line.split("|")
        if len(row) != len(USAGE_COLUMNS):
            raise ParseError("mam-list-usagerecords", line, f"3 columns were asked for, {len(row)} came")
        if (charge := charges.get(row[2])) is None:
            charge = amount("mam-list-usagerecords", row[2], line)
            if len(charges) < CHARGES_REMEMBERED:
                charges[row[2]] = charge
        yield fold(row[0]), fold(row[1]), charge


def amount(command: str, text: str, line: str) -> Decimal:
    """Return an amount of the currency, as it is printed. Raises ParseError."""
    # Decimal reads more than MAM prints: exponents, and numbers of a million digits.
    if not _AMOUNT.fullmatch(text.strip()):
        raise ParseError(command, line, f"{text!r} is no amount")
    return Decimal(text.strip())


def _members(text: str) -> dict[str, str]:
    """`ann,-bob,^eve`: an inactive member and an administrator are members; ANY is not the name of a user."""
    names = (word.strip().lstrip("^+-") for word in text.split(","))
    return {fold(name): name for name in names if name and name.lower() not in RESERVED}


def _rows(command: str, stdout: str, columns: int) -> Iterator[tuple[str, list[str]]]:
    for line in lines(command, stdout):
        row = line.split("|", columns - 1)
        if len(row) != columns:
            raise ParseError(command, line, f"{columns} columns were asked for, {len(row)} came")
        yield line, row
