# SPDX-License-Identifier: MIT
"""A username backend of a third party, installed for one test: it answers what a test sets.

`install` puts an entry point into a folder that Python looks into, as an installer would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.config.keys import key
from agent.core.directory_actions import DirectoryAction, UpdateProfile
from agent.core.model import OfferingUser
from agent.core.plans import Outcome
from backends.base import Parsed
from backends.usernames.base import UsernameBackend, UsernameContext
from backends.usernames.unmanaged import Unmanaged


class Scripted(Unmanaged):
    """Answers by the person's login in Waldur: a name, or an error to raise. Unknown logins get `name-<login>`."""

    def __init__(self) -> None:
        self.answers: dict[str, str | Exception] = {}
        self.asked: list[str] = []
        self.opening: Exception | None = None
        self.finding: Exception | None = None
        self.sought: list[str] = []
        self.applied: list[DirectoryAction] = []
        self.stale: list[UpdateProfile] = []
        self.opened = 0

    def open(self) -> None:
        self.opened += 1
        if self.opening is not None:
            raise self.opening

    def close(self) -> None:
        self.opened -= 1

    def find(self, user: OfferingUser) -> str:
        self.sought.append(user.waldur_username)
        if self.finding is not None:
            raise self.finding
        return super().find(user)

    def make(self, user: OfferingUser) -> str:
        self.asked.append(user.waldur_username)
        answer = self.answers.get(user.waldur_username, f"n-{user.waldur_username}".replace("_", "-"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stale_profiles(self, users: Sequence[OfferingUser]) -> Sequence[UpdateProfile]:
        return [action for action in self.stale if action.user in {user.username for user in users}]

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        self.applied += actions
        return [Outcome(action) for action in actions]


@dataclass(frozen=True)
class ScriptedKeys:
    scripted: str = key("", "what it answers")


class ScriptedPlugin:
    settings = ScriptedKeys

    def __init__(self) -> None:
        self.backend = Scripted()

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        return Parsed(())

    def connect(self, settings: Any, context: UsernameContext) -> UsernameBackend:
        return self.backend


plugin = ScriptedPlugin()


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Make `scripted` an installed username backend; it has forgotten what earlier tests set."""
    about = folder / "scripted_usernames-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: scripted-usernames\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        f"[waldur_site_cluster.username_backends]\nscripted = {__name__}:plugin\nbroken = no_such_module:plugin\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    plugin.backend = Scripted()
    return plugin.backend
