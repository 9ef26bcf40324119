# SPDX-License-Identifier: MIT
"""Somebody to whom a run is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.core.periods import Month
from agent.run.backfill.results import Mark, MonthOutcome


@dataclass
class Heard:
    """An audience that remembers, and a clock that nobody waits for."""

    words: list[str] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def begun(self, month: Month, where: str = "") -> None:
        self.words.append(f"{month} begun")

    def waiting(self, month: Month, reason: str, seconds: float | None = None) -> None:
        self.words.append(f"{month} waits")

    def ended(self, outcome: MonthOutcome) -> None:
        self.words.append(f"{outcome.month} {outcome.ending}")

    def remark(self, mark: Mark, text: str) -> None:
        self.words.append(text)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
