# SPDX-License-Identifier: MIT
"""Months of loads of history that ended, so that a load which was killed goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from agent.state import columns
from agent.state.store import Db, Source, moment_text, note, recall

WHAT = "which months were loaded"

Document = Mapping[str, Any]


def months(source: Source, run: str) -> list[Document]:
    """Return the outcomes of a run's months; none, with a warning, where nobody can tell."""
    sql = "SELECT outcome FROM history_months WHERE run = ? ORDER BY month"

    def work(db: Db) -> list[Document]:
        return [columns.mapping(row, "outcome") for row in db.rows(sql, run)]

    return recall(source, WHAT, work) or []


def add(
    source: Source, run: str, offering_uuid: str, wanted: Document, month: str, outcome: Document
) -> bool:
    """Write down the outcome of a month. False, with a warning, where that is not possible."""
    now = moment_text(datetime.now(UTC))

    def work(db: Db) -> None:
        db.run(
            "INSERT OR IGNORE INTO history_runs VALUES (?, ?, ?, ?)",
            run,
            offering_uuid,
            json.dumps(wanted),
            now,
        )
        db.run("INSERT OR REPLACE INTO history_months VALUES (?, ?, ?)", run, month, json.dumps(outcome))

    return note(source, WHAT, work)


def keep(source: Source, run: str, kept: Iterable[str]) -> bool:
    """Forget all other months of the run. False, with a warning, where that is not possible."""
    names = list(kept)
    unknown = [each for each in months(source, run) if each.get("month") not in names]
    if not unknown:
        return True
    marks = ", ".join("?" for _ in names)
    sql = f"DELETE FROM history_months WHERE run = ? AND month NOT IN ({marks})"  # noqa: S608  question marks only
    return note(source, WHAT, lambda db: db.run(sql, run, *names))
