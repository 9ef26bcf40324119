# SPDX-License-Identifier: MIT
"""Lines of the agent's log in Waldur (since 8.0.9), by the identity of an offering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.waldur.client import WaldurClient

PATH = "marketplace-site-agent-logs/"
FEATURE = "marketplace-site-agent-logs"
# Waldur's own agent sends so many at once.
LINES_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line."""

    # Seconds since 1970, in UTC.
    timestamp: float
    level: str
    message: str
    module: str


def ship(client: WaldurClient, identity: str, lines: Sequence[LogLine]) -> None:
    """Add lines to the log of an identity. Raises WaldurLacks with servers before 8.0.9, WaldurError."""
    body = [
        {
            "agent_identity_uuid": identity,
            "timestamp": line.timestamp,
            "level": line.level,
            "message": line.message,
            "module": line.module,
        }
        for line in lines
    ]
    client.post_if_there(FEATURE, PATH, body)
