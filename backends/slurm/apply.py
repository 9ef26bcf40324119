# SPDX-License-Identifier: MIT
"""Carrying batches out, one after the other, under the cluster's lock; one outcome per action.

A batch that is refused is tried again action by action, so that one bad name harms nobody else. After a sign
of an outage nothing more is tried. What rc 0 really did is not judged here: the caller reads the cluster back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from agent.core.actions import ClusterAction, Kind, Ref
from agent.core.errors import BackendError, BackendUnavailable, NotEmpty, PlanRefused
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from backends.command_output import one_line
from backends.failure_propagation import FailurePropagation
from backends.lock import WriteLock
from backends.process import CommandMissing, Completed, Runner
from backends.slurm.commands import Batch, Grammar
from backends.slurm.jobs import Jobs
from backends.slurm.load import LoadFile
from backends.slurm.loader import Loader
from backends.slurm.programs import Programs, failure

log = logging.getLogger(__name__)


class Writer:
    """Applies actions for one cluster."""

    def __init__(
        self,
        runner: Runner,
        grammar: Grammar,
        lock: WriteLock,
        *,
        programs: Programs,
        tree: Callable[[], Snapshot],
        jobs: Jobs,
    ) -> None:
        self._runner = runner
        self._grammar = grammar
        self._lock = lock
        self._programs = programs
        self._tree = tree
        self._jobs = jobs
        self._loader = Loader(runner, grammar, lock, programs)

    def apply(self, actions: Sequence[ClusterAction], cluster: str) -> list[Outcome]:
        """Carry the actions out. `cluster` is the name under which the cluster was last seen, empty if never."""
        usable, outcomes = self._checked(actions)
        if not usable:
            return outcomes
        failures = FailurePropagation()
        with self._lock:
            for outcome in self._loader.load(usable, cluster):
                failures.note(outcome)
                outcomes.append(outcome)
            loaded = {outcome.action for outcome in outcomes}
            left = self._grammar.batches(action for action in usable if action not in loaded)
            for program, batches in groupby(left, key=lambda batch: batch.program):
                for outcome in self._carried_out(program, list(batches), failures):
                    failures.note(outcome)
                    outcomes.append(outcome)
        return outcomes

    def files(self, actions: Sequence[ClusterAction], cluster: str) -> list[LoadFile]:
        """What `apply` would load at once, instead of single commands."""
        return self._loader.planned(self._checked(actions)[0], cluster)

    def _carried_out(
        self, program: str, batches: Sequence[Batch], failures: FailurePropagation
    ) -> Iterator[Outcome]:
        if program == "sacctmgr":
            for batch in batches:
                yield from self._unless_stopped(batch, failures)
            return
        stopped = {batch: error for batch in batches if (error := failures.error_for(batch.actions[0]))}
        yield from (Outcome(batch.actions[0], error) for batch, error in stopped.items())
        yield from self._jobs.cancel([batch for batch in batches if batch not in stopped])

    def _unless_stopped(self, batch: Batch, failures: FailurePropagation) -> Iterator[Outcome]:
        """The batch without the actions that must not happen any more, after what failed before them."""
        stopped = {action: error for action in batch.actions if (error := failures.error_for(action))}
        stopped |= self._filled([action for action in batch.actions if action not in stopped])
        yield from (Outcome(action, error) for action, error in stopped.items())
        left = [action for action in batch.actions if action not in stopped]
        for rest in self._grammar.batches(left) if stopped else [batch]:
            yield from self._run(rest, failures)

    def _filled(self, actions: Sequence[ClusterAction]) -> dict[ClusterAction, BackendError]:
        """Deletions of accounts that are not empty: all that is below them would go along without a word (22.05)."""
        if not actions or Ref(Kind.ACCOUNT) not in actions[0].ends:
            return {}
        try:
            tree = self._tree()
        except BackendError as error:
            return dict.fromkeys(actions, error)
        below = {a: sorted(tree.children_of(a.account) | tree.users_of(a.account)) for a in actions}
        return {
            action: NotEmpty(
                f"account {action.account} is not empty: {', '.join(names[:5])} would lose access with it"
            )
            for action, names in below.items()
            if names
        }

    def _checked(self, actions: Sequence[ClusterAction]) -> tuple[list[ClusterAction], list[Outcome]]:
        """Actions whose command can be written, and outcomes for those with a name SLURM cannot take."""
        usable, refused = [], []
        for action in actions:
            try:
                self._grammar.single(action)
                usable.append(action)
            except PlanRefused as error:
                refused.append(Outcome(action, error))
        return usable, refused

    def _run(self, batch: Batch, failures: FailurePropagation) -> Iterator[Outcome]:
        try:
            completed = self._runner.write((*self._programs.sacctmgr_write, *batch.argv), self._lock)
        except CommandMissing as missing:
            yield from (Outcome(action, missing) for action in batch.actions)
            return
        error = failure(completed)
        if error is None or isinstance(error, BackendUnavailable) or len(batch.actions) == 1:
            yield from (_outcome(action, completed, error) for action in batch.actions)
            return
        log.warning("%s; trying its %d actions one by one", error, len(batch.actions))
        for action in batch.actions:
            if stopped := failures.error_for(action):
                yield Outcome(action, stopped)
            else:
                yield from self._run(self._grammar.single(action), failures)


def _outcome(action: ClusterAction, completed: Completed, error: BackendError | None) -> Outcome:
    if completed.returncode == 0 and completed.stderr.strip():
        log.warning("`%s` said: %s", " ".join(completed.argv), one_line(completed.stderr))
    return Outcome(action, error, (" ".join(completed.argv),), completed.duration_s)
