# SPDX-License-Identifier: MIT
"""Messages that could not be understood, in one file below `state_dir`: parked, so that nothing behind them waits.

A person lists them and may replay them, after an update for example. The file is bounded: the oldest go first.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.bridge.model import Received
from agent.state import json_files as state_files

log = logging.getLogger(__name__)

KEPT_AT_MOST = 1000
# Looking at the number of letters costs a reading of the file: only from this size on.
TRIM_FROM_BYTES = 1 << 20
ID_LENGTH = 12


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`body` as text, or as base64 where it is none; cut where the message was larger than any of Waldur's."""

    id: str
    time: str
    offering_uuid: str
    source: str
    object_type: str
    reason: str
    size: int
    body: str
    is_base64: bool = False

    def content(self) -> bytes:
        return base64.b64decode(self.body) if self.is_base64 else self.body.encode()


def letter(received: Received, reason: str) -> DeadLetter:
    try:
        text, is_base64 = received.body.decode(), False
    except UnicodeDecodeError:
        text, is_base64 = base64.b64encode(received.body).decode(), True
    source = received.source
    return DeadLetter(
        id=hashlib.sha256(received.body + source.name.encode()).hexdigest()[:ID_LENGTH],
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        offering_uuid=source.offering_uuid,
        source=source.name,
        object_type=source.object_type or "",
        reason=reason,
        size=received.size,
        body=text,
        is_base64=is_base64,
    )


class DeadLetters:
    """The file of one `state_dir`. Used by several processes: every access holds its lock."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "events" / "dead-letters.jsonl"
        self._state_dir = state_dir
        # Ids in the file as it was when we last saw it: the same message a thousand times is one letter.
        self._known: set[str] = set()
        self._seen: tuple[int, ...] = ()
        # Ids that went into the log instead.
        self._told: set[str] = set()

    def park(self, found: DeadLetter) -> bool:
        """Whether it is new. Where it cannot be written the message goes into the log, once, with a warning."""
        try:
            if found.id in self._known and self._is_as_seen():
                return False
            with self._locked() as descriptor:
                return self._append(descriptor, found)
        except OSError as error:
            if found.id not in self._told:
                log.warning("%s cannot be written (%s): %.500s", self.path, error.strerror, found.body)
            _remember(self._told, found.id)
            return False

    def _is_as_seen(self) -> bool:
        try:
            return _identity(os.stat(self.path)) == self._seen
        except FileNotFoundError:
            return False

    def _append(self, descriptor: int, found: DeadLetter) -> bool:
        """Another process may have written, or a person may have thrown away. Raises OSError."""
        if _identity(os.fstat(descriptor)) != self._seen:
            self._known = {each.id for each in self._read(descriptor)}
        is_new = found.id not in self._known
        if is_new:
            os.lseek(descriptor, 0, os.SEEK_END)
            os.write(descriptor, (json.dumps(asdict(found), ensure_ascii=False) + "\n").encode())
            self._known.add(found.id)
            if os.fstat(descriptor).st_size > TRIM_FROM_BYTES:
                kept = self._read(descriptor)[-KEPT_AT_MOST:]
                self._write(descriptor, kept)
                self._known = {each.id for each in kept}
        self._seen = _identity(os.fstat(descriptor))
        return is_new

    def all(self) -> list[DeadLetter]:
        """Oldest first, each once. Raises OSError."""
        if not self.path.exists():
            return []
        with self._locked() as descriptor:
            return list({found.id: found for found in self._read(descriptor)}.values())

    def take(self, wanted: Callable[[DeadLetter], bool]) -> int:
        """Remove those for which `wanted` is true; how many. Raises OSError."""
        if not self.path.exists():
            return 0
        with self._locked() as descriptor:
            found = self._read(descriptor)
            kept = [each for each in found if not wanted(each)]
            self._write(descriptor, kept)
        return len({each.id for each in found} - {each.id for each in kept})

    @contextmanager
    def _locked(self) -> Iterator[int]:
        state_files.make_folder(self._state_dir, self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            state_files.hand_over(self._state_dir, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    @staticmethod
    def _read(descriptor: int) -> list[DeadLetter]:
        """Lines that a full disk has cut are left out."""
        text = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")
        return [found for line in text.splitlines() if (found := _parsed(line))]

    @staticmethod
    def _write(descriptor: int, kept: list[DeadLetter]) -> None:
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        for found in kept:
            os.write(descriptor, (json.dumps(asdict(found), ensure_ascii=False) + "\n").encode())


def _identity(found: os.stat_result) -> tuple[int, ...]:
    """Of a file with these contents."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _remember(ids: set[str], new: str) -> None:
    if len(ids) >= KEPT_AT_MOST:
        ids.clear()
    ids.add(new)


def _parsed(line: str) -> DeadLetter | None:
    try:
        document: Any = json.loads(line)
        return DeadLetter(**document) if isinstance(document, Mapping) else None
    except (ValueError, TypeError):
        return None
