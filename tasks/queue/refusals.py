# SPDX-License-Identifier: MIT
"""Messages of the queue that are not run: each ends as a dead letter, as the bridge's do (`events dead-letters list`),
and as one line in the log.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from datetime import UTC, datetime

from agent.core.errors import StateError
from agent.state import dead_letters
from agent.state.dead_letters import DeadLetter
from agent.state.store import Store
from tasks import current

log = logging.getLogger(__name__)

ID_LENGTH = 12
KEPT_BYTES = 64 * 1024
LOGGED_LETTERS = 200


def refuse(queue: str, body: bytes, reason: str) -> None:
    """Keep a message that no process of this cluster sends, and log it."""
    log.error(
        "a message in the queue %s is not run: %s; %s. Beat, bridge and loader send no such message: look who can "
        "reach the broker, or knows its password; or whether processes of two versions share it",
        queue,
        reason,
        keep(queue, body, reason),
    )


def keep(queue: str, body: bytes, reason: str) -> str:
    """Write a message down as a dead letter; return where it is, or how it began where nothing can be written."""
    kept = body[:KEPT_BYTES]
    try:
        text, is_base64 = kept.decode(), False
    except UnicodeDecodeError:
        text, is_base64 = base64.b64encode(kept).decode(), True
    letter = DeadLetter(
        id=hashlib.sha256(body + queue.encode()).hexdigest()[:ID_LENGTH],
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        offering_uuid="",
        source=f"queue {queue}",
        object_type="",
        reason=reason,
        size=len(body),
        body=text,
        is_base64=is_base64,
    )
    try:
        dead_letters.park(Store(current.settings().state_dir / dead_letters.FOLDER), letter)
    except StateError as error:
        return f"it cannot be kept ({error}) and began with {text[:LOGGED_LETTERS]!r}"
    return f"dead letter {letter.id}, see `events dead-letters list`"
