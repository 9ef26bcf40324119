# SPDX-License-Identifier: MIT
"""Find allocations and people among those that passes over members saw: searched, sorted and paged by the database.

Rows are compared as the text that they are: what they are found by is their first field, and nothing is parsed but
what a page shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from sqlite3 import Row
from typing import Generic, TypeVar

from agent.core.overview import SeenAllocation, SeenPerson
from agent.state.hints import SEEN_ALLOCATIONS, SEEN_PEOPLE, Hints
from agent.state.store import Source, moment_from, reading

V = TypeVar("V")

# Of one search.
WORDS_AT_MOST = 8
COLUMNS = "SELECT scope, key, value, written_at FROM hints WHERE kind = ?"
# Within the text of the first field, which ends before the first quotation mark that is none of its own.
FIRST = len('{"search": "')
HAS_WORD = f"""instr(substr(value, {FIRST + 1}, instr(value, '", "') - {FIRST}), ?) > 0"""
IS_TROUBLED = """(instr(value, '"problem": ""') = 0 OR instr(value, '"missing": []') = 0
  OR instr(value, '"surplus": []') = 0)"""


@dataclass(frozen=True, slots=True)
class Seen(Generic[V]):
    """What was seen, or found out, of one thing."""

    offering_uuid: str
    key: str
    value: V
    # When it was last written: something of it had changed.
    changed: datetime


@dataclass(frozen=True, slots=True)
class Found(Generic[V]):
    """One page of what was found, by name."""

    rows: Sequence[Seen[V]]
    total: int


def find(  # noqa: PLR0913  what a page may ask
    source: Source,
    kind: Hints[V],
    offering_uuids: Sequence[str],
    text: str = "",
    *,
    first: int = 0,
    count: int = 50,
    are_only_troubled: bool = False,
) -> Found[V]:
    """Return those whose names have all words of a text. Raises StateError where the state cannot be read."""
    words = [json.dumps(word)[1:-1] for word in text.casefold().split()[:WORDS_AT_MOST]]
    where = f" AND scope IN ({', '.join('?' * len(offering_uuids))})"
    where += f" AND {HAS_WORD}" * len(words) + (f" AND {IS_TROUBLED}" if are_only_troubled else "")
    values = (kind.kind, *offering_uuids, *words)
    with reading(source) as db:
        counted = db.row(f"SELECT COUNT(*) AS total FROM hints WHERE kind = ?{where}", *values)  # noqa: S608  our own words
        rows = db.rows(f"{COLUMNS}{where} ORDER BY value LIMIT ? OFFSET ?", *values, count, first)
    return Found(_all_seen(kind, rows), counted["total"] if counted else 0)


def one(source: Source, kind: Hints[V], offering_uuid: str, key: str) -> Seen[V] | None:
    """Return one, None where nothing is known of it, or for too long. Raises StateError."""
    with reading(source) as db:
        rows = db.rows(f"{COLUMNS} AND scope = ? AND key = ?", kind.kind, offering_uuid, key)
    seen = next(iter(_all_seen(kind, rows)), None)
    return seen if seen and datetime.now(UTC) - seen.changed < (kind.age or timedelta.max) else None


def people(source: Source, offering_uuid: str, usernames: Sequence[str]) -> dict[str, Seen[SeenPerson]]:
    """Return the people of these names on the cluster, by name. Raises StateError."""
    sql = f"{COLUMNS} AND scope = ? AND key IN (SELECT value FROM json_each(?))"  # noqa: S608  our own words
    with reading(source) as db:
        rows = db.rows(sql, SEEN_PEOPLE.kind, offering_uuid, json.dumps(list(usernames)))
    return {seen.key: seen for seen in _all_seen(SEEN_PEOPLE, rows)}


def of_member(source: Source, offering_uuid: str, username: str, count: int) -> list[Seen[SeenAllocation]]:
    """Return the allocations that a person is in, or should be, by name. Raises StateError."""
    sql = f"{COLUMNS} AND scope = ? AND instr(value, ?) > 0 ORDER BY value LIMIT ?"
    with reading(source) as db:
        rows = db.rows(sql, SEEN_ALLOCATIONS.kind, offering_uuid, json.dumps(username), count)
    found = _all_seen(SEEN_ALLOCATIONS, rows)
    return [each for each in found if username in (*each.value.members, *each.value.missing)]


def _all_seen(kind: Hints[V], rows: Sequence[Row]) -> list[Seen[V]]:
    """Return what rows say, without damaged ones."""
    parsed = ((row, kind.parsed(row["value"])) for row in rows)
    return [
        Seen(row["scope"], row["key"], value, moment_from(row["written_at"]))
        for row, value in parsed
        if value is not None
    ]
