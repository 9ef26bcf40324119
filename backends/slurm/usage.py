# SPDX-License-Identifier: MIT
"""What was used, by sacct: one command for the month of all accounts, whose lines are summed as they come.

The window goes from the first instant of the month to the first of the next, in the query's zone: with 23:59:59 a
second of every job that runs across the border was lost (22.05). `--duplicates` shows every run of a requeued job,
a running job counts to now, and an end that is still to come does no harm. Queries `as_reference` and
`last_runs_only` ask otherwise, for comparison only.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

from agent.core.usage import JobUse, Usage, UsageQuery
from backends.process import Runner
from backends.slurm.programs import Programs, streamed
from backends.slurm.tally import TRES_COLUMN, Tally, columns
from backends.zones import Zones, window

# 100,000 jobs take 2 s, but minutes while slurmdbd rolls up. What a killed sacct has asked goes on in the database.
TIMEOUT_S = 180.0
JOBS_PER_COMMAND = 1000


class Accounting:
    """The jobs of one cluster through sacct; without a name, of the cluster that slurm.conf names."""

    def __init__(self, runner: Runner, programs: Programs, cluster: str, zones: Zones) -> None:
        self._runner = runner
        self._programs = programs
        self._clusters = (f"--clusters={cluster}",) if cluster else ()
        self._zones = zones

    def usage(self, query: UsageQuery) -> Usage:
        """The whole month of all accounts, in one command; in two where a job that was suspended crosses a border.

        Raises BackendError.
        """
        return self._tally(query).usage()

    def command(self, query: UsageQuery, account: str) -> str:
        """The command for one account, as a shell takes it; here sacct itself cuts the jobs at the borders."""
        shown = f"JobIDRaw,User,State,{TRES_COLUMN[query.source]},ElapsedRaw,Suspended"
        command = self._command(query, "--truncate", f"--accounts={account}", f"--format={shown}")
        if self._runner.prefixed:
            return shlex.join(self._runner.argv(command, {"TZ": query.zone}))
        return f"TZ={shlex.quote(query.zone)} {shlex.join(command)}"

    def job_uses(self, query: UsageQuery, ids: Sequence[str]) -> list[JobUse]:
        """What these jobs count in the month, all runs of each together. Raises BackendError."""
        found: dict[str, JobUse] = {}
        for some in _chunks({job for job in ids if job.isdecimal() and job.isascii()}):
            # The number of an array is also that of its last task: sacct then shows the others, too.
            for job in self._tally(query, _jobs(some), ids=some).kept:
                found[job.id] = _joined(found.get(job.id), job)
        return list(found.values())

    def _tally(self, query: UsageQuery, *options: str, ids: Collection[str] | None = None) -> Tally:
        since, until = window(query)
        tally = Tally(query, (since, until - 1 if query.as_reference else until), ids)
        with closing(self._lines(query, *options)) as lines:
            tally.add(lines)
        for some in _chunks({job for job, _ in tally.unsure}):
            with closing(self._lines(query, "--truncate", _jobs(some))) as lines:
                tally.add_cut(lines)
        tally.check()
        return tally

    def _lines(self, query: UsageQuery, *options: str) -> Generator[str, None, None]:
        environment = {**self._zones.environment(query), "SLURM_TIME_FORMAT": "%s"}
        command = self._command(query, *options, f"--format={columns(query.source)}")
        return streamed(self._runner.lines(command, timeout_s=TIMEOUT_S, environment=environment))

    def _command(self, query: UsageQuery, *options: str) -> tuple[str, ...]:
        return (
            *self._programs.sacct_read,
            *(() if query.as_reference or query.last_runs_only else ("--duplicates",)),
            *self._clusters,
            f"--starttime={query.month.first_day}T00:00:00",
            f"--endtime={_end(query)}",
            *options,
        )


def _end(query: UsageQuery) -> str:
    following = query.month.next.first_day
    return f"{following - timedelta(days=1)}T23:59:59" if query.as_reference else f"{following}T00:00:00"


def _jobs(ids: Iterable[str]) -> str:
    return f"--jobs={','.join(ids)}"


def _chunks(ids: Iterable[str]) -> Iterator[dict[str, None]]:
    """The numbers in order, as many at a time as one command takes."""
    ordered = sorted(ids, key=int)
    for first in range(0, len(ordered), JOBS_PER_COMMAND):
        yield dict.fromkeys(ordered[first : first + JOBS_PER_COMMAND])


def _joined(before: JobUse | None, job: JobUse) -> JobUse:
    """Two runs of a requeued job as one; the state is that of the later line."""
    if before is None:
        return job
    counts = {
        name: before.counts.get(name, 0) + job.counts.get(name, 0) for name in {*before.counts, *job.counts}
    }
    return replace(job, seconds=before.seconds + job.seconds, counts=counts)
