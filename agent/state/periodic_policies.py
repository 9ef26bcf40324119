# SPDX-License-Identifier: MIT
"""What was done of one periodic policy for one resource, and the message that waits for a person or for the end of a
pause, kept over attempts and restarts.

A reset is written down before it begins and when it has ended: what was used since then must not be forgotten again.
One whose end was not seen is repeated for some minutes only, and counts as done after that: a write is left to finish
when its task is killed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from sqlite3 import Row
from typing import Any

from agent.core.errors import BackendError, StateError
from agent.core.periodic import is_to_come
from agent.state import columns
from agent.state.store import Db, Source, note, reading, writing

log = logging.getLogger(__name__)

KEPT = 8
REPEATED_FOR = timedelta(minutes=10)

APPLIED = "SELECT applied FROM periodic_policies WHERE offering = ? AND policy = ? AND resource = ?"
RESET = "SELECT begun, done FROM periodic_resets WHERE offering = ? AND policy = ? AND resource = ? AND period = ?"
DONE_RESETS = (
    "SELECT rowid, period FROM periodic_resets WHERE offering = ? AND policy = ? AND resource = ? AND done "
    "ORDER BY rowid DESC"
)
FORGET_RESET = "DELETE FROM periodic_resets WHERE offering = ? AND policy = ? AND resource = ? AND period = ?"
COMMANDS = (
    "SELECT command FROM periodic_commands WHERE offering = ? AND policy = ? AND resource = ? AND message = ? "
    "ORDER BY number"
)
MESSAGES = (
    "SELECT message FROM periodic_commands WHERE offering = ? AND policy = ? AND resource = ? "
    "GROUP BY message ORDER BY max(number) DESC"
)
PARKED = "SELECT * FROM periodic_parked WHERE offering = ? AND policy = ? AND resource = ?"
UNPARK = "DELETE FROM periodic_parked WHERE offering = ? AND policy = ? AND resource = ?"
FORGET_COMMANDS = (
    "DELETE FROM periodic_commands WHERE offering = ? AND policy = ? AND resource = ? AND message = ?"
)


class PolicyStateLost(BackendError):
    """What was done before is not known, or what is about to be done cannot be written down."""

    retryable = True


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message that is held, or came in a pause: Waldur cannot be asked for its figures again. Moments are UTC without
    a zone.
    """

    document: Mapping[str, Any]
    # When Waldur wrote it.
    at: datetime
    # When it was last found to be held.
    looked: datetime
    # Ids of those that hold it; one without plans came in a pause.
    plans: tuple[str, ...]


def parked(source: Source, offering_uuid: str) -> list[ParkedMessage]:
    """Return the messages of an offering that wait, one of each policy and resource. Raises PolicyStateLost."""
    sql = "SELECT * FROM periodic_parked WHERE offering = ? ORDER BY policy, resource"
    with _or_lost():
        return [_parked(row) for row in _known(source, sql, offering_uuid)]


