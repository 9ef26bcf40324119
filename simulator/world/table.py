# SPDX-License-Identifier: MIT
"""A table in memory: rows by uuid in order of creation, with lists by the keys that lookups need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from simulator.world.records import Record

T = TypeVar("T", bound=Record)


class Table(Generic[T]):
    """The indexed attributes of a row must not change while the row is in the table."""

    def __init__(self, **indexes: Callable[[T], Hashable]) -> None:
        self._rows: dict[str, T] = {}
        self._keys = indexes
        self._lists: dict[str, dict[Hashable, list[T]]] = {name: defaultdict(list) for name in indexes}

    def add(self, row: T) -> T:
        self._rows[row.uuid] = row
        for name, key in self._keys.items():
            self._lists[name][key(row)].append(row)
        return row

    def remove(self, row: T) -> None:
        del self._rows[row.uuid]
        for name, key in self._keys.items():
            self._lists[name][key(row)].remove(row)

    def get(self, uuid: str | None) -> T | None:
        return self._rows.get(uuid) if uuid is not None else None

    def where(self, index: str, *keys: Hashable) -> list[T]:
        """Return the rows of these keys, one key's after the other's."""
        lists = self._lists[index]
        return [row for key in keys for row in lists.get(key, ())]

    def first(self, index: str, key: Hashable) -> T | None:
        """Return the first row of a key."""
        found = self._lists[index].get(key)
        return found[0] if found else None

    def __getitem__(self, uuid: str) -> T:
        return self._rows[uuid]

    def __contains__(self, uuid: object) -> bool:
        return uuid in self._rows

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._rows.values()))

    def __len__(self) -> int:
        return len(self._rows)
