# SPDX-License-Identifier: MIT
"""Keys of the reference that nothing here serves yet. Each stops the modes that it is about, with one sentence.

Whoever serves such a key takes it out of its table. The tables stand with the schemas of the maps they are about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.config.field_types import FALSE_WORDS
from agent.config.findings import below, key_name, stopping, unknown_keys
from agent.config.model import Mode, Problem, Severity

ACCOUNT_MODES = frozenset({Mode.ORDER_PROCESS, Mode.MEMBERSHIP_SYNC})


@dataclass(frozen=True, slots=True)
class NotServed:
    """Why a mode must not run without the key: `without_it` goes on after "without it". `usual` is its default."""

    without_it: str
    stops: frozenset[Mode] = ACCOUNT_MODES
    usual: str = ""

    def is_asked_for(self, value: object) -> bool:
        """Return whether the value wants anything else than what happens anyway."""
        word = value.strip().lower() if isinstance(value, str) else value
        return not (word is None or word is False or word == self.usual or word in ("", *FALSE_WORDS))


def not_served(section: object, keys: Mapping[str, NotServed], path: str) -> Iterator[Problem]:
    """Yield a problem for each key of the table, dotted below `section`, that asks for something."""
    for name, refused in keys.items():
        value = _at(section, name)
        if refused.is_asked_for(value):
            sentence = f"`{name}` is not served yet, and without it {refused.without_it}"
            yield stopping(below(path, name), sentence, refused.stops)


def unknown_below(section: object, maps: Mapping[str, Iterable[str]], path: str) -> Iterator[Problem]:
    """Yield the unknown keys of nested maps, as `unknown_keys` does; `maps` has the known ones by dotted name."""
    for name, known in maps.items():
        inner = _at(section, name)
        if isinstance(inner, Mapping):
            yield from unknown_keys(inner, known, below(path, name))
        elif inner is not None and inner is not False:
            message = f"`{name}` is {type(inner).__name__}; a map of keys is needed"
            yield Problem(Severity.ERROR, below(path, name), message)


def _at(section: object, name: str) -> Any:
    """Return the value at a dotted name; None where there is none."""
    for part in name.split("."):
        if not isinstance(section, Mapping):
            return None
        section = next((value for key, value in section.items() if key_name(key) == part), None)
    return section
