# SPDX-License-Identifier: MIT
"""A directory of groups in memory under the name `ldap`, installed for one test: it announces its effects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.core.directory import DirectoryGroup
from agent.core.directory_actions import (
    AddToGroup,
    CreateGroup,
    DeleteGroup,
    DirectoryAction,
    RemoveFromGroup,
)
from agent.core.errors import BackendUnavailable
from agent.core.plans import Outcome
from backends.base import Parsed
from backends.usernames.base import GroupDirectory
from backends.usernames.ldap.schema import LdapKeys
from tests.agent.run.engine import kills

FIRST_GID = 20000
SETTINGS = {"uri": "ldap://127.0.0.1", "base_dn": "dc=example"}


class Groups:
    """Members by group. `drops`: changes that it says yes to and does not make. A group keeps its number for ever."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.members: dict[str, frozenset[str]] = {}
        self.applied: list[DirectoryAction] = []
        self.drops: Callable[[DirectoryAction], bool] = lambda _: False
        self._is_away = False

    def go_away(self) -> None:
        self._is_away = True

    def come_back(self) -> None:
        self._is_away = False

    def open(self) -> None:
        """Raises BackendUnavailable where it is away."""
        if self._is_away:
            raise BackendUnavailable("the directory does not answer")

    def close(self) -> None:
        return None

    def read(self, names: Iterable[str]) -> Mapping[str, DirectoryGroup]:
        return {
            name: DirectoryGroup(name, self.members[name], gid=self.number_of(name))
            for name in names
            if name in self.members
        }

    def number_of(self, group: str) -> int:
        return self._numbers.setdefault(group, FIRST_GID + len(self._numbers))

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        for action in actions:
            kills.in_memory("the directory")
            if self.drops(action):
                continue
            self.applied.append(action)
            match action:
                case CreateGroup():
                    self.members[action.group] = frozenset()
                case AddToGroup():
                    self.members[action.group] |= {action.user}
                case RemoveFromGroup():
                    self.members[action.group] -= {action.user}
                case DeleteGroup():
                    del self.members[action.group]
        return [Outcome(action) for action in actions]


class GroupsPlugin:
    settings = LdapKeys

    def __init__(self) -> None:
        self.directory = Groups()

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        return Parsed((), raw)

    def connect(self, settings: Any, context: object) -> Any:
        raise NotImplementedError

    def groups(self, settings: Any) -> GroupDirectory:
        return self.directory


plugin = GroupsPlugin()


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Groups:
    """Make it what `ldap` is; it is empty."""
    take_the_place_of_ldap(__name__, folder, monkeypatch)
    plugin.directory = Groups()
    return plugin.directory


def take_the_place_of_ldap(module: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the plugin of a module under the name `ldap`."""
    about = folder / "other_directory-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other-directory\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        f"[waldur_site_cluster.username_backends]\nldap = {module}:plugin\n"
    )
    # The last one of a name counts.
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
