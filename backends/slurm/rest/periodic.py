# SPDX-License-Identifier: MIT
"""Fairshare and limits of one account, as a periodic usage policy sets them, through slurmrestd."""

from __future__ import annotations

from collections.abc import Sequence

from agent.core.actions import ClusterAction
from agent.core.periodic import DesiredSettings, LimitType, ObservedSettings
from agent.core.plans import Outcome
from backends.slurm.rest.reader import RestReader
from backends.slurm.rest.requests import LISTS
from backends.slurm.rest.writer import RestWriter
from backends.slurm.schema import NO_RESET


class RestPeriodicSettings:
    def __init__(self, reader: RestReader, writer: RestWriter) -> None:
        self._reader = reader
        self._writer = writer

    def state(self, account: str) -> ObservedSettings | None:
        """Return what the account has of its own; None where it is not on the cluster. Raises BackendError."""
        row = self._reader.rows().account(account)
        if row is None:
            return None
        limits = {kind: dict(row.tres.get(path, {})) for kind, path in LISTS.items()}
        return ObservedSettings(row.share, {LimitType(kind): values for kind, values in limits.items()})

    def cannot(self, asked: DesiredSettings) -> str:
        if asked.resets_usage:
            return f"{NO_RESET}: the policy asks for it, so nothing of its message is done"
        return ""

    def apply(self, actions: Sequence[ClusterAction]) -> list[Outcome]:
        """Carry the actions out in their order; after one that failed nothing more is tried."""
        outcomes: list[Outcome] = []
        for action in actions:
            outcomes += self._writer.apply([action])
            if not outcomes[-1].done:
                break
        return outcomes
