# SPDX-License-Identifier: MIT
"""Fairshare, limits of three types and the raw usage of one account, as a periodic usage policy sets them.

Read from `show assoc`: `list account` shows 0 and nothing (22.05). Equal values are not written: each write costs
0.36 s and a transaction. What rc 0 really did is not judged here: the caller reads the account back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.core.actions import ClusterAction
from agent.core.errors import BackendError, ParseError
from agent.core.periodic import (
    LimitType,
    PeriodicState,
    ResetRawUsage,
    SetFairshare,
    SetPeriodicLimits,
)
from agent.core.plans import Outcome
from backends.lock import WriteLock
from backends.process import Completed, Runner
from backends.slurm import parse
from backends.slurm.allowed_names import checked
from backends.slurm.programs import Programs, answer, failure

COLUMNS = ("account", "user", "fairshare", "grptresmins", "maxtresmins", "grptres")
COMMAND = "sacctmgr show assoc"
LIMIT_COLUMNS = (LimitType.GRP_TRES_MINS, LimitType.MAX_TRES_MINS, LimitType.GRP_TRES)


class PeriodicSettings:
    """One cluster; without `cluster` the one of slurm.conf."""

    def __init__(self, runner: Runner, programs: Programs, lock: WriteLock, cluster: str) -> None:
        self._runner = runner
        self._programs = programs
        self._lock = lock
        self._cluster = (f"cluster={cluster}",) if cluster else ()

    def state(self, account: str) -> PeriodicState | None:
        """What the account has of its own; None where it is not on the cluster. Raises BackendError."""
        where = (f"account={checked('account', account)}", *self._cluster)
        columns = f"format={','.join(COLUMNS)}"
        command = (*self._programs.sacctmgr_read, "show", "assoc", "where", *where, columns, "WOPLimits")
        for row in parse.rows(COMMAND, answer(self._runner.read(command)), len(COLUMNS)):
            name, user, share, *limits = row
            if name == account and not user:
                values = map(parse.tres_limits, limits)
                return PeriodicState(_share(share), dict(zip(LIMIT_COLUMNS, values, strict=True)))
        return None

    def apply(self, actions: Sequence[ClusterAction]) -> list[Outcome]:
        """In their order; after one that failed nothing more is tried."""
        outcomes: list[Outcome] = []
        with self._lock:
            for action in actions:
                completed = self._runner.write(
                    (*self._programs.sacctmgr_write, *self._argv(action)), self._lock
                )
                outcomes.append(_outcome(action, completed))
                if not outcomes[-1].done:
                    break
        return outcomes

    def _argv(self, action: ClusterAction) -> tuple[str, ...]:
        where = ("modify", "account", "where", f"name={checked('account', action.account)}", *self._cluster)
        values = VALUES.get(type(action))
        if values is None:
            raise BackendError(f"SLURM has no periodic setting for {action.verb}")
        return (*where, "set", values(action))


def _limits(action: SetPeriodicLimits) -> str:
    pairs = ",".join(f"{checked('TRES', tres)}={value}" for tres, value in action.after)
    return f"{LimitType(action.limit_type)}={pairs}"


VALUES: dict[type[ClusterAction], Callable[..., str]] = {
    SetFairshare: lambda action: f"fairshare={action.after}",
    SetPeriodicLimits: _limits,
    ResetRawUsage: lambda _: "RawUsage=0",
}


def _share(text: str) -> int | None:
    if text == "parent":
        return None
    if not text.isdecimal():
        raise ParseError(COMMAND, text, "a fairshare is a number or `parent`")
    return int(text)


def _outcome(action: ClusterAction, completed: Completed) -> Outcome:
    return Outcome(action, failure(completed), (" ".join(completed.argv),), completed.duration_s)
