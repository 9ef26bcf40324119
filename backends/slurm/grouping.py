# SPDX-License-Identifier: MIT
"""Which actions one command or request can name together. Both ways to SLURM ask here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from agent.core.actions import RemoveMember

Item = TypeVar("Item")
Key = TypeVar("Key")

# One argument is kept below the kernel's 128 KiB: 500 names of 255 characters.
NAMES_AT_ONCE = 500


def products(
    leavers: Sequence[RemoveMember], one: Callable[[RemoveMember], str], many: Callable[[RemoveMember], str]
) -> list[list[RemoveMember]]:
    """Return groups that are a whole product of users and accounts: all that `one` names leaves the same `many`."""
    sets = {name: frozenset(map(many, group)) for name, group in grouped(leavers, one).items()}
    groups = grouped(leavers, lambda a: sets[one(a)])
    return [
        [a for a in group if one(a) in ones and many(a) in manies]
        for group in groups.values()
        for ones in portioned([sorted({one(a) for a in group})])
        for manies in portioned([sorted({many(a) for a in group})])
    ]


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    groups: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def portioned(groups: Iterable[Sequence[Item]], size: int = NAMES_AT_ONCE) -> Iterator[Sequence[Item]]:
    for group in groups:
        for start in range(0, len(group), size):
            yield group[start : start + size]
