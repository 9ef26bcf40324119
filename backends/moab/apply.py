# SPDX-License-Identifier: MIT
"""Carrying actions out under the lock of all writers, and listing what would be run.

What MAM holds is read under the lock before anything is changed, so that only what is missing is done: a deposit is
the difference to what the funds hold at that moment. A command that began before us holds the lock until it ends,
even when whoever started it was killed; so nothing is ever counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.core.actions import ClusterAction
from agent.core.errors import PlanRefused
from agent.core.plans import Outcome
from backends.lock import WriteLock
from backends.moab import commands
from backends.moab.batch import Batch, LockedCommands
from backends.moab.commands import NotInMoab
from backends.moab.programs import Programs
from backends.moab.written_funds import WrittenFunds
from backends.process import Runner


class Writer:
    """Applies actions to one MAM. `default_account`: what accounts at the top stand below."""

    def __init__(
        self,
        runner: Runner,
        programs: Programs,
        lock: WriteLock,
        *,
        written_funds: WrittenFunds,
        default_account: str,
    ) -> None:
        self._runner = runner
        self._programs = programs
        self._lock = lock
        self._written_funds = written_funds
        self._default_account = default_account

    def apply(self, actions: Sequence[ClusterAction]) -> list[Outcome]:
        """Return one outcome for each. Raises BackendError where MAM could not be read before anything was tried."""
        usable, outcomes = _checked(actions)
        if usable:
            locked = LockedCommands(self._runner, self._programs, self._lock)
            with self._lock:
                outcomes += Batch(locked, self._written_funds, self._default_account).carried_out(usable)
        return outcomes

    def commands(self, actions: Sequence[ClusterAction]) -> list[str]:
        """Return what `apply` would run now, as a shell takes it. Raises BackendError."""
        usable, _ = _checked(actions)
        if not usable:
            return []
        return commands.as_shell_lines(
            usable,
            self._written_funds.read(),
            lambda words: self._runner.argv((self._programs.path(words[0]), *words[1:])),
            self._default_account,
        )


def _checked(actions: Sequence[ClusterAction]) -> tuple[list[ClusterAction], list[Outcome]]:
    """Actions that there is a command for, and outcomes for the others."""
    usable, refused = [], []
    for action in dict.fromkeys(actions):
        try:
            commands.check(action)
            usable.append(action)
        except (NotInMoab, PlanRefused) as error:
            refused.append(Outcome(action, error))
    return usable, refused
