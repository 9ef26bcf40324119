# SPDX-License-Identifier: MIT
"""Runs `sacctmgr load` for what can be loaded, after sacctmgr itself said that nothing else would change.

It runs first without --immediate and is answered "no": it does all its work, tells what it would do, and discards
it. Then it runs for good, as a write that is left to finish. Whatever does not fit, or is refused, is left to
single commands.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from agent.core.actions import ClusterAction
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.plans import Outcome
from agent.host import files
from backends.command_output import one_line
from backends.lock import WriteLock
from backends.process import Completed, Runner
from backends.slurm import load_file
from backends.slurm.commands import CommandBuilder
from backends.slurm.load_file import LoadFile
from backends.slurm.programs import Programs, failure

log = logging.getLogger(__name__)

UNKNOWN_COMMAND = "unknown command"


class Loader:
    """Loads files into one cluster. Remembers a refusal until the process ends."""

    def __init__(self, runner: Runner, builder: CommandBuilder, lock: WriteLock, programs: Programs) -> None:
        self._runner = runner
        self._builder = builder
        self._lock = lock
        self._programs = programs
        self._refused = False
        # Beside the lock's file, and under its name: who holds the lock owns every file that is left there.
        self._prefix = f"{lock.path.stem}-load-"

    def load(self, actions: Sequence[ClusterAction], cluster: str) -> Iterator[Outcome]:
        """Yield outcomes of what was loaded; nothing for actions that are left to single commands."""
        to_load = self._files(actions, cluster)
        if not to_load:
            return
        with self._lock:
            # Files of a worker that was killed: the command that read them held the lock, so it has ended.
            for left in self._lock.path.parent.glob(f"{self._prefix}*"):
                with suppress(OSError):
                    left.unlink()
            for file in to_load:
                outcomes = self._load(file)
                yield from outcomes
                if not outcomes or not outcomes[-1].done:
                    return

    def planned(self, actions: Sequence[ClusterAction], cluster: str) -> list[LoadFile]:
        """Return the files that `load` would load. Asks sacctmgr whether it knows the command."""
        to_load = self._files(actions, cluster)
        if not to_load:
            return []
        said = self._runner.read((*self._programs.sacctmgr_ask, "load"))  # without a file it only complains
        return [] if UNKNOWN_COMMAND in f"{said.stdout}{said.stderr}".lower() else to_load

    def _files(self, actions: Sequence[ClusterAction], cluster: str) -> list[LoadFile]:
        if self._refused or self._runner.prefixed or not cluster or not self._owns_folder():
            return []
        made = load_file.files(actions, cluster)
        fitting = [action for file in made for action in file.actions]
        return made if len(self._builder.batches(fitting)) >= load_file.LOAD_FROM_COMMANDS else []

    def _owns_folder(self) -> bool:
        """Return whether nobody but root and this process' user can put another file in place of ours."""
        try:
            return files.owner_of(self._lock.path.parent).uid in (0, os.geteuid())
        except OSError:
            return False

    def _written(self, text: str) -> Path | None:
        """Write a file that only we can read. Return None where it fails: the disk is full, the folder is gone."""
        path = None
        try:
            with tempfile.NamedTemporaryFile(
                "w", dir=self._lock.path.parent, prefix=self._prefix, encoding="utf-8", delete=False
            ) as stream:
                path = Path(stream.name)
                stream.write(text)
        except OSError as error:
            log.warning("no file to load can be written in state_dir: %s; going by single commands", error)
            if path is not None:
                path.unlink(missing_ok=True)
            return None
        return path

    def _load(self, file: LoadFile) -> list[Outcome]:
        path = self._written(file.text)
        if path is None:
            return []
        try:
            asked = self._ask(path)
            if asked is None:
                return []
            if load_file.NOTHING_NEW in asked.stdout:
                return [Outcome(action, None, (" ".join(asked.argv),)) for action in file.actions]
            done = self._runner.write((*self._programs.sacctmgr_write, "load", str(path)), self._lock)
            error = failure(done)
        except BackendError as raised:
            return [Outcome(action, raised) for action in file.actions]
        finally:
            path.unlink(missing_ok=True)
        if error is not None and not isinstance(error, BackendUnavailable):
            log.warning("%s; going by single commands", error)
            return []
        return [Outcome(action, error, (" ".join(done.argv),), done.duration_s) for action in file.actions]

    def _ask(self, path: Path) -> Completed | None:
        """Run a load that is discarded. Return what it said, None where a real one must not follow.

        Raises BackendUnavailable.
        """
        command = (*self._programs.sacctmgr_ask, "load", str(path))
        asked = self._runner.write(command, self._lock, stdin_text=load_file.ANSWER_NO)
        error, changed = failure(asked), load_file.notes(asked.stdout)
        if isinstance(error, BackendUnavailable):
            raise error
        complaints = [line for line in asked.stderr.split("\n") if line.strip()]
        if error is None and not changed and all(load_file.EXPECTED_WORDS in line for line in complaints):
            return asked
        self._refused = error is not None
        reason = error or one_line("\n".join(changed)) or one_line(asked.stderr)
        log.info("not loading all at once, going by single commands: %s", reason)
        return None
