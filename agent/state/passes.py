# SPDX-License-Identifier: MIT
"""The last passes of each offering and mode, which `status` shows without a broker, and sums of what passes have done,
which only grow, for the metrics: all processes add to the same sums, and no restart sets them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from agent.state.hints import PASS_COUNTS, PASSES
from agent.state.store import Db, Source, note

KEPT = 10
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
    """One sum of an offering."""

    mode: str
    figure: Figure
    kind: str
    outcome: str
    value: float


Sums = Mapping[tuple[Figure, str, str], float]
"""What is added, by figure, kind and outcome."""


def add(
    source: Source, offering_uuid: str, mode: str, entry: dict[str, Any], sums: Sums = MappingProxyType({})
) -> bool:
    """Write down how a pass ended, and add to the sums of what passes did. Passes that found nothing to do replace each
    other. False, with a warning, where it cannot be written.
    """

    def work(db: Db) -> None:
        before = last(db, offering_uuid, mode)
        kept = before[1:] if _is_idle(entry) and before and _is_idle(before[0]) else before
        PASSES.put(db, offering_uuid, {mode: [entry, *kept][:KEPT]})
        add_counts(db, offering_uuid, mode, sums)

    return note(source, "the last pass", work)


def _is_idle(entry: Mapping[str, Any]) -> bool:
    is_eventful = any(entry.get(what) for what in ("failures", "results", "actions", "held"))
    return entry.get("result") == "ok" and not is_eventful


def last(source: Source, offering_uuid: str, mode: str) -> list[dict[str, Any]]:
    """Return the entries, newest first; none, with a warning, where it cannot be read."""
    return PASSES.get(source, offering_uuid, mode) or []


def add_counts(source: Source, offering_uuid: str, mode: str, sums: Sums) -> bool:
    """Add to the sums. False, with a warning, where they cannot be written."""

    def work(db: Db) -> None:
        known = PASS_COUNTS.get(db, offering_uuid, mode) or []
        found = {(figure, kind, outcome): value for figure, kind, outcome, value in known}
        for which, value in sums.items():
            if value:
                found[which] = found.get(which, 0.0) + value
        rows = [(*which, value) for which, value in sorted(found.items())]
        PASS_COUNTS.put(db, offering_uuid, {mode: rows})

    return not any(sums.values()) or note(source, "what the pass did", work)


def counts(source: Source, offering_uuid: str) -> list[Count]:
    """Return all sums of an offering; those of a newer agent are skipped, and all, with a warning, where they cannot
    be read.
    """
    return [
        Count(mode, Figure(figure), kind, outcome, value)
        for mode, rows in sorted((PASS_COUNTS.all(source, offering_uuid) or {}).items())
        for figure, kind, outcome, value in rows
        if figure in list(Figure)
    ]
