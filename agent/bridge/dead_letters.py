# SPDX-License-Identifier: MIT
"""Dead letters: messages that could not be understood. They go into the bridge's own state file, so that nothing waits
behind them; a person lists them and may replay them, after an update for example.
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
from agent.core.said import Said
from agent.state import dead_letters
from agent.state.dead_letters import DeadLetter
from agent.state.store import Store

log = logging.getLogger(__name__)

ID_LENGTH = 12


def letter(received: Received, reason: str) -> DeadLetter:
    """Return the message as a dead letter; the same message from the same source has the same id."""
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
        self._store = Store(state_dir / dead_letters.FOLDER)
        # Ids that went into the log instead.
        self._said = Said()

    @property
    def path(self) -> Path:
        return self._store.path

    def add(self, found: DeadLetter) -> bool:
        """Add one and return whether it is new: the same message a thousand times is one letter. Where it cannot be
        written the message goes into the log, once, with a warning.
        """
        try:
            return dead_letters.park(self._store, found)
        except StateError as error:
            if self._said.news(found.id, "it is in the log"):
                log.warning("a dead letter cannot be written (%s): %.500s", error, found.body)
            return False

    def all(self) -> list[DeadLetter]:
        """Return all, oldest first, each once. Raises StateError."""
        return dead_letters.listed(self._store)

    def take(self, wanted: Callable[[DeadLetter], bool]) -> int:
        """Remove those for which `wanted` is true; return how many. Raises StateError."""
        return dead_letters.take(self._store, wanted)
