# SPDX-License-Identifier: MIT
"""What the passes of this head node have done since its state file was made: sums that only grow, for the metrics.

All processes add to the same sums, and no restart sets them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.state.store import Source, note, reading

# Upper bounds of the histogram of durations, in seconds.
SECONDS_UP_TO = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 240.0)


class Figure(StrEnum):
    """What is summed up. `kind` and `outcome` of a count say of which."""

    PASSES = "passes"
    SECONDS = "seconds"
    SECONDS_UP_TO = "seconds_up_to"
    ACTIONS = "actions"
    RESULTS = "results"
    REQUESTS = "requests"
    COMMANDS = "commands"


@dataclass(frozen=True, slots=True)
class Count:
    """One sum of one offering and mode."""

    offering: str
    mode: str
    figure: Figure
    kind: str
    outcome: str
    value: float


Sums = Mapping[tuple[Figure, str, str], float]
"""What is added, by figure, kind and outcome."""


def add(source: Source, offering_uuid: str, mode: str, sums: Sums) -> bool:
    """Add to the sums. False, with a warning, where they cannot be written."""
    rows = [
        (offering_uuid, mode, figure, kind, outcome, value)
        for (figure, kind, outcome), value in sums.items()
        if value
    ]
    sql = (
        "INSERT INTO pass_counts (offering, mode, figure, kind, outcome, value) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (offering, mode, figure, kind, outcome) DO UPDATE SET value = value + excluded.value"
    )
    return not rows or note(source, "what the pass did", lambda db: db.run_many(sql, rows))


def all_of(source: Source) -> list[Count]:
    """Return all sums; those of a newer agent are left out. Raises StateError."""
    with reading(source) as db:
        rows = db.rows("SELECT * FROM pass_counts ORDER BY offering, mode, figure, kind, outcome")
    return [
        Count(
            str(row["offering"]),
            str(row["mode"]),
            Figure(row["figure"]),
            str(row["kind"]),
            str(row["outcome"]),
            float(row["value"]),
        )
        for row in rows
        if row["figure"] in list(Figure) and isinstance(row["value"], int | float)
    ]
