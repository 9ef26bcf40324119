# SPDX-License-Identifier: MIT
"""Usage of a closed month by sreport, to compare with: what slurmdbd's rollup has summed up of AllocTRES.

Only whole months of slurmdbd's own zone are asked for: it reads them from one small table. Anything else it adds up
from the hours: that ran for minutes, went on when sreport had been killed, and ended slurmdbd (22.05). Output without
rows is unknown usage, not zero: so sreport ends, with 0, where the cluster has no summary of that time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace

from agent.core.account_names import fold
from agent.core.errors import BackendError, ParseError
from agent.core.usage import Usage, UsageQuery, UsageSource
from backends.command_output import is_whole
from backends.process import Runner
from backends.slurm.programs import Programs, streamed
from backends.slurm.tally import TOTALS, Sums, accounts
from backends.zones import Zones, window

TIMEOUT_S = 120.0
COLUMNS = ("Account", "Login", "TRESName", "Used")


class MonthOpen(BackendError):
    """The month has not ended: there is no summary of it."""


class ZoneDiffers(BackendError):
    """Months of the zone are not those of the cluster."""


class Rollup:
    """Reads the summaries of one cluster; without a name, of the one of slurm.conf."""

    def __init__(self, runner: Runner, programs: Programs, cluster: str, zones: Zones) -> None:
        self._runner = runner
        self._programs = programs
        self._clusters = (f"clusters={cluster}",) if cluster else ()
        self._zones = zones

    def usage(self, query: UsageQuery) -> Usage:
        """Return the month's usage in TRES-seconds as the rollup has it.

        Raises MonthOpen, ZoneDiffers and other kinds of BackendError.
        """
        environment = self._zones.environment(query)
        if time.time() < window(query)[1]:
            raise MonthOpen(f"{query.month} has not ended: sreport reports closed months only")
        if difference := self._zones.difference(query):
            raise ZoneDiffers(
                f"{query.month} in {query.zone} is no month of the cluster's own zone ({difference}): sreport would "
                "add it up hour by hour, which has brought slurmdbd down. sacct is exact in every zone"
            )
        command = (
            *(self._programs.sreport, "--noheader", "--parsable2", "-t", "seconds", "--tres=all"),
            *("cluster", "AccountUtilizationByUser", *self._clusters),
            *(f"start={query.month.first_day}", f"end={query.month.next.first_day}"),
            f"format={','.join(COLUMNS)}",
        )
        with closing(self._runner.lines(command, timeout_s=TIMEOUT_S, environment=environment)) as lines:
            sums, records = _sums(streamed(lines))
        return Usage(replace(query, source=UsageSource.ALLOCATED), accounts(sums), records)


def _sums(lines: Iterable[str]) -> tuple[Sums, int]:
    """Sum the rows of users, and count them. A row without a user is an account's, with all accounts below it."""
    sums: dict[tuple[str, str], Counter[str]] = {}
    records = 0
    for line in lines:
        row = line.split("|")
        if len(row) != len(COLUMNS) or not is_whole(row[3]):
            raise ParseError(
                "sreport", line, "the columns are not those asked for (account, user, TRES, seconds)"
            )
        account, user, tres, used = row
        if not user:
            continue
        records += 1
        counts = sums.setdefault((fold(account), fold(user)), Counter())
        if used != "0" and tres not in TOTALS:
            counts[tres] += int(used)
    return sums, records
