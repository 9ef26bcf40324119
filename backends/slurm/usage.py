# SPDX-License-Identifier: MIT
"""Usage by sacct: one command for the month of all accounts, whose lines are summed as they come.

The window goes from the first instant of the month to the first of the next, in the query's zone: with 23:59:59 a
second of every job that runs across the border was lost (22.05). `--duplicates` shows every run of a requeued job,
a running job counts to now, and an end that is still to come does no harm. Output without a line is asked for once
more: slurmdbd gives it, with rc 0, when it failed to read its own database (22.05). Queries `as_reference` and
`last_runs_only` ask otherwise, for comparison only.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta

from agent.core.errors import ParseError
from agent.core.usage import JobUse, Usage, UsageQuery
from backends.command_output import is_whole
from backends.process import Runner
from backends.slurm.programs import Programs, streamed
from backends.slurm.split import Split, SplitUsage
from backends.slurm.tally import TRES_COLUMN, Tally, columns
from backends.zones import Zones, window

# 100,000 jobs take 2 s, but minutes while slurmdbd rolls up. What a killed sacct has asked goes on in the database.
TIMEOUT_S = 180.0
JOBS_PER_COMMAND = 1000
EMPTY_PAUSE_S = 0.5
# slurmctld reports jobs that began, and so their ends, to slurmdbd every five seconds (22.05).
ENDS_KNOWN_AFTER_S = 6.0
# Before any job of SLURM; 0 would be no time at all to sacct.
EVER = "2000-01-01T00:00:00"


class Accounting:
    """Reads the jobs of one cluster through sacct; without a name, of the one of slurm.conf."""

    def __init__(self, runner: Runner, programs: Programs, cluster: str, zones: Zones) -> None:
        self._runner = runner
        self._programs = programs
        self._clusters = (f"--clusters={cluster}",) if cluster else ()
        self._zones = zones

    def usage(self, query: UsageQuery) -> Usage:
        """Return the whole month's usage of all accounts, in TRES-seconds. Raises BackendError.

        One command; two where a job that was suspended crosses a border of the month, three where one that is
        suspended now began before it.
        """
        tally = self._tally(query)
        if not tally.records and window(query)[0] <= time.time():
            time.sleep(EMPTY_PAUSE_S)
            tally = self._tally(query)
        return tally.usage()

    def command(self, query: UsageQuery, account: str) -> str:
        """Return the command for one account, as a shell takes it; there sacct itself cuts the jobs at the borders."""
        columns_asked = f"JobIDRaw,User,State,{TRES_COLUMN[query.source]},ElapsedRaw,Suspended"
        command = self._command(query, "--truncate", f"--accounts={account}", f"--format={columns_asked}")
        if self._runner.prefixed:
            return shlex.join(self._runner.argv(command, {"TZ": query.zone}))
        return f"TZ={shlex.quote(query.zone)} {shlex.join(command)}"

    def job_uses(self, query: UsageQuery, ids: Sequence[str]) -> list[JobUse]:
        """Return what these jobs count in the month, each run on its own. Raises BackendError."""
        found: list[JobUse] = []
        for some in _chunks({job for job in ids if is_whole(job)}):
            # The number of an array is also that of its last task: sacct then shows the others, too.
            found += self._tally(query, _jobs(some), ids=some).kept
        return found

    def split(self, query: UsageQuery, before: int, watched: int, *, later_only: bool = False) -> SplitUsage:
        """Read the month, jobs that ended `before` apart from the others, of which those are `watched` that began
        before that (both epoch seconds). With `later_only` sacct is not asked for the former at all. Raises
        BackendError.
        """
        since, until = window(query)
        ended, others = (Tally(query, (since, until)) for _ in range(2))
        split = Split(before, watched, since, ended)
        # In UTC: a moment in the hour that a zone has twice would be another one.
        start = before if later_only else min(since, before)
        # sacct refuses a start after the end: of a month that is over it shows later jobs, too. They are skipped here.
        times = (_utc(start), _utc(max(until, start + 1)))
        with closing(self._lines(query, times=times, zone="UTC", more=("Eligible", "End"))) as lines:
            others.add(split.others(_eligible(lines, until)))
        split.finish()
        for tally in (ended, others):
            self._add_cut(query, tally)
        return SplitUsage(ended.usage(), others.usage(), split.watched)

    def _tally(self, query: UsageQuery, *options: str, ids: Collection[str] | None = None) -> Tally:
        since, until = window(query)
        tally = Tally(query, (since, until - 1 if query.as_reference else until), ids)
        with closing(self._lines(query, *options)) as lines:
            tally.add(lines)
        self._add_cut(query, tally)
        return tally

    def _add_cut(self, query: UsageQuery, tally: Tally) -> None:
        """Count the jobs that sacct has to cut at the month's borders. Raises BackendError."""
        for some in _chunks({job for job, _ in tally.needs_truncated_read}):
            with closing(self._lines(query, "--truncate", _jobs(some))) as lines:
                tally.add_truncated(lines)
        before = (EVER, f"{query.month.first_day}T00:00:00")
        for some in _chunks({job for job, _ in tally.suspended_at_border}):
            with closing(self._lines(query, "--truncate", _jobs(some), times=before)) as lines:
                tally.add_before_window(lines)
        tally.check_complete()

    def _lines(
        self,
        query: UsageQuery,
        *options: str,
        times: tuple[str, str] | None = None,
        zone: str = "",
        more: Sequence[str] = (),
    ) -> Generator[str, None, None]:
        environment = {**self._zones.environment(query), "SLURM_TIME_FORMAT": "%s"}
        if zone:
            environment["TZ"] = zone
        columns_asked = ",".join((columns(query.source), *more))
        command = self._command(query, *options, f"--format={columns_asked}", times=times)
        return streamed(self._runner.lines(command, timeout_s=TIMEOUT_S, environment=environment))

    def _command(
        self, query: UsageQuery, *options: str, times: tuple[str, str] | None = None
    ) -> tuple[str, ...]:
        following = query.month.next.first_day
        last = f"{following - timedelta(days=1)}T23:59:59" if query.as_reference else f"{following}T00:00:00"
        start, end = times or (f"{query.month.first_day}T00:00:00", last)
        return (
            *self._programs.sacct_read,
            *(() if query.as_reference or query.last_runs_only else ("--duplicates",)),
            *self._clusters,
            f"--starttime={start}",
            f"--endtime={end}",
            *options,
        )


def _eligible(lines: Iterable[str], until: int) -> Iterator[str]:
    """Yield the jobs that were eligible before a moment, without that column. Raises ParseError."""
    for line in lines:
        parts = line.rsplit("|", 2)
        if len(parts) != 3 or not is_whole(parts[1]):
            raise ParseError("sacct", line, "the job has no time from which on it was eligible")
        if int(parts[1]) < until:
            yield f"{parts[0]}|{parts[2]}"


def _utc(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%S}"


def _jobs(ids: Iterable[str]) -> str:
    return f"--jobs={','.join(ids)}"


def _chunks(ids: Iterable[str]) -> Iterator[dict[str, None]]:
    """Yield the job numbers in order, as many at a time as one command takes."""
    ordered = sorted(ids, key=int)
    for first in range(0, len(ordered), JOBS_PER_COMMAND):
        yield dict.fromkeys(ordered[first : first + JOBS_PER_COMMAND])
