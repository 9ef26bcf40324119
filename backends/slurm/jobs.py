# SPDX-License-Identifier: MIT
"""Active jobs: who has some, and how they are ended before an association goes.

squeue tells who runs, not sacct: the database's record of a job may be old. All cancellations of a batch are
sent first and waited for together, for a bounded time; what still runs then is a state, not an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from agent.core.actions import CancelJobs, only
from agent.core.errors import BackendError, JobsStillActive
from agent.core.plans import Outcome
from backends.process import CommandMissing, Runner
from backends.slurm import parse
from backends.slurm.commands import Batch
from backends.slurm.programs import Programs, answer, failure

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

    def active(self, accounts: Collection[str]) -> JobCounts | None:
        """Active jobs (pending, running, completing) in these accounts; who is not named has none.

        None where this host has no squeue: then nobody knows, and sacctmgr itself refuses what jobs still need.
        """
        options = (
            "--noheader",
            "--all",
            *self._clusters,
            f"--account={','.join(sorted(accounts))}",
            "--format=%a|%u",
        )
        try:
            return parse.job_counts(answer(self._runner.read((self._programs.squeue, *options))))
        except CommandMissing:
            return None

    def cancel(self, batches: Sequence[Batch]) -> Iterator[Outcome]:
        """scancel for each, then one wait for all until squeue shows none of their jobs."""
        started_s = time.monotonic()
        errors: dict[CancelJobs, BackendError | None] = {}
        commands: dict[CancelJobs, tuple[str, ...]] = {}
        for batch in batches:
            command = (self._programs.scancel, *batch.argv)
            for action in only(CancelJobs, batch.actions):
                commands[action] = (" ".join(self._runner.argv(command)),)
                errors[action] = self._send(command)
        sent = [action for action, error in errors.items() if error is None]
        errors |= self._ends(sent, started_s)
        duration_s = time.monotonic() - started_s
        yield from (Outcome(action, errors[action], commands[action], duration_s) for action in commands)

    def _send(self, command: Sequence[str]) -> BackendError | None:
        try:
            return failure(self._runner.read(command))
        except BackendError as error:
            return error

    def _ends(self, actions: Sequence[CancelJobs], started_s: float) -> dict[CancelJobs, BackendError | None]:
        """Waits for the end of the cancelled jobs: an error for each action whose jobs remain."""
        waiting = list(actions)
        while waiting:
            try:
                counts = self.active({action.account for action in waiting})
            except BackendError as error:
                return dict.fromkeys(waiting, error)
            left = {action: _left(action, counts or {}) for action in waiting}
            waiting = [action for action in waiting if left[action]]
            if waiting and time.monotonic() - started_s > self._grace_s:
                return {action: self._still(action, left[action]) for action in waiting}
            if waiting:
                time.sleep(CANCEL_POLL_S)
        return {}

    def _still(self, action: CancelJobs, jobs: int) -> JobsStillActive:
        whose = (
            f"user {action.user} in account {action.account}" if action.user else f"account {action.account}"
        )
        return JobsStillActive(
            f"{whose}: {jobs} jobs are still ending {self._grace_s:.0f} s after scancel; "
            "the removal goes on in the next pass"
        )


def _left(action: CancelJobs, counts: JobCounts) -> int:
    return sum(
        number
        for (account, user), number in counts.items()
        if account == action.account and action.user in ("", user)
    )
