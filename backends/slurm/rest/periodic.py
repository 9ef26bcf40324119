# SPDX-License-Identifier: MIT
"""Fairshare and limits of one account, as a periodic usage policy sets them, through slurmrestd."""

from __future__ import annotations

from collections.abc import Sequence

from agent.core.actions import ClusterAction
from agent.core.errors import BackendError
from agent.core.periodic import DesiredSettings, LimitType, ObservedSettings
from agent.core.periodic_actions import ResetRawUsage
from agent.core.plans import Outcome
from backends.slurm.backend import SlurmBackend
from backends.slurm.rest.reader import RestReader
from backends.slurm.rest.requests import LISTS
from backends.slurm.rest.writer import RestWriter
from backends.slurm.schema import NO_RESET


class RestPeriodicSettings:
    """`commands`: those of this host, which reset raw usage; None where it has none."""

    def __init__(self, reader: RestReader, writer: RestWriter, commands: SlurmBackend | None) -> None:
        self._reader = reader
        self._writer = writer
        self._commands = commands

    def state(self, account: str) -> ObservedSettings | None:
        """Return what the account has of its own; None where it is not on the cluster. Raises BackendError."""
        row = self._reader.rows().account(account)
        if row is None:
            return None
        limits = {kind: dict(row.tres.get(path, {})) for kind, path in LISTS.items()}
        return ObservedSettings(row.share, {LimitType(kind): values for kind, values in limits.items()})

    def cannot(self, asked: DesiredSettings) -> str:
        if asked.resets_usage and self._commands is None:
            return f"{NO_RESET}: the policy asks for it, so nothing of its message is done"
        return ""

    def apply(self, actions: Sequence[ClusterAction]) -> list[Outcome]:
        """Carry the actions out in their order; after one that failed nothing more is tried."""
        outcomes: list[Outcome] = []
        for action in actions:
            outcomes += (
                self._reset(action) if isinstance(action, ResetRawUsage) else self._writer.apply([action])
            )
            if not outcomes[-1].done:
                break
        return outcomes

    def _reset(self, action: ResetRawUsage) -> Sequence[Outcome]:
        """Reset raw usage by a command, which must see the account that slurmrestd shows: it says that nothing was to
        do where it knows no such account.
        """
        if self._commands is None:
            return [Outcome(action, BackendError(NO_RESET))]
        try:
            here, there = self._commands.periodic.state(action.account), self.state(action.account)
        except BackendError as error:
            return [Outcome(action, error)]
        if here is None or there is None or here.fairshare != there.fairshare:
            words = (
                f"{NO_RESET}, and sacctmgr of this host shows another account {action.account} than slurmrestd: let "
                "slurm_bin_path and SLURM_CONF lead to the same cluster"
            )
            return [Outcome(action, BackendError(words))]
        return self._commands.periodic.apply([action])
