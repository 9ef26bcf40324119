# SPDX-License-Identifier: MIT
"""List filters: each API area names its parameters and how a row answers them; unknown names are ignored.

A malformed value is a 400 under the parameter's name, as is a choice the server does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Generic, TypeVar

from simulator.api.paging import Query
from simulator.rules.errors import bad_field
from simulator.world.identifiers import as_uuid

T = TypeVar("T")
Predicate = Callable[[T], bool]
# Given the parameter's name and its values, what a row must satisfy.
Filter = Callable[[str, list[str]], Predicate[T]]

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class Filters(Generic[T]):
    def __init__(self, **by_name: Filter[T]) -> None:
        self._by_name = by_name

    def apply(self, rows: Iterable[T], query: Query) -> list[T]:
        wanted = [
            self._by_name[name](name, values)
            for name, values in query.items()
            if name in self._by_name and any(values)
        ]
        left = list(rows)
        for accept in wanted:
            left = [row for row in left if accept(row)]
        return left

    def without(self, *names: str) -> Filters[T]:
        kept: Filters[T] = Filters(**{n: f for n, f in self._by_name.items() if n not in names})
        return kept


def uuid_is(get: Callable[[T], str | None]) -> Filter[T]:
    """Any of the uuids: 8.1 takes several; older servers are only ever sent one."""

    def build(name: str, values: list[str]) -> Predicate[T]:
        wanted = {as_uuid(value) for value in values}
        if None in wanted:
            raise bad_field(name, "Enter a valid UUID.")
        return lambda row: get(row) in wanted

    return build


def choice_in(get: Callable[[T], str], choices: Iterable[str]) -> Filter[T]:
    known = frozenset(choices)

    def build(name: str, values: list[str]) -> Predicate[T]:
        for value in values:
            if value not in known:
                raise bad_field(name, f"Not one of the choices: {value}")
        wanted = frozenset(values)
        return lambda row: get(row) in wanted

    return build


def text_is(get: Callable[[T], str]) -> Filter[T]:
    return lambda _, values: lambda row: get(row) == values[-1]


def text_has(get: Callable[[T], Sequence[str]]) -> Filter[T]:
    """Match as the search box does: any of the row's texts contains the words, ignoring case."""

    def build(_: str, values: list[str]) -> Predicate[T]:
        words = values[-1].lower()
        return lambda row: any(words in text.lower() for text in get(row))

    return build


def flag_is(get: Callable[[T], bool]) -> Filter[T]:
    def build(_: str, values: list[str]) -> Predicate[T]:
        wanted = _BOOLEANS.get(values[-1].lower())
        return lambda row: wanted is None or get(row) is wanted

    return build


def moment_from(get: Callable[[T], datetime]) -> Filter[T]:
    def build(name: str, values: list[str]) -> Predicate[T]:
        start = _moment(name, values[-1])
        return lambda row: get(row) >= start

    return build


def moment_until(get: Callable[[T], datetime]) -> Filter[T]:
    def build(name: str, values: list[str]) -> Predicate[T]:
        end = _moment(name, values[-1])
        return lambda row: get(row) <= end

    return build


def day_matches(accept: Callable[[T, date], bool]) -> Filter[T]:
    def build(name: str, values: list[str]) -> Predicate[T]:
        try:
            day = date.fromisoformat(values[-1])
        except ValueError:
            raise bad_field(name, "Enter a valid date.") from None
        return lambda row: accept(row, day)

    return build


def number_is(get: Callable[[T], int]) -> Filter[T]:
    def build(name: str, values: list[str]) -> Predicate[T]:
        if not values[-1].isdigit():
            raise bad_field(name, "Enter a number.")
        wanted = int(values[-1])
        return lambda row: get(row) == wanted

    return build


def _moment(name: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        raise bad_field(name, "Enter a valid date/time.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
