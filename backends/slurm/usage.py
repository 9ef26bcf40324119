# SPDX-License-Identifier: MIT
"""What was used, by sacct: one command for the month of all accounts, whose lines are summed as they come.

The window goes from the first instant of the month to the first of the next, in the query's zone: with 23:59:59 a
second of every job that runs across the border was lost (22.05). `--truncate` cuts jobs at the window,
`--duplicates` shows every run of a requeued job, and a running job counts to now. An end that is still to come does
no harm. Queries `as_reference` and `last_runs_only` ask otherwise, for comparison only.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Sequence
from contextlib import closing
from datetime import timedelta

from agent.core.usage import JobUse, Usage, UsageQuery
from backends.process import Runner
from backends.slurm.programs import Programs, streamed
from backends.slurm.tally import Tally, columns
from backends.slurm.zones import Zones

# A month of a big site is read in seconds, but minutes while slurmdbd rolls up. What a killed sacct has asked goes
# on in the database: it is not asked again at once.
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
        """The whole month of all accounts, in one command. Raises BackendError."""
        tally = Tally(query)
        with closing(self._lines(query)) as lines:
            tally.add(lines)
        return tally.usage()

    def command(self, query: UsageQuery, account: str) -> str:
        """The command for one account, as a shell takes it."""
        command = self._command(query, f"--accounts={account}")
        if self._runner.prefixed:
            return shlex.join(self._runner.argv(command, {"TZ": query.zone}))
        return f"TZ={shlex.quote(query.zone)} {shlex.join(command)}"

    def job_uses(self, query: UsageQuery, ids: Sequence[str]) -> list[JobUse]:
        """What these jobs count in the month, all runs of each together. Raises BackendError."""
        wanted = sorted({job for job in ids if job.isdecimal() and job.isascii()}, key=int)
        found: dict[str, JobUse] = {}
        for first in range(0, len(wanted), JOBS_PER_COMMAND):
            some = dict.fromkeys(wanted[first : first + JOBS_PER_COMMAND])
            with closing(self._lines(query, f"--jobs={','.join(some)}")) as lines:
                # The number of an array is also that of its last task: sacct then shows the others, too.
                for job in filter(lambda job: job.id in some, Tally(query).jobs(lines)):
                    found[job.id] = _joined(found.get(job.id), job)
        return list(found.values())

    def _lines(self, query: UsageQuery, *options: str) -> Generator[str, None, None]:
        environment = self._zones.environment(query)
        command = self._command(query, *options)
        return streamed(self._runner.lines(command, timeout_s=TIMEOUT_S, environment=environment))

    def _command(self, query: UsageQuery, *options: str) -> tuple[str, ...]:
        return (
            *self._programs.sacct_read,
            *(() if query.as_reference or query.last_runs_only else ("--duplicates",)),
            *self._clusters,
            f"--starttime={query.month.first_day}T00:00:00",
            f"--endtime={_end(query)}",
            *options,
            f"--format={columns(query.source)}",
        )


def _end(query: UsageQuery) -> str:
    following = query.month.next.first_day
    return f"{following - timedelta(days=1)}T23:59:59" if query.as_reference else f"{following}T00:00:00"


def _joined(before: JobUse | None, job: JobUse) -> JobUse:
    """Two runs of a requeued job as one; the state is that of the later line."""
    if before is None:
        return job
    names = {*before.counts, *job.counts}
    counts = {name: before.counts.get(name, 0) + job.counts.get(name, 0) for name in names}
    return JobUse(job.id, job.account, job.user, job.state, before.seconds + job.seconds, counts)