class PolicyState:
    """What was done of one policy for one resource. Moments are UTC without a zone, as the policies' messages have
    them. Every question raises PolicyStateLost where it cannot be answered. `commands` are those of a message, by its
    digest, that are not reported yet.
    """

    def __init__(self, source: Source, offering_uuid: str, policy: str, resource: str) -> None:
        self._source = source
        self._which = (offering_uuid, policy, resource)
        self._known("SELECT 1 FROM periodic_policies LIMIT 0")

    def applied(self, now: datetime) -> datetime | None:
        """Return when the newest message was written that was carried out."""
        rows = self._known(APPLIED, *self._which)
        with _or_lost():
            found = columns.moment(rows[0], "applied", is_zoned=False) if rows else None
        return None if found is None or is_to_come(found, now) else found

    def note_applied(self, at: datetime, now: datetime) -> bool:
        newest = max(at, self.applied(now) or at).isoformat()
        sql = "INSERT OR REPLACE INTO periodic_policies VALUES (?, ?, ?, ?)"
        return note(self._source, "what was applied", lambda db: db.run(sql, *self._which, newest))

    def has_reset(self, period: str, now: datetime) -> bool:
        """Return whether this period's reset was carried out, or may have been, too long ago to repeat it."""
        rows = self._known(RESET, *self._which, period)
        if not rows or rows[0]["done"]:
            return bool(rows)
        with _or_lost():
            begun = columns.moment(rows[0], "begun", is_zoned=False)
        if abs(now - begun) <= REPEATED_FOR:
            return False
        log.warning(
            "the reset of %s began at %s UTC; its end was not seen, and it counts as done", period, begun
        )
        return True

    def last_reset(self) -> str:
        """Return the period of the last reset that was carried out, empty where there was none."""
        rows = self._known(DONE_RESETS, *self._which)
        return str(rows[0]["period"]) if rows else ""

    def begin_reset(self, period: str, now: datetime) -> None:
        """Record that a reset begins. Raises PolicyStateLost: what cannot be written down would be done again."""
        sql = "INSERT OR IGNORE INTO periodic_resets VALUES (?, ?, ?, ?, ?, 0)"
        try:
            with writing(self._source) as db:
                db.run(sql, *self._which, period, now.isoformat())
        except StateError as error:
            raise PolicyStateLost(
                f"the raw usage is not reset while it cannot be written down, it would be reset again: {error}"
            ) from error

    def end_reset(self, period: str, *, is_done: bool) -> bool:
        def work(db: Db) -> None:
            if not is_done:
                db.run(FORGET_RESET, *self._which, period)
                return
            # One that failed before and is done now has no begin any more.
            db.run("INSERT OR REPLACE INTO periodic_resets VALUES (?, ?, ?, ?, '', 1)", *self._which, period)
            older = db.rows(DONE_RESETS, *self._which)[KEPT:]
            db.run_many("DELETE FROM periodic_resets WHERE rowid = ?", ((row["rowid"],) for row in older))

        return note(self._source, "the end of a reset", work)

    def commands(self, digest: str) -> list[str]:
        return [row["command"] for row in self._known(COMMANDS, *self._which, digest)]

    def add_commands(self, digest: str, commands: Sequence[str]) -> bool:
        """Keep the commands of the last messages."""
        if not commands:
            return True
        sql = "INSERT INTO periodic_commands (offering, policy, resource, message, command) VALUES (?, ?, ?, ?, ?)"

        def work(db: Db) -> None:
            db.run_many(sql, ((*self._which, digest, command) for command in commands))
            for row in db.rows(MESSAGES, *self._which)[KEPT:]:
                db.run(FORGET_COMMANDS, *self._which, row["message"])

        return note(self._source, "the commands of a message", work)

    def forget_commands(self, digest: str) -> bool:
        """Forget the commands of a message: they were reported."""
        if not self.commands(digest):
            return True
        return note(
            self._source,
            "that commands were reported",
            lambda db: db.run(FORGET_COMMANDS, *self._which, digest),
        )

    @property
    def parked(self) -> ParkedMessage | None:
        """Return the message that waits."""
        rows = self._known(PARKED, *self._which)
        with _or_lost():
            return _parked(rows[0]) if rows else None

    def park(self, message: ParkedMessage) -> None:
        """Keep a message in place of the one that waits. Raises PolicyStateLost: then whoever has it must keep it."""
        moments = (message.at.isoformat(), message.looked.isoformat())
        texts = (json.dumps(list(message.plans)), json.dumps(dict(message.document)))
        try:
            with writing(self._source) as db:
                db.run(
                    "INSERT OR REPLACE INTO periodic_parked VALUES (?, ?, ?, ?, ?, ?, ?)",
                    *(*self._which, *moments, *texts),
                )
        except StateError as error:
            raise PolicyStateLost(f"a message that waits cannot be kept: {error}") from error

    def unpark(self) -> bool:
        """Forget the message that waits: it, or a newer one, has come to its end."""
        if self.parked is None:
            return True
        return note(self._source, "that a message waits no more", lambda db: db.run(UNPARK, *self._which))

    def _known(self, sql: str, *values: str) -> list[Row]:
        return _known(self._source, sql, *values)


def _known(source: Source, sql: str, *values: str) -> list[Row]:
    with _or_lost(), reading(source) as db:
        return db.rows(sql, *values)


@contextmanager
def _or_lost() -> Iterator[None]:
    try:
        yield
    except StateError as error:
        raise PolicyStateLost(f"what was done before cannot be known: {error}") from error


def _parked(row: Row) -> ParkedMessage:
    return ParkedMessage(
        columns.mapping(row, "document"),
        columns.moment(row, "at", is_zoned=False),
        columns.moment(row, "looked", is_zoned=False),
        columns.texts(row, "plans"),
    )
