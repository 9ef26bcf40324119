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
        row = self._reader.rows({account}).account(account)
        if row is None:
            return None
        limits = {kind: dict(row.tres.get(path, {})) for kind, path in LISTS.items()}
        return ObservedSettings(row.share, {LimitType(kind): values for kind, values in limits.items()})

    def cannot(self, asked: DesiredSettings, observed: ObservedSettings) -> str:
        """Say what stands against a reset of raw usage by sacctmgr, which is asked. Raises what another try may end."""
        if not asked.resets_usage:
            return ""
        try:
            why = self._no_reset(asked.account, observed)
        except BackendError as error:
            if error.retryable:
                raise
            why = f"{NO_RESET}, and sacctmgr of this host fails: {error}"
        return f"{why}. The policy asks for it, so nothing of its message is done" if why else ""

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
        """Reset raw usage by a command. Looks again: the share is perhaps another one now."""
        try:
            why = self._no_reset(action.account, self.state(action.account))
        except BackendError as error:
            return [Outcome(action, error)]
        if self._commands is None or why:
            return [Outcome(action, BackendError(why))]
        return self._commands.periodic.apply([action])

    def _no_reset(self, account: str, there: ObservedSettings | None) -> str:
        """Return why no command can reset the account that slurmrestd shows; empty where one can. sacctmgr says that
        nothing was to do where it knows no such account. Raises BackendError.
        """
        if self._commands is None:
            return NO_RESET
        here = self._commands.periodic.state(account)
        if here is None or there is None or here.fairshare != there.fairshare:
            return (
                f"{NO_RESET}, and sacctmgr of this host shows another account {account} than slurmrestd: let "
                "slurm_bin_path and SLURM_CONF lead to the same cluster"
            )
        return ""
