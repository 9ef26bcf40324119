# SPDX-License-Identifier: MIT
"""Fairshare, limits of three types and the raw usage of one account, as a periodic usage policy sets them.

Read from `show assoc`: `list account` shows 0 and nothing (22.05). Equal values are not written: each write costs
0.36 s and a transaction. What rc 0 really did is not judged here: the caller reads the account back.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from agent.core.actions import ClusterAction
from agent.core.errors import BackendError, ParseError
from agent.core.periodic import DesiredSettings, LimitType, ObservedSettings
from agent.core.periodic_actions import ResetRawUsage, SetFairshare, SetPeriodicLimits
from agent.core.plans import Outcome
from backends.command_output import is_whole
from backends.lock import WriteLock
from backends.process import Runner
from backends.slurm import parse
from backends.slurm.allowed_names import checked
from backends.slurm.programs import Programs, failure, output

COLUMNS = ("account", "user", "fairshare", "grptresmins", "maxtresmins", "grptres")
COMMAND = "sacctmgr show assoc"
LIMIT_COLUMNS = (LimitType.GRP_TRES_MINS, LimitType.MAX_TRES_MINS, LimitType.GRP_TRES)


class PeriodicSettings:
    """Reads and sets them on one cluster; without a name, on the one of slurm.conf."""

    def __init__(self, runner: Runner, programs: Programs, lock: WriteLock, cluster: str) -> None:
        self._runner = runner
        self._programs = programs
        self._lock = lock
        self._cluster = (f"cluster={cluster}",) if cluster else ()

    def state(self, account: str) -> ObservedSettings | None:
        """Return what the account has of its own; None where it is not on the cluster. Raises BackendError."""
        where = (f"account={checked('account', account)}", *self._cluster)
        columns = f"format={','.join(COLUMNS)}"
        command = (*self._programs.sacctmgr_read, "show", "assoc", "where", *where, columns, "WOPLimits")
        for row in parse.rows(COMMAND, output(self._runner.read(command)), len(COLUMNS)):
            name, user, share, *limits = row
            if name != account or user:
                continue
            if not (share == "parent" or is_whole(share)):
                raise ParseError(COMMAND, share, "a fairshare is a number or `parent`")
            values = map(parse.tres_limits, limits)
            return ObservedSettings(
                None if share == "parent" else int(share), dict(zip(LIMIT_COLUMNS, values, strict=True))
            )
        return None

    def cannot(self, _asked: DesiredSettings, _observed: ObservedSettings) -> str:
        return ""

    def commands(self, actions: Sequence[ClusterAction]) -> list[str]:
        """Return the commands of these actions, as a shell takes them."""
        return [shlex.join(self._runner.argv(self._argv(action))) for action in actions]

    def _argv(self, action: ClusterAction) -> tuple[str, ...]:
        where = (f"name={checked('account', action.for_account)}", *self._cluster)
        return (*self._programs.sacctmgr_write, "modify", "account", "where", *where, "set", _value(action))

    def apply(self, actions: Sequence[ClusterAction]) -> list[Outcome]:
        """Carry the actions out in their order; after one that failed nothing more is tried."""
        outcomes: list[Outcome] = []
        with self._lock:
            for action in actions:
                done = self._runner.write(self._argv(action), self._lock)
                outcomes.append(Outcome(action, failure(done), (" ".join(done.argv),), done.duration_s))
                if not outcomes[-1].done:
                    break
        return outcomes


def _value(action: ClusterAction) -> str:
    match action:
        case SetFairshare():
            return f"fairshare={action.after}"
        case SetPeriodicLimits():
            pairs = ",".join(f"{checked('TRES', tres)}={value}" for tres, value in action.after)
            return f"{LimitType(action.limit_type)}={pairs}"
        case ResetRawUsage():
            return "RawUsage=0"
    raise BackendError(f"SLURM has no periodic setting for {action.verb}")
