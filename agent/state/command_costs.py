# SPDX-License-Identifier: MIT
"""Seconds that a cluster's commands took lately: `backends.base.CostHints` on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.state.hints import COMMAND_COSTS
from agent.state.store import Source


@dataclass(frozen=True, slots=True)
class CommandCosts:
    """The seconds of one cluster, or of all that share what makes them slow."""

    source: Source
    cluster: str

    def read(self) -> Mapping[str, float]:
        """Return what was written within the last day, by name; nothing, with a warning, where it cannot be read."""
        return COMMAND_COSTS.all(self.source, self.cluster) or {}

    def write(self, seconds: Mapping[str, float]) -> None:
        """Remember seconds by name. Where that is not possible, log a warning."""
        COMMAND_COSTS.put(self.source, self.cluster, seconds)
