# SPDX-License-Identifier: MIT
"""What was done of one policy for one resource, and the message that waits for a person, kept over attempts and
restarts: files of their own, since several tasks may be at work.

A reset is written down before it begins and when it has ended: what was used since then must not be forgotten again.
One whose end nobody saw is repeated for some minutes only, and counts as done after that: a write is left to finish
when its task is killed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from agent.core import periodic
from agent.core.errors import BackendError
from agent.state import json_files as state_files
from agent.state.json_files import Unreadable

log = logging.getLogger(__name__)

KEPT = 8
REPEATED_FOR = timedelta(minutes=10)


class MemoryLost(BackendError):
    """What was done before is not known, or what is about to be done cannot be written down."""

    retryable = True


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message that is held: Waldur cannot be asked for its figures again. Moments are UTC without a zone.

    `at`: when Waldur wrote it. `looked`: when it was last found to be held, by the plans of the ids `plans`.
    """

    document: Mapping[str, Any]
    at: datetime
    looked: datetime
    plans: tuple[str, ...]


def parked(state_dir: Path, offering_uuid: str) -> list[ParkedMessage]:
    """Return the messages of an offering that wait, one of each policy and resource."""
    found = state_files.documents(_parked_folder(state_dir, offering_uuid))
    return [message for _, document in found if (message := _parked(document)) is not None]


class Memory:
    """`commands` are those of a message, by its digest, that are not reported yet."""

    def __init__(self, state_dir: Path, offering_uuid: str, policy: str, resource: str) -> None:
        self._state_dir = state_dir
        name = f"{policy}-{resource}.json"
        self._path = state_dir / "periodic" / offering_uuid / name
        self._parked_path = _parked_folder(state_dir, offering_uuid) / name
        try:
            self._document = state_files.read_json(self._path) or {}
        except Unreadable as error:
            raise MemoryLost(f"what was done before cannot be known: {error}") from error

    def applied(self, now: datetime) -> datetime | None:
        """When the newest message was written that was carried out."""
        found = _moment(self._document.get("applied"))
        return None if found is None or periodic.is_to_come(found, now) else found

    def note_applied(self, at: datetime, now: datetime) -> None:
        self._write(applied=max(at, self.applied(now) or at).isoformat())

    def has_reset(self, period: str, now: datetime) -> bool:
        """Whether this period's reset was carried out, or may have been, too long ago to repeat it."""
        if period in self._resets:
            return True
        begun = _moment(self._begun.get(period))
        if begun is None or now - begun <= REPEATED_FOR:
            return False
        log.warning(
            "the reset of %s began at %s UTC; nobody saw its end, and it counts as done", period, begun
        )
        return True

    def begin_reset(self, period: str, now: datetime) -> None:
        """Raises MemoryLost: what cannot be written down would be done again."""
        if not self._write(begun={period: now.isoformat(), **self._begun}):
            raise MemoryLost(
                f"the raw usage is not reset while {self._path} cannot be written: it would be reset again"
            )

    def end_reset(self, period: str, *, is_done: bool) -> None:
        begun = {name: at for name, at in self._begun.items() if name != period}
        self._write(begun=begun, resets=[*self._resets, *([period] if is_done else [])][-KEPT:])

    def commands(self, digest: str) -> list[str]:
        found = self._commands.get(digest)
        return [str(command) for command in found] if isinstance(found, list) else []

    def add_commands(self, digest: str, commands: Sequence[str]) -> None:
        if commands:
            others = {name: of for name, of in self._commands.items() if name != digest}
            last = dict(list(others.items())[1 - KEPT :])
            self._write(commands={**last, digest: [*self.commands(digest), *commands]})

    def forget_commands(self, digest: str) -> None:
        """They were reported."""
        if digest in self._commands:
            self._write(commands={name: of for name, of in self._commands.items() if name != digest})

    @property
    def parked(self) -> ParkedMessage | None:
        """The message that waits; one whose file is damaged is gone, with a warning."""
        try:
            document = state_files.read_json(self._parked_path)
        except Unreadable as error:
            log.warning("a message that was held is lost: %s", error)
            return None
        return None if document is None else _parked(document)

    def park(self, message: ParkedMessage) -> None:
        """Keep a message in place of the one that waits. Raises MemoryLost: then whoever has it must keep it."""
        document = {
            "document": dict(message.document),
            "at": message.at.isoformat(),
            "looked": message.looked.isoformat(),
            "plans": list(message.plans),
        }
        if not state_files.write_json(self._state_dir, self._parked_path, document):
            raise MemoryLost(f"a message that is held cannot be kept: {self._parked_path} cannot be written")

    def unpark(self) -> None:
        """Forget the message that waits: it, or a newer one, has come to its end."""
        state_files.remove(self._parked_path)

    @property
    def _resets(self) -> list[str]:
        found = self._document.get("resets")
        return found if isinstance(found, list) else []

    @property
    def _begun(self) -> Mapping[str, Any]:
        found = self._document.get("begun")
        return found if isinstance(found, dict) else {}

    @property
    def _commands(self) -> Mapping[str, Any]:
        found = self._document.get("commands")
        return found if isinstance(found, dict) else {}

    def _write(self, **changes: Any) -> bool:
        document = {**self._document, **changes}
        if document == self._document:
            return True
        self._document = document
        return state_files.write_json(self._state_dir, self._path, document)


def _parked_folder(state_dir: Path, offering_uuid: str) -> Path:
    return state_dir / "periodic" / offering_uuid / "parked"


def _parked(document: Mapping[str, Any]) -> ParkedMessage | None:
    message, plans = document.get("document"), document.get("plans")
    at, looked = _moment(document.get("at")), _moment(document.get("looked"))
    if not isinstance(message, dict) or not isinstance(plans, list) or at is None or looked is None:
        log.warning("a message that was held is lost: it is not as it was written: %s", document)
        return None
    return ParkedMessage(message, at, looked, tuple(map(str, plans)))


def _moment(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return None if found.tzinfo else found
