# SPDX-License-Identifier: MIT
"""Messages that could not be understood are parked in the bridge's own state file, so that nothing behind them waits.

A person lists them and may replay them, after an update for example.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from agent.bridge.model import Received
from agent.core.errors import StateError
from agent.state import dead_letters
from agent.state.dead_letters import DeadLetter
from agent.state.store import Store

log = logging.getLogger(__name__)

ID_LENGTH = 12
TOLD_AT_MOST = 1000
# Below `state_dir`: the bridge may run as another user than the worker, who has a file of its own.
FOLDER = "bridge"


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
    """The dead letters of one `state_dir`. Several processes may use them: each access is a transaction."""

    def __init__(self, state_dir: Path) -> None:
        self._store = Store(state_dir / FOLDER)
        # Ids that went into the log instead.
        self._told: set[str] = set()

    @property
    def path(self) -> Path:
        return self._store.path

    def park(self, found: DeadLetter) -> bool:
        """Return whether it is new: the same message a thousand times is one letter. Where it cannot be written the
        message goes into the log, once, with a warning.
        """
        try:
            return dead_letters.park(self._store, found)
        except StateError as error:
            if found.id not in self._told:
                log.warning("a message that is not understood cannot be kept (%s): %.500s", error, found.body)
            if len(self._told) >= TOLD_AT_MOST:
                self._told.clear()
            self._told.add(found.id)
            return False

    def all(self) -> list[DeadLetter]:
        """Return them, oldest first, each once. Raises StateError."""
        return dead_letters.listed(self._store)

    def take(self, wanted: Callable[[DeadLetter], bool]) -> int:
        """Remove those for which `wanted` is true; return how many. Raises StateError."""
        return dead_letters.take(self._store, wanted)
