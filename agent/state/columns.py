# SPDX-License-Identifier: MIT
"""Values of rows that are more than text: numbers, moments, JSON. Whoever can write the state file can put anything
there; SQLite's types keep nothing out. A value that no agent writes raises StateUnreadable, with the column's name.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from sqlite3 import Row
from typing import Any, TypeVar

from agent.core.bounded_json import read_json
from agent.core.errors import StateUnreadable
from agent.state.store import MOVE_ASIDE

Chosen = TypeVar("Chosen", bound=StrEnum)


def number(row: Row, column: str) -> int:
    value = row[column]
    if not isinstance(value, int):
        raise strange(column, value)
    return value


def moment(row: Row, column: str, *, is_zoned: bool = True) -> datetime:
    """Return a moment in UTC, or one without a zone where those are stored."""
    try:
        found = datetime.fromisoformat(row[column])
    except (TypeError, ValueError):
        raise strange(column, row[column]) from None
    if (found.utcoffset() is not None) != is_zoned:
        raise strange(column, row[column])
    return found


def choice(row: Row, column: str, of: type[Chosen]) -> Chosen:
    """Return one of the words of an enumeration."""
    try:
        return of(row[column])
    except ValueError:
        raise strange(column, row[column]) from None


def texts(row: Row, column: str) -> tuple[str, ...]:
    """Return a list of texts."""
    found = _json(row, column)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise strange(column, row[column])
    return tuple(found)


def mapping(row: Row, column: str, of: type | None = None) -> dict[str, Any]:
    """Return an object; `of`: the type of all its values."""
    found = _json(row, column)
    if not isinstance(found, dict) or (of and not all(isinstance(each, of) for each in found.values())):
        raise strange(column, row[column])
    return found


def _json(row: Row, column: str) -> Any:
    try:
        return read_json(row[column], values_at_most=None)
    except (TypeError, AttributeError, ValueError):
        raise strange(column, row[column]) from None


def strange(column: str, value: object) -> StateUnreadable:
    """Return the error for a value that no agent writes."""
    return StateUnreadable(
        f"the state file is damaged (its column {column} has {value!r:.80}, which no agent writes): {MOVE_ASIDE}"
    )
