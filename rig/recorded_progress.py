# SPDX-License-Identifier: MIT
"""A progress listener of `historical-usage` runs that keeps what it receives."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.core.periods import Month
from agent.run.backfill.results import Mark, MonthOutcome


@dataclass
class RecordedProgress:
    """Progress that is kept, with a `sleep` that does not wait."""

    # Of progress.
    lines: list[str] = field(default_factory=list)
    # The seconds that were asked for.
    slept: list[float] = field(default_factory=list)

    def begun(self, month: Month, where: str = "") -> None:
        self.lines.append(f"{month} begun")

    def waiting(self, month: Month, reason: str, seconds: float | None = None) -> None:
        self.lines.append(f"{month} waits")

    def ended(self, outcome: MonthOutcome) -> None:
        self.lines.append(f"{outcome.month} {outcome.ending}")

    def remark(self, mark: Mark, text: str) -> None:
        self.lines.append(text)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
