# SPDX-License-Identifier: MIT
"""A site whose months of 2024 are loaded with a staff token: a simulated Waldur and a cluster in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.core.periods import Month
from agent.run.backfill import month as history
from agent.run.backfill.month import LoadOptions
from agent.run.backfill.results import Mark, MonthOutcome
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.usage.world import World

JAN, FEB, MAR = Month(2024, 1), Month(2024, 2), Month(2024, 3)


class History(World):
    """`load` is one month."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path, *, user: str = "staff", **options: Any) -> None:
        super().__init__(waldur, folder, user=user, **options)

    def load(self, month: Month = JAN, **options: Any) -> MonthOutcome:
        return history.load_month(self.site, month, LoadOptions(**options))

    def loaded(self, month: Month = JAN, **options: Any) -> MonthOutcome:
        """A month of which nothing fails, and of which a second load sends nothing."""
        outcome = self.load(month, **options)
        assert (outcome.failures, outcome.error) == ((), None)
        self.waldur.requests.reset()
        again = self.load(month, **options)
        assert (again.failures, again.submitted, self.sent()) == ((), 0, [])
        return outcome


def texts(outcome: MonthOutcome, *marks: Mark) -> list[str]:
    """The lines of these kinds, of all kinds where none is named."""
    return [line.text for line in outcome.lines if not marks or line.mark in marks]
