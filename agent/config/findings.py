# SPDX-License-Identifier: MIT
"""Collects problems instead of raising at the first one, and finds what a misspelt key was meant to be.

Used by every reader of this package, and by the backends' registry for the keys that only a backend knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from agent.config.field_types import key_name
from agent.config.keys import WrongValue
from agent.config.model import Mode, Problem, Severity


class Findings:
    """The problems met so far."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def error(self, path: str, message: str) -> None:
        self._problems.append(Problem(Severity.ERROR, path, message))

    def warn(self, path: str, message: str, *, strict_error: bool = False) -> None:
        self._problems.append(Problem(Severity.WARNING, path, message, strict_error))

    def refuse(self, path: str, message: str, effect: WrongValue | None) -> None:
        """Add a value that cannot be used: an error of the whole file, unless its key has another effect. Where that
        stops modes of one offering, its other modes go on, and so do the other offerings.
        """
        if effect is None:
            self.error(path, message)
        else:
            sentence = f"{message}; {effect.sentence}"
            self._problems.append(Problem(Severity.WARNING, path, sentence, True, effect.stopped_modes))

    def add(self, problems: Iterable[Problem]) -> None:
        self._problems.extend(problems)

    def has_error_at(self, path: str) -> bool:
        return any(p.path == path and p.severity is Severity.ERROR for p in self._problems)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._problems)


@lru_cache(maxsize=256)  # one that is misspelt is misspelt in each offering
def nearest(name: str, names: tuple[str, ...], cutoff: float = 0.6) -> str:
    """Return which of the names this one may be a slip of; empty for none."""
    return next(iter(get_close_matches(name, names, n=1, cutoff=cutoff)), "")


def unknown_keys(written: Iterable[Any], known: Iterable[str], path: str) -> list[Problem]:
    """Return a warning for each key that is not `known`, with the nearest that is; `strict` makes it an error."""
    names = tuple(sorted(known))
    found: list[Problem] = []
    for key in written:
        if key in names:
            continue
        name = key_name(key)
        near = nearest(name.lower(), names)
        hint = f"; did you mean '{near}'?" if near else ""
        message = f"unknown key '{name}'{hint}"
        found.append(Problem(Severity.WARNING, key_path(path, name), message, strict_error=True))
    return found


def without_effect(section: object, keys: Iterable[str], path: str, why: str) -> Iterator[Problem]:
    """Yield one warning for those of the keys that are written in a map and ask for something; `why` they are not read
    goes on after "it has no effect:".
    """
    if not isinstance(section, Mapping):
        return
    asked = {key_name(key) for key, value in section.items() if value not in (None, "", False, [], {}, ())}
    if found := sorted(asked.intersection(keys)):
        is_one = len(found) == 1
        effect = "it has no effect" if is_one else f"{', '.join(found)} have no effect"
        yield Problem(Severity.WARNING, key_path(path, found[0]) if is_one else path, f"{effect}: {why}")


def with_strict_errors(problems: Iterable[Problem], *, strict: bool) -> tuple[Problem, ...]:
    """Return the problems with those that `strict` marks as errors, where it is set."""
    return tuple(replace(p, severity=Severity.ERROR) if strict and p.strict_error else p for p in problems)


def has_errors(problems: Iterable[Problem]) -> bool:
    return any(p.severity is Severity.ERROR for p in problems)


def is_unusable(problems: Iterable[Problem]) -> bool:
    """Return whether nothing can be made of the values: one is an error, or stops all modes."""
    return any(p.severity is Severity.ERROR or p.stopped_modes == frozenset(Mode) for p in problems)


def key_path(path: str, key: str) -> str:
    """Return the path of a key inside the map at `path`."""
    return f"{path}.{key}" if path else key
