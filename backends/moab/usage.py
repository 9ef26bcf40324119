# SPDX-License-Identifier: MIT
"""Reads what was charged, by mam-list-usagerecords: one command for the month of all accounts, summed as its lines
come.

Both ends are inclusive and whole seconds, so the month goes from its first second to its last, by the clocks of the
query's zone. Charges are amounts of the currency; they count in millionths of it.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterable
from contextlib import closing
from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Decimal

from agent.core.errors import ParseError
from agent.core.usage import AccountUsage, Usage, UsageQuery
from backends.moab import parse
from backends.moab.columns import MOMENT
from backends.moab.components import DEPOSIT
from backends.moab.programs import Programs, answer
from backends.process import Completed, Runner
from backends.zones import Zones

SCALE = 1_000_000
TIMEOUT_S = 180.0
WHOLE = Decimal(1)


class Records:
    """Usage records of one MAM."""

    def __init__(self, runner: Runner, programs: Programs) -> None:
        self._runner = runner
        self._programs = programs
        self._zones = Zones(runner)

    def usage(self, query: UsageQuery) -> Usage:
        """Read the whole month of all accounts. Raises BackendError: an answer that is broken anywhere is none."""
        lines = self._runner.lines(
            self._command(query), timeout_s=TIMEOUT_S, environment=self._zones.environment(query)
        )
        with closing(_checked_lines(lines)) as checked:
            return _summed(query, checked)

    def can_be_read(self) -> None:
        """Raises BackendError where not even a moment of long ago can."""
        answer(self._runner.read((*self._programs.usage, *MOMENT)))

    def command(self, query: UsageQuery, account: str) -> str:
        """Return the command for one account, as a shell takes it."""
        command = (*self._command(query), "-a", account)
        if self._runner.prefixed:
            return shlex.join(self._runner.argv(command, {"TZ": query.zone}))
        return f"TZ={shlex.quote(query.zone)} {shlex.join(command)}"

    def _command(self, query: UsageQuery) -> tuple[str, ...]:
        first, after = query.month.first_day, query.month.next.first_day
        last = after - timedelta(days=1)
        return (*self._programs.usage, "-s", f"{first}T00:00:00", "-e", f"{last}T23:59:59")


def _checked_lines(lines: Generator[str, None, Completed]) -> Generator[str, None, None]:
    """Yield the lines; only after the last one it is known whether any of them counts."""
    completed = yield from lines
    if cut := answer(completed):
        raise ParseError(" ".join(completed.argv), cut, "the last line is cut")


def _summed(query: UsageQuery, lines: Iterable[str]) -> Usage:
    """Summed as amounts, and rounded to what is counted only then. Records without an account count for no user."""
    sums: dict[tuple[str, str], Decimal] = {}
    records = 0
    for account, user, charge in parse.usage(lines):
        records += 1
        sums[account, user] = sums.get((account, user), Decimal(0)) + charge
    users: dict[str, dict[str, int]] = {}
    for (account, user), charged in sums.items():
        if account:
            counted = int((charged * SCALE).quantize(WHOLE, ROUND_HALF_EVEN))
            users.setdefault(account, {})[user] = counted
    return Usage(
        query,
        {
            account: AccountUsage(
                {DEPOSIT: sum(counts.values())}, {user: {DEPOSIT: count} for user, count in counts.items()}
            )
            for account, counts in users.items()
        },
        records,
        SCALE,
    )
