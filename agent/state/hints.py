# SPDX-License-Identifier: MIT
"""Hints: what was seen, reported, counted or done, and may be lost without harm. One table for all kinds of them.

Their list is at the end of this module. What would bill or remove a person where a row is lost or old is no hint, and
has its own table (docs/state.md says why). A hint never stops a pass: one that cannot be read is forgotten, one
that cannot be written is missing, and both are a warning.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import isfinite
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from agent.core.bounded_json import read_json
from agent.core.homes import HomeRecord
from agent.core.overview import Look, SeenAllocation, SeenPerson
from agent.core.project_directories import DirectoryRecord
from agent.state.store import Db, Source, moment_text, note, recall, writing

log = logging.getLogger(__name__)

V = TypeVar("V")

# What reading a damaged row raises: OverflowError, an integer of hundreds of digits in place of a moment or a number.
_DAMAGES = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Hints(Generic[V]):
    """One kind of hint: a value for each key, kept apart by scope (the uuid of an offering, a cluster, a run)."""

    kind: str
    # The type of the values, a dataclass or what JSON has.
    value: type[V]
    # What they hold, for sentences.
    what: str
    # How long one counts; without it until it is replaced.
    age: timedelta | None = None

    def all(self, source: Source, scope: str) -> dict[str, V] | None:
        """Return the values by key; None, with a warning, where it cannot be read."""
        return self._read(source, scope)

    def get(self, source: Source, scope: str, key: str) -> V | None:
        """Return one value; None where there is none, or with a warning where it cannot be read."""
        return next(iter((self._read(source, scope, key) or {}).values()), None)

    def put(self, source: Source, scope: str, news: Mapping[str, V], gone: Iterable[str] = ()) -> bool:
        """Write down new values and forget those that are `gone`, by key. False, with a warning, where that is not
        possible.
        """
        texts = {key: json.dumps(value, default=_plain) for key, value in news.items()}
        return self._put(source, scope, texts, list(gone))

    def _put(self, source: Source, scope: str, texts: Mapping[str, str], lost: Sequence[str]) -> bool:
        if not texts and not lost:
            return True
        now = datetime.now(UTC)

        def work(db: Db) -> None:
            if self.age is not None:
                too_old = moment_text(now - self.age)
                db.run("DELETE FROM hints WHERE kind = ? AND written_at < ?", self.kind, too_old)
            db.run_many(
                "DELETE FROM hints WHERE kind = ? AND scope = ? AND key = ?",
                ((self.kind, scope, key) for key in lost),
            )
            db.run_many(
                "INSERT OR REPLACE INTO hints VALUES (?, ?, ?, ?, ?)",
                ((self.kind, scope, key, text, moment_text(now)) for key, text in texts.items()),
            )

        return note(source, self.what, work)

    def change(self, source: Source, scope: str, before: Mapping[str, V], after: Mapping[str, V]) -> bool:
        """Write down the difference. False, with a warning, where that is not possible."""
        news = {key: value for key, value in after.items() if before.get(key) != value}
        return self.put(source, scope, news, before.keys() - after.keys())

    def replace(self, source: Source, scope: str, values: Mapping[str, V], *, are_all: bool) -> bool:
        """Write down those that differ from what is there, and forget the others where these `are_all`. What is there
        is not parsed: thousands of values that stayed the same cost little. False, with a warning, where it is not
        possible.
        """
        sql = "SELECT CAST(key AS BLOB) AS key, CAST(value AS BLOB) AS value FROM hints WHERE kind = ? AND scope = ?"
        rows = recall(source, self.what, lambda db: db.raw_rows(sql, self.kind, scope)) or ()
        before = {row["key"].decode(errors="replace"): row["value"] for row in rows}
        texts = {key: json.dumps(value, default=_plain) for key, value in values.items()}
        news = {key: text for key, text in texts.items() if before.get(key) != text.encode()}
        return self._put(source, scope, news, list(before.keys() - texts.keys()) if are_all else [])

    def parsed(self, text: str) -> V | None:
        """Return the value that a row's text stands for; None for a damaged one."""
        try:
            return self._typed(read_json(text, values_at_most=None))
        except _DAMAGES:
            return None

    @property
    def _typed(self) -> Callable[[Any], V]:
        of: Any = self.value
        typed: Callable[[Any], V] = _reader(of)
        return typed

    def of(self, source: Source, scope: str) -> HintsOf[V]:
        return HintsOf(self, source, scope)

    def drop(self, source: Source, scope: str) -> int:
        """Forget all of a scope; return how many. Raises StateError."""
        with writing(source) as db:
            return db.run("DELETE FROM hints WHERE kind = ? AND scope = ?", self.kind, scope)

    def _read(self, source: Source, scope: str, key: str | None = None) -> dict[str, V] | None:
        sql = (
            "SELECT rowid, CAST(key AS BLOB) AS key, CAST(value AS BLOB) AS value, "
            "CAST(written_at AS BLOB) AS written_at FROM hints "
            "WHERE kind = ?1 AND scope = ?2 AND (?3 IS NULL OR key = ?3)"
        )
        rows = recall(source, self.what, lambda db: db.raw_rows(sql, self.kind, scope, key))
        if rows is None:
            return None
        found, damaged = {}, []
        now, typed = datetime.now(UTC), self._typed
        for row in rows:
            try:
                name, value = row["key"].decode(), read_json(row["value"].decode(), values_at_most=None)
                age = now - datetime.fromisoformat(row["written_at"].decode())
                # A moment that is to come is one of a clock that was ahead.
                if self.age is None or timedelta() <= age < self.age:
                    found[name] = typed(value)
            except _DAMAGES:
                damaged.append((row["rowid"],))
        if damaged:
            log.warning("%s: %d hints are damaged, and forgotten", self.what, len(damaged))
        if damaged and not (isinstance(source, Db) and not source.is_writing):
            note(source, self.what, lambda db: db.run_many("DELETE FROM hints WHERE rowid = ?", damaged))
        return found


