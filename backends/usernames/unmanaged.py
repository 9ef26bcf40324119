# SPDX-License-Identifier: MIT
"""The username backend `base`: names are not made here, they are given in Waldur. Others build on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.core.directory_actions import DirectoryAction, UpdateProfile
from agent.core.errors import BackendError
from agent.core.model import OfferingUser
from agent.core.plans import Outcome
from backends.base import Parsed
from backends.usernames.base import UsernameBackend, UsernameContext


class Unmanaged:
    """A username backend that finds nothing, makes nothing and keeps no profiles."""

    def open(self) -> None:
        """Do nothing: there is nothing to connect to."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def find(self, user: OfferingUser) -> str:
        return ""

    def propose(self, user: OfferingUser) -> str:
        return ""

    def make(self, user: OfferingUser) -> str:
        return ""

    def stale_profiles(self, users: Sequence[OfferingUser]) -> Sequence[UpdateProfile]:
        return ()

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        """Fail every action: no people are kept here, so an action means the wrong backend."""
        return [Outcome(action, BackendError(f"cannot {action.verb} here")) for action in actions]


@dataclass(frozen=True, slots=True)
class NoKeys:
    """No key of `backend_settings`."""


class UnmanagedPlugin:
    settings = NoKeys

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        return Parsed(())

    def connect(self, settings: Any, context: UsernameContext) -> UsernameBackend:
        return Unmanaged()


plugin = UnmanagedPlugin()
