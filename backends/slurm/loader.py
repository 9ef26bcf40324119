# SPDX-License-Identifier: MIT
"""Runs `sacctmgr load` for what can be loaded, and has it commit only where nothing else would change.

Without --immediate it does all its work in one transaction, prints what it has done, and asks whether to commit. It is
answered "yes" only where it printed nothing but additions. Whatever does not fit, or is refused, is left to single
commands.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from pathlib import Path

from agent.core.actions import AddMember, ClusterAction, only
from agent.core.errors import BackendError, BackendUnavailable, CommandDenied
from agent.core.plans import Outcome
from agent.host import files
from backends.command_output import one_line
from backends.lock import WriteLock
from backends.process import Runner
from backends.slurm import load_file
from backends.slurm.commands import CommandBuilder
from backends.slurm.costs import LOAD_SHARE, LOAD_USERS, Costs, kind_of
from backends.slurm.load_file import LoadFile
from backends.slurm.programs import Programs, failure

log = logging.getLogger(__name__)

UNKNOWN_COMMAND = "unknown command"
# An order that would take so much longer by single commands may shut others out for as long as a load takes.
MUCH_LONGER = 1.5
# A load that has not ended when the time of its task is over leaves nothing behind, and would be begun again.
LONGEST_S = 120.0
# For so long a load may write at most: slurmdbd ends when something else, such as slurmctld, waits for 50 s.
LONGEST_WRITING_S = 20.0
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Loader:
    """Loads files into one cluster. Remembers a refusal until the process ends."""

    def __init__(
        self,
        runner: Runner,
        builder: CommandBuilder,
        lock: WriteLock,
        programs: Programs,
        costs: Costs,
    ) -> None:
        self._runner = runner
        self._builder = builder
        self._lock = lock
        self._programs = programs
        self._costs = costs
        self._refused = False
        # Next to the lock's file it has its name: who holds the lock owns every file that is left there.
        self._prefix = f"{lock.path.stem}-load-"

    def load(self, actions: Sequence[ClusterAction], cluster: str) -> Iterator[Outcome]:
        """Yield outcomes of what was loaded; nothing for actions that are left to single commands. After each file it
        is asked again whether the next one is sooner than these.
        """
        chosen = [action for file in self._worthwhile(actions, cluster) for action in file.actions]
        if not chosen:
            return
        with self._lock:
            if self._folder() == (own := self._lock.path.parent):
                # Files of a worker that was killed: the command that read them held the lock, so it has ended.
                for left in own.glob(f"{self._prefix}*"):
                    with suppress(OSError):
                        left.unlink()
            for file in self._files(chosen, cluster):
                if not self._sooner([file]):
                    return
                self._lock.give_way()
                outcomes = self._load(file)
                yield from outcomes
                if not outcomes or not outcomes[-1].done:
                    return

    def planned(self, actions: Sequence[ClusterAction], cluster: str) -> list[LoadFile]:
        """Return the files that `load` would load. Asks sacctmgr whether it knows the command."""
        files = self._worthwhile(actions, cluster)
        if not files:
            return []
        said = self._runner.read((*self._programs.sacctmgr_ask, "load"))  # without a file it only complains
        return [] if UNKNOWN_COMMAND in f"{said.stdout}{said.stderr}".lower() else files

    def _units_at_once(self, kind: str) -> int:
        """Return how many units a file may have, so that what it writes ends soon enough. Where an order waits for it
        to end, what a load reads first takes half of it at most; else no file takes longer than a command may, where
        what it reads leaves time for that.
        """
        base_s, limit_s = self._costs.seconds(kind, 0), self._costs.limit_s
        unit_s = self._costs.seconds(kind, 1) - base_s
        target_s = LOAD_SHARE * limit_s
        longest_s = LONGEST_WRITING_S
        if self._lock.is_urgent:
            target_s = max(target_s, 2 * base_s)
        elif base_s + unit_s <= limit_s:
            longest_s = min(longest_s, limit_s - base_s)
        return max(1, min(self._costs.units_at_once(kind, target_s), int(longest_s / unit_s)))

    def _files(self, actions: Sequence[ClusterAction], cluster: str) -> Iterator[LoadFile]:
        return load_file.files(actions, cluster, self._units_at_once, is_placed=self._costs.is_placed())

    def _worthwhile(self, actions: Sequence[ClusterAction], cluster: str) -> list[LoadFile]:
        """Return the files of a load that makes these things sooner than single commands do; none where it does not.
        Others who write must not be shut out for long by it, but where a single command would do so, too, or where an
        order waits for it and would wait for single commands much longer. Where new accounts are not worth a load,
        people who join others still may be.
        """
        if self._refused or self._runner.prefixed or not cluster or not self._folder():
            return []
        files = list(self._files(actions, cluster))
        if self._sooner(files[:1]) and (found := self._sooner(files)):
            return found
        of_users = [file for file in files if file.kind == LOAD_USERS]
        return self._sooner(of_users) if _is_apart(of_users, files) else []

    def _sooner(self, files: list[LoadFile]) -> list[LoadFile]:
        """Return the files where they are worth it."""
        fitting = [action for file in files for action in file.actions]
        loads_s = [self._costs.seconds(file.kind, file.units) for file in files]
        kinds = [(kind_of(batch.argv), batch.actions) for batch in self._builder.batches(fitting)]
        single_s = sum(self._costs.total_s(*each) for each in kinds)
        if not files or sum(loads_s) >= single_s:
            return []
        shortest_s = (self._costs.seconds(kind, 1) for kind, _ in kinds)
        is_short = max(loads_s) <= max(self._costs.limit_s, *shortest_s)
        is_possible = max(loads_s) <= LONGEST_S
        is_needed = self._lock.is_urgent and is_possible and MUCH_LONGER * sum(loads_s) < single_s
        return files if is_short or is_needed else []

    def expected(self, actions: Sequence[ClusterAction], cluster: str) -> tuple[Set[ClusterAction], float]:
        """Return what would be loaded, and the seconds that it would take."""
        files = self._worthwhile(actions, cluster)
        loaded = frozenset(action for file in files for action in file.actions)
        return loaded, sum(self._costs.seconds(file.kind, file.units) for file in files)

    def _folder(self) -> Path | None:
        """Return where only root and this process' user can put another file in place of ours: the lock's folder, else
        that of temporary files, as where `state_dir` is another user's.
        """
        with suppress(OSError):
            if files.owner_of(self._lock.path.parent).uid in (0, os.geteuid()):
                return self._lock.path.parent
            folder = Path(tempfile.gettempdir())
            mode = folder.stat().st_mode
            if files.owner_of(folder).uid == 0 and (mode & stat.S_ISVTX or not mode & OTHERS_WRITE):
                return folder
        return None

    def _written(self, text: str) -> Path | None:
        """Write a file that only we can read. Return None where it fails: the disk is full, the folder is gone."""
        folder, path = self._folder(), None
        try:
            with tempfile.NamedTemporaryFile(
                "w", dir=folder, prefix=self._prefix, encoding="utf-8", delete=False
            ) as stream:
                path = Path(stream.name)
                stream.write(text)
        except OSError as error:
            log.warning("no file to load can be written in %s: %s; going by single commands", folder, error)
            if path is not None:
                path.unlink(missing_ok=True)
            return None
        return path

    def _load(self, file: LoadFile) -> list[Outcome]:
        path = self._written(file.text)
        if path is None:
            return []
        answered = ""
        reasons: list[str] = []

        def answer(stdout: str, stderr: str) -> str:
            """Commit where it printed nothing but additions."""
            nonlocal answered
            complaints = (line for line in stderr.split("\n") if line.strip())
            reasons.extend(load_file.notes(stdout))
            reasons.extend(line for line in complaints if load_file.EXPECTED_WORDS not in line)
            answered = load_file.ANSWER_NO if reasons else load_file.ANSWER_YES
            return answered

        command = (*self._programs.sacctmgr_ask, "load", str(path))
        try:
            done = self._runner.write_after_question(command, self._lock, load_file.QUESTION, answer)
        except BackendError as raised:
            return [Outcome(action, raised) for action in file.actions]
        finally:
            path.unlink(missing_ok=True)
        error = failure(done)
        if error is None:
            self._costs.note(file.kind, file.units, done.duration_s)
        is_kept = answered == load_file.ANSWER_YES and load_file.DISCARDED not in done.stdout
        if isinstance(error, BackendUnavailable) or (
            error is None and (is_kept or load_file.NOTHING_NEW in done.stdout)
        ):
            return [
                Outcome(action, error, (" ".join(done.argv),), done.duration_s) for action in file.actions
            ]
        self._refused = (
            isinstance(error, CommandDenied) or UNKNOWN_COMMAND in f"{done.stdout}{done.stderr}".lower()
        )
        reason = one_line("\n".join(reasons)) or error or one_line(done.stdout)
        log.info("not loading all at once, going by single commands: %s", reason)
        return []


def _is_apart(some: Iterable[LoadFile], files: Iterable[LoadFile]) -> bool:
    """Return whether no user in some of the files is in the others: those may make an account that is their default."""
    users = {join.user for file in some for join in only(AddMember, file.actions)}
    return not any(
        join.user in users for file in files if file not in some for join in only(AddMember, file.actions)
    )
