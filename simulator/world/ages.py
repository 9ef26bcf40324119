# SPDX-License-Identifier: MIT
"""Which Waldur is imitated: the October 2024 server, 8.0.5 or 8.1.x.

Routes and rules ask an age whether it is at least another one; nothing else knows about versions.
"""

from __future__ import annotations

from enum import Enum


class Age(Enum):
    A2024 = "2024"
    V8_0 = "8.0"
    V8_1 = "8.1"

    def __init__(self, _: str) -> None:
        self.rank = len(self.__class__.__members__)

    def at_least(self, other: Age) -> bool:
        return self.rank >= other.rank

    @property
    def version(self) -> str:
        """Return the answer of GET version/; a server built from git, as in 2024, does not know its own."""
        return {Age.A2024: "unknown", Age.V8_0: "8.0.5", Age.V8_1: "8.1.2"}[self]

    @property
    def keep_alive_s(self) -> float:
        """Return how long an idle connection is kept: gunicorn's two seconds on the server of 2024 that was seen."""
        return 2.0 if self is Age.A2024 else 3600.0

    @property
    def is_modern(self) -> bool:
        """8.x: the site-agent plugin, with offering-user states, start dates and the Restore order."""
        return self.at_least(Age.V8_0)
