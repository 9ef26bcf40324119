# SPDX-License-Identifier: MIT
"""Runs `sacctmgr load` for what can be loaded, after sacctmgr itself said that nothing else would change.

First without --immediate and with the answer "no": it does all its work, tells what it would do, and discards
it. Then for good, as a write that is left to finish. Whatever does not fit, or is refused, is left to the
single commands.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent.core.actions import ClusterAction
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.plans import Outcome
from backends.lock import WriteLock
from backends.process import Completed, Runner
from backends.slurm import load
from backends.slurm.commands import Grammar
from backends.slurm.load import LoadFile
from backends.slurm.programs import Programs, failure, one_line

log = logging.getLogger(__name__)


class Loader:
    """Knows whether this cluster lets us load; forgets it with the process."""

    def __init__(self, runner: Runner, grammar: Grammar, lock: WriteLock, programs: Programs) -> None:
        self._runner = runner
        self._grammar = grammar
        self._lock = lock
        self._programs = programs
        self._refused = False

    def load(self, actions: Sequence[ClusterAction], cluster: str) -> Iterator[Outcome]:
        """Outcomes of what was loaded; nothing for actions that are left to single commands."""
        if self._refused or self._runner.prefixed or not cluster:
            return
        planned = load.files(actions, cluster)
        fitting = [action for file in planned for action in file.actions]
        if len(self._grammar.batches(fitting)) < load.LOAD_FROM_COMMANDS:
            return
        for file in planned:
            outcomes = self._load(file)
            yield from outcomes
            if not outcomes or not outcomes[-1].done:
                return

    def _load(self, file: LoadFile) -> list[Outcome]:
        with tempfile.NamedTemporaryFile("w", prefix="sacctmgr-load-", encoding="utf-8") as stream:
            stream.write(file.text)
            stream.flush()
            path = Path(stream.name)
            try:
                asked = self._ask(path)
                if asked is None:
                    return []
                if load.NOTHING_NEW in asked.stdout:
                    return [Outcome(action, None, (" ".join(asked.argv),)) for action in file.actions]
                done = self._runner.write((*self._programs.sacctmgr_write, "load", str(path)), self._lock)
                error = failure(done)
            except BackendError as raised:
                return [Outcome(action, raised) for action in file.actions]
        if error is not None and not isinstance(error, BackendUnavailable):
            log.warning("%s; going by single commands", error)
            return []
        return [Outcome(action, error, (" ".join(done.argv),), done.duration_s) for action in file.actions]

    def _ask(self, path: Path) -> Completed | None:
        """The answer of a load that was discarded, None where a real one must not follow.

        Raises BackendUnavailable.
        """
        command = (*self._programs.sacctmgr_ask, "load", str(path))
        asked = self._runner.write(command, self._lock, answers=load.ANSWER_NO)
        error, changed = failure(asked), load.notes(asked.stdout)
        if isinstance(error, BackendUnavailable):
            raise error
        if error is None and not changed and _only_expected(asked.stderr):
            return asked
        self._refused = error is not None
        reason = error or one_line("\n".join(changed)) or one_line(asked.stderr)
        log.info("not loading %d lines at once, going by single commands: %s", _lines(path), reason)
        return None


def _only_expected(stderr: str) -> bool:
    return all(load.EXPECTED_WORDS in line for line in stderr.splitlines() if line.strip())


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())
