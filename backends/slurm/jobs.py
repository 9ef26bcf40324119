# SPDX-License-Identifier: MIT
"""Active jobs: who has some, and how they are ended before an association goes.

squeue reports who runs, not sacct: the database's record of a job may be old. All cancellations of a batch are
sent first and waited for together, for a bounded time; jobs that still run then end the removal for this pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from agent.core.actions import CancelJobs, only
from agent.core.errors import BackendError, BackendUnavailable, JobsStillActive
from agent.core.plans import Outcome
from backends.free_text import only_these
from backends.process import CommandMissing, Runner
from backends.slurm import parse
from backends.slurm.commands import Batch
from backends.slurm.programs import Programs, failure, output

log = logging.getLogger(__name__)

CANCEL_GRACE_S = 30.0
CANCEL_POLL_S = 1.0

# Active jobs by account and user.
JobCounts = Mapping[tuple[str, str], int]


class Jobs:
    """The jobs of one cluster, through squeue and scancel."""

    def __init__(
        self, runner: Runner, programs: Programs, cluster: str, *, grace_s: float = CANCEL_GRACE_S
    ) -> None:
        self._runner = runner
        self._programs = programs
        self._clusters = (f"--clusters={cluster}",) if cluster else ()
        self._grace_s = grace_s

    def active(self, accounts: Collection[str], partition: str = "") -> JobCounts | None:
        """Return the active jobs (pending, running, completing) in these accounts, of one partition where it is named;
        who is not named has none.

        None where this host has no squeue: the jobs are unknown, and sacctmgr itself refuses what they still need.
        Raises BackendError.
        """
        options = (
            "--noheader",
            "--all",
            *self._clusters,
            *only_these("--account", accounts),
            *((f"--partition={partition}",) if partition else ()),
            "--format=%a|%u",
        )
        try:
            return parse.job_counts(output(self._runner.read((self._programs.squeue, *options))))
        except CommandMissing:
            return None

    def cancel(self, batches: Sequence[Batch]) -> Iterator[Outcome]:
        """Run scancel for each, then wait once for all until squeue shows none of their jobs."""
        started_s = time.monotonic()
        errors: dict[CancelJobs, BackendError | None] = {}
        commands: dict[CancelJobs, tuple[str, ...]] = {}
        for batch in batches:
            command = (self._programs.scancel, *batch.argv)
            for action in only(CancelJobs, batch.actions):
                commands[action] = (" ".join(self._runner.argv(command)),)
                try:
                    errors[action] = failure(self._runner.read(command))
                except BackendError as error:
                    errors[action] = error
        sent = [action for action, error in errors.items() if error is None]
        errors |= wait_for_end(self.active, sent, started_s, self._grace_s)
        duration_s = time.monotonic() - started_s
        yield from (Outcome(action, errors[action], commands[action], duration_s) for action in commands)


def wait_for_end(
    active: Callable[[set[str]], JobCounts | None],
    actions: Sequence[CancelJobs],
    started_s: float,
    grace_s: float,
) -> dict[CancelJobs, BackendError | None]:
    """Wait for the end of the cancelled jobs. Return an error for each action whose jobs remain.

    One answer that does not come ends no wait: for an account that was added slurmctld gets all users, and answers
    no request for 15 s where they are 70,000 (22.05).
    """
    waiting = list(actions)
    while waiting:
        try:
            counts = active({action.account for action in waiting})
        except BackendUnavailable as error:
            if time.monotonic() - started_s > grace_s:
                return dict.fromkeys(waiting, error)
            time.sleep(CANCEL_POLL_S)
            continue
        except BackendError as error:
            return dict.fromkeys(waiting, error)
        left = dict.fromkeys(waiting, 0)
        for (account, user), number in (counts or {}).items():
            for action in waiting:
                if action.account == account and action.user in ("", user):
                    left[action] += number
        waiting = [action for action in waiting if left[action]]
        if waiting and time.monotonic() - started_s > grace_s:
            return {
                action: JobsStillActive(
                    f"{f'user {action.user} in ' if action.user else ''}account {action.account}: {left[action]} "
                    f"jobs are still ending {grace_s:.0f} s after they were cancelled; the removal goes on in the next "
                    "pass"
                )
                for action in waiting
            }
        if waiting:
            time.sleep(CANCEL_POLL_S)
    return {}
