# SPDX-License-Identifier: MIT
"""The backend `base`: names are not made here; somebody else gives them, in Waldur. Others build on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.core.directory_actions import DirectoryAction, UpdateProfile
from agent.core.errors import BackendError
from agent.core.model import OfferingUser
from agent.core.plans import Outcome
from backends.base import Parsed
from backends.usernames.base import UsernameBackend, UsernameContext


class Unmanaged:
    """Finds nothing, makes nothing, keeps no profiles."""

    def open(self) -> None:
        """There is nothing to connect to."""

    def close(self) -> None:
        """There is nothing to let go of."""

    def find(self, user: OfferingUser) -> str:
        return ""

    def propose(self, user: OfferingUser) -> str:
        return ""

    def make(self, user: OfferingUser) -> str:
        return ""

    def stale_profiles(self, users: Sequence[OfferingUser]) -> Sequence[UpdateProfile]:
        return ()

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        """No people are kept here: whoever wants them changed has the wrong backend."""
        return [Outcome(action, BackendError(f"cannot {action.verb} here")) for action in actions]


class UnmanagedPlugin:
    setting_keys: frozenset[str] = frozenset()

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        return Parsed(())

    def connect(self, settings: Any, context: UsernameContext) -> UsernameBackend:
        return Unmanaged()


plugin = UnmanagedPlugin()
