# SPDX-License-Identifier: MIT
"""Count the months of one report on a large cluster: in full now and then, and in between what still counts.

A full count parts the jobs of each month at a moment some hours ago. Those that ended before it are finalised:
their sums are kept. Later reports ask sacct for the others only, and add the two. Each of them starts from the last
full count, so nothing adds up. That is the same as a full count when no finalised job changes, and no job becomes a
finalised one:

- slurmctld had reported every end before the moment to slurmdbd: it had no message left for it (`sdiag`) just before
  the full count, and the moment is hours before that.
- jobs that had begun, and were not finalised, are the same ones in both reads (`backends.slurm.split`).
- no user was renamed since (`show transactions`): finalised jobs would be under the new name.

Where one of these is not certain, the month is read in full. Nothing in SLURM shows that finalised rows were
changed or deleted in the database: they are right again after the next full count.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from agent.core.errors import BackendError
from agent.core.usage import AccountUsage, Counts, FinalisedMonth, FinalisedUsage, Usage, UsageQuery
from backends.process import Runner
from backends.slurm.programs import Programs, output
from backends.slurm.split import SplitUsage
from backends.slurm.usage import Accounting
from backends.zones import window

log = logging.getLogger(__name__)

# A month of fewer jobs is read in full each time: that takes a second.
LARGE = 50_000
FULL_EVERY = timedelta(hours=6)
# The last reports of a month may be the last that Waldur takes of it.
CLOSING = timedelta(hours=2)
# The moment is so long before a full count. Clocks may differ, or be set back, by as much.
FINALISED_AFTER = timedelta(hours=6)
# Jobs that began so long after the moment, which is an hour before a full count, must be seen again. Later ones may be
# new to slurmdbd, and nodes that are powered up change the time when a job began.
WATCHED_S = int(FINALISED_AFTER.total_seconds()) - 3600
# Changed where jobs are counted in another way: what was kept before is of no use then.
COUNT_VERSION = 1

SDIAG_TIME = re.compile(r"^sdiag output at .*\((\d{1,12})\)", re.MULTILINE)
SDIAG_QUEUE = re.compile(r"^DBD Agent queue size:\s*(\d{1,12})\s*$", re.MULTILINE)
NEW_NAME = re.compile(r"(?:^|, )name=")


class JobCount:
    """One report's count. `finalised`: what the last one left; `now`: as the report has it."""

    def __init__(  # noqa: PLR0913  what a backend has
        self,
        accounting: Accounting,
        runner: Runner,
        programs: Programs,
        cluster: str,
        finalised: FinalisedUsage | None,
        now: datetime,
        *,
        may_be_large: bool,
        large: int = LARGE,
    ) -> None:
        self.finalised = finalised
        self._accounting = accounting
        self._runner = runner
        self._programs = programs
        self._cluster = cluster
        self._now_s = int(now.timestamp())
        self._may_be_large = may_be_large
        self._large = large
        # The first month, and whether the finalised sums are those of this report.
        self._first: UsageQuery | None = None
        self._is_certain = False

    def usage(self, query: UsageQuery) -> Usage:
        """Return the month's usage, in TRES-seconds. Raises BackendError."""
        if self._first is None:
            self._first = query
            return self._first_month(query)
        finalised = self.finalised
        # What was found certain holds for the first month and those before it.
        if not self._is_certain or finalised is None or self._first.month < query.month:
            return self._in_full(query)
        month = finalised.months.get(str(query.month))
        if month is None:
            return self._finalise(query, finalised)
        return _added(query, month, self._later(query, finalised).others)

    def _first_month(self, query: UsageQuery) -> Usage:
        finalised, source = self.finalised, self._source(query)
        why = self._why_in_full(query, source)
        if not why and finalised is not None:
            read = self._later(query, finalised)
            if read.others.records and read.watched == finalised.watched:
                self._is_certain = True
                return _added(query, finalised.months[str(query.month)], read.others)
            why = "jobs of the last full count have changed in slurmdbd, or some were reported to it late"
            log.info("%s is counted in full: %s", query.month, why)
        elif why:
            log.debug("%s is counted in full: %s", query.month, why)
        is_large = finalised.size >= self._large if finalised else self._may_be_large
        before = self._finalised_before() if is_large else 0
        if before:
            begun = FinalisedUsage(source, self._now_s, 0, before, month=str(query.month))
            self._is_certain = True
            return self._finalise(query, begun)
        return self._in_full(query)

    def _in_full(self, query: UsageQuery) -> Usage:
        """Count a month in full, and keep nothing but its size where that matters."""
        usage = self._accounting.usage(query)
        known = self.finalised
        if self._is_certain:
            return usage
        size = max(usage.records, known.size if known else 0)
        is_news = known.before or known.size < size if known else size >= self._large
        if is_news:
            self.finalised = FinalisedUsage(self._source(query), self._now_s, size)
        return usage

    def _later(self, query: UsageQuery, finalised: FinalisedUsage) -> SplitUsage:
        return self._accounting.split(query, finalised.before, finalised.before + WATCHED_S, later_only=True)

    def _finalise(self, query: UsageQuery, finalised: FinalisedUsage) -> Usage:
        """Count a month in full and keep the sums of its jobs that have ended."""
        read = self._accounting.split(query, finalised.before, finalised.before + WATCHED_S)
        sums = {name: account.users for name, account in read.ended.accounts.items()}
        month = FinalisedMonth(read.ended.records, sums)
        is_first = str(query.month) == finalised.month
        self.finalised = FinalisedUsage(
            source=finalised.source,
            taken=finalised.taken,
            size=max(finalised.size, read.ended.records + read.others.records),
            before=finalised.before,
            watched=read.watched if is_first else finalised.watched,
            month=finalised.month,
            months={**finalised.months, str(query.month): month},
        )
        return _added(query, month, read.others)

    def _why_in_full(self, query: UsageQuery, source: str) -> str:
        """Say why the finalised sums are not used; empty where they are."""
        finalised = self.finalised
        if finalised is None or not finalised.before:
            return "nothing is kept of a count before"
        if finalised.source != source:
            return "it was counted from another place, or in another way"
        if finalised.month != str(query.month) or finalised.month not in finalised.months:
            return "another month was counted before"
        if not 0 <= self._now_s - finalised.taken < FULL_EVERY.total_seconds():
            return f"the last full count is not of the last {FULL_EVERY.total_seconds() / 3600:.0f} hours"
        if 0 < window(query)[1] - self._now_s <= CLOSING.total_seconds():
            return "the month is about to end"
        return self._renaming(finalised)

    def _renaming(self, finalised: FinalisedUsage) -> str:
        """Say whether users were renamed. Rows have slurmdbd's time, whose clock may differ."""
        since = datetime.fromtimestamp(finalised.taken, UTC) - FINALISED_AFTER
        command = (
            *(*self._programs.sacctmgr_read, "show", "transactions", "action=Modify Users"),
            *(f"start={since:%Y-%m-%dT%H:%M:%S}", "format=info"),
        )
        try:
            # Named, for our own does not go through a prefix.
            lines = output(self._runner.read(command, environment={"TZ": "UTC"})).splitlines()
        except BackendError as error:
            return f"whether users were renamed is not known: {error}"
        return "a user was renamed" if any(map(NEW_NAME.search, lines)) else ""

    def _finalised_before(self) -> int:
        """Return the moment up to which slurmdbd knows every end, in epoch seconds; 0 where that is not certain."""
        cluster = (f"--cluster={self._cluster}",) if self._cluster else ()
        try:
            said = output(self._runner.read((self._programs.sdiag, *cluster)))
        except BackendError as error:
            log.info("usage is counted in full in every report while slurmctld does not answer: %s", error)
            return 0
        queue, time = SDIAG_QUEUE.search(said), SDIAG_TIME.search(said)
        if queue is None or time is None or queue[1] != "0":
            log.info(
                "usage is counted in full in every report while slurmctld has more to report to slurmdbd: "
                "`sdiag` shows a DBD Agent queue of %s",
                queue[1] if queue else "unknown size",
            )
            return 0
        return min(self._now_s, int(time[1])) - int(FINALISED_AFTER.total_seconds())

    def _source(self, query: UsageQuery) -> str:
        """Return a fingerprint of where and how it is counted. Hashed, for a prefix may hold a password."""
        variables = sorted(item for item in os.environ.items() if item[0].startswith("SLURM"))
        place = (self._cluster, self._programs.sacct_read, self._runner.argv(()), variables)
        return blake2b(
            repr((COUNT_VERSION, place, query.zone, str(query.source))).encode(), digest_size=16
        ).hexdigest()


def _added(query: UsageQuery, month: FinalisedMonth, others: Usage) -> Usage:
    """Return the sum of finalised jobs and others."""
    accounts: dict[str, AccountUsage] = {}
    for name in {*month.accounts, *others.accounts}:
        finalised = month.accounts.get(name, {})
        found = others.accounts.get(name)
        users: Mapping[str, Counts] = finalised
        if found is not None:
            users = {**finalised, **{u: _sum(finalised.get(u, {}), c) for u, c in found.users.items()}}
        accounts[name] = AccountUsage(_sum(*users.values()), users)
    return Usage(query, accounts, month.records + others.records, live=others.live)


def _sum(*counts: Counts) -> Counts:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)
