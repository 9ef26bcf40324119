# SPDX-License-Identifier: MIT
"""The real LDAP backends, installed for one test: before each request to the server a pass may be killed. And what a
directory holds, to be had again as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from backends.usernames.base import (
    GroupDirectory,
    ProviderGroupDirectory,
    UsernameBackend,
    UsernameContext,
)
from backends.usernames.ldap.backend import LdapUsernames
from backends.usernames.ldap.directory import Directory
from backends.usernames.ldap.plugin import LdapPlugin
from backends.usernames.ldap.project_groups import ProjectGroups
from backends.usernames.ldap.provider_groups import ProviderGroups
from backends.usernames.ldap.schema import LdapSettings
from rig.slapd import BASE
from tests.agent.run.engine import kills
from tests.agent.run.engine.directory import take_the_place_of_ldap

READS = ("connect", "search")
ENTRIES = "(|(objectClass=posixAccount)(objectClass=posixGroup)(objectClass=groupOfNames))"
CLASSES = "objectclass"

Entries = Mapping[str, Mapping[str, frozenset[str]]]


class MortalDirectory(Directory):
    """A connection that announces each request before it is sent."""

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        kills.comes(f"LDAP {doing}", changes=not doing.startswith(READS))
        with super()._translated(doing):
            yield


def _mortal(backend: LdapUsernames | ProjectGroups | ProviderGroups) -> None:
    """Its parts share one connection."""
    backend._directory.__class__ = MortalDirectory


class MortalPlugin(LdapPlugin):
    def connect(self, settings: LdapSettings, context: UsernameContext) -> UsernameBackend:
        backend = LdapUsernames(settings, context)
        _mortal(backend)
        return backend

    def groups(self, settings: LdapSettings) -> GroupDirectory:
        groups = ProjectGroups(settings)
        _mortal(groups)
        return groups

    def provider_groups(self, settings: LdapSettings) -> ProviderGroupDirectory | None:
        if settings.provider_groups is None:
            return None
        groups = ProviderGroups(settings, settings.provider_groups)
        _mortal(groups)
        return groups


plugin = MortalPlugin()


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take_the_place_of_ldap(__name__, folder, monkeypatch)


class Tree:
    """People and groups of a directory as they are now; `again` makes them so."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.kept = self.entries()

    def entries(self) -> Entries:
        """Return the values by DN and attribute."""
        found = self._directory.search(BASE, ENTRIES, ["*"])
        return {each.dn: {name: frozenset(values) for name, values in each.values.items()} for each in found}

    def again(self) -> None:
        now, kept = self.entries(), self.kept
        for dn in now:
            if now[dn] != kept.get(dn):
                self._directory.delete(dn)
        for dn in kept:
            if kept[dn] != now.get(dn):
                values = {name: sorted(several) for name, several in kept[dn].items() if name != CLASSES}
                self._directory.add(dn, sorted(kept[dn][CLASSES]), values)