@dataclass(frozen=True, slots=True)
class HintsOf(Generic[V]):
    """The hints of one kind and one scope: `backends.base.ClusterHints` on disk."""

    hints: Hints[V]
    source: Source
    scope: str

    def read(self) -> Mapping[str, V]:
        """Return the values by key; nothing, with a warning, where they cannot be read."""
        return self.hints.all(self.source, self.scope) or {}

    def write(self, news: Mapping[str, V]) -> bool:
        """Write down new values. False, with a warning, where that is not possible."""
        return self.hints.put(self.source, self.scope, news)


def _plain(value: Any) -> Any:
    """Return what JSON has in place of a dataclass or a moment."""
    if isinstance(value, datetime):
        return moment_text(value)
    # What is below is asked for in its turn: `asdict` would copy all of it.
    return {each.name: getattr(value, each.name) for each in fields(value)}


@lru_cache
def _reader(of: Any) -> Callable[[Any], Any]:
    """Return what makes a value of a type from what JSON has: it raises KeyError, TypeError or ValueError where that is
    none. Types are looked at once: a pass reads thousands of values of a few types.
    """
    if of is Any:
        return lambda value: value
    if NoneType in get_args(of):
        present = _reader(get_args(of)[0])
        return lambda value: None if value is None else present(value)
    if get_origin(of) is not None:
        return _reader_of_several(get_origin(of), get_args(of))
    if isinstance(of, type) and is_dataclass(of):
        types = get_type_hints(of)
        parts = [(each.name, _reader(types[each.name])) for each in fields(of)]
        return lambda value: of(**{name: read(value[name]) for name, read in parts})

    def read(value: Any) -> Any:
        if of is datetime and (moment := datetime.fromisoformat(value)).tzinfo:
            return moment
        if of is float and type(value) in (int, float) and isfinite(value):
            return float(value)
        if of is float or type(value) is not of:
            raise TypeError(f"{value!r:.80} is no {of}")
        return value

    return read


def _reader_of_several(of: Any, types: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Return what makes a list, a tuple or a dictionary of values of these types from a list or an object of JSON."""
    parts = [_reader(each) for each in types if each is not ...]

    def read(value: Any) -> Any:
        if type(value) is not (dict if of is dict else list):
            raise TypeError(f"{value!r:.80} is no {of}")
        if isinstance(value, dict):
            return {key: parts[1](each) for key, each in value.items()}
        if of is list or types[1:] == (...,):
            return of(map(parts[0], value))
        return tuple(part(each) for part, each in zip(parts, value, strict=True))

    return read


@dataclass(frozen=True, slots=True)
class Drift:
    """How far Waldur and the cluster are apart."""

    looked: str
    # UTC, as text.
    since: str = ""
    # How many actions of each kind would bring the two together.
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def differences(self) -> int:
        return sum(self.kinds.values())


@dataclass(frozen=True, slots=True)
class Skipped:
    """Actions that a mode skips by policy."""

    # Since when it is these.
    since: str = ""
    count: int = 0
    # The first of them.
    lines: tuple[str, ...] = ()
    # What identifies them, whatever the figures in the lines.
    meant: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"since": self.since, "count": self.count, "lines": list(self.lines)}


@dataclass(frozen=True, slots=True)
class ReportedService:
    """How Waldur knows the agent."""

    # A uuid like the service, empty where there is none.
    identity: str = ""
    service: str = ""
    # What was registered.
    program: str = ""
    # When the agent last reported there that it runs.
    renewed: datetime | None = None
    # When Waldur last would not have it.
    refused: datetime | None = None


DAY = timedelta(days=1)

# By offering: the mode, or what is named at the end of the line.
PASSES = Hints("passes", list[dict[str, Any]], "the last passes")
PASS_COUNTS = Hints("pass_counts", list[tuple[str, str, str, float]], "what passes did")
SKIPPED = Hints("skipped", Skipped, "what is skipped")
DRIFTS = Hints("drifts", Drift, "the last drift report")
REPORTED_SERVICES = Hints("reported_services", ReportedService, "how Waldur knows the agent")  # mode and URL
SEEN_OFFERINGS = Hints("seen_offerings", bool, "that the offering was seen", timedelta(hours=1))  # URL
REPORTED_MEMBERS = Hints(
    "reported_members", dict[str, str], "what was reported to Waldur of members"
)  # resource
HOMES = Hints("homes", HomeRecord, "what was done about homes")  # username
PROJECT_DIRECTORIES = Hints(
    "project_directories", DirectoryRecord, "what was done about directories"
)  # account
REFUSED_MONTHS = Hints("refused_months", datetime, "months that Waldur refuses")  # month
LIVE_JOBS = Hints("live_jobs", dict[str, dict[str, int]], "jobs that count up still")  # month
SEEN_ALLOCATIONS = Hints("seen_allocations", SeenAllocation, "what was seen of allocations")  # resource
SEEN_PEOPLE = Hints("seen_people", SeenPerson, "what was seen of people")  # offering user
LOOKS = Hints("looks", Look, "what workers found out", DAY)  # what was looked at
USAGES = Hints("usages", dict[str, Any], "the usage of the last months", DAY)  # nothing: there is one
FAILED_RESOURCES = Hints("failed_resources", bool, "resources whose report failed")  # resource
# By run: the month.
HISTORY_MONTHS = Hints("history_months", dict[str, Any], "which months were loaded", 90 * DAY)
# By cluster: seconds of a kind of command, and of a unit of its work. What made it slow may be over the next day.
COMMAND_COSTS = Hints("command_costs", float, "what the cluster's commands cost", DAY)
# By what keeps trees: the last column by which the tree of a cluster was read in the quick way, or that there is none,
# which an upgrade may change and no refusal tells.
TREE_COLUMNS = Hints("tree_columns", str, "how trees are read", DAY)  # cluster

HINTS: tuple[Hints[Any], ...] = (
    PASSES, PASS_COUNTS, SKIPPED, DRIFTS, REPORTED_SERVICES, SEEN_OFFERINGS, REPORTED_MEMBERS, HOMES,
    PROJECT_DIRECTORIES, REFUSED_MONTHS, LIVE_JOBS, FAILED_RESOURCES, HISTORY_MONTHS, COMMAND_COSTS,
    TREE_COLUMNS, SEEN_ALLOCATIONS, SEEN_PEOPLE, LOOKS,
    USAGES,
)  # fmt: skip
