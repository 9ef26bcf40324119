# SPDX-License-Identifier: MIT
"""A directory, backends on it, and people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.core.model import OfferingUser
from backends.usernames.base import UsernameContext
from backends.usernames.ldap.backend import LdapUsernames
from backends.usernames.ldap.directory import Directory, LdapEntry
from backends.usernames.ldap.plugin import plugin
from backends.usernames.ldap.schema import LdapSettings
from rig.slapd import AGENT, BASE, PASSWORD, Slapd

Connect = Callable[..., LdapUsernames]


def person(
    number: int = 1, first: str = "John", last: str = "Smith", *, email: str = "", login: str = ""
) -> OfferingUser:
    return OfferingUser(
        uuid=f"{number:032x}",
        user_uuid=f"{number + 1000:032x}",
        username="",
        state="Requested",
        waldur_username=login or f"login{number}",
        first_name=first,
        last_name=last,
        email=email,
    )


def raw(slapd: Slapd, **options: Any) -> dict[str, Any]:
    """`backend_settings` for this server, as Debian's schema wants them."""
    return {
        "ldap": {
            "uri": slapd.url,
            "bind_dn": AGENT,
            "bind_password": PASSWORD,
            "base_dn": BASE,
            "user_group_object_classes": ["posixGroup", "top"],
            **options,
        }
    }


def settings(slapd: Slapd, **options: Any) -> LdapSettings:
    parsed = plugin.parse(raw(slapd, **options), "test")
    assert isinstance(parsed.settings, LdapSettings), parsed.problems
    return parsed.settings


@pytest.fixture
def ldap(slapd: Slapd, tmp_path: Path) -> Iterator[Connect]:
    """Backends on the directory, with these settings."""
    made: list[LdapUsernames] = []

    def connect(*, context: UsernameContext | None = None, **options: Any) -> LdapUsernames:
        made.append(LdapUsernames(settings(slapd, **options), context or UsernameContext("o", tmp_path)))
        return made[-1]

    yield connect
    for backend in made:
        backend.close()


class Looker:
    """What the directory holds, and what a site's own people put there."""

    def __init__(self, slapd: Slapd) -> None:
        self.directory = Directory(settings(slapd))

    def user(self, name: str) -> LdapEntry | None:
        return self._one(f"ou=People,{BASE}", f"(uid={name})")

    def group(self, name: str) -> LdapEntry | None:
        return self._one(f"ou=Groups,{BASE}", f"(cn={name})")

    def dns(self) -> set[str]:
        return {entry.dn for entry in self.directory.search(BASE, "(objectClass=*)", ["cn"])}

    def add_user(self, name: str, number: int, **attributes: str) -> None:
        values = {"cn": name, "sn": name, "gidNumber": str(number), "homeDirectory": "/", **attributes}
        self.directory.add(
            self.directory.user_dn(name),
            ["inetOrgPerson", "posixAccount", "top"],
            {"uid": [name], "uidNumber": [str(number)], **{key: [value] for key, value in values.items()}},
        )

    def add_group(self, name: str, number: int, *members: str, **attributes: str) -> None:
        self.directory.add(
            self.directory.group_dn(name),
            ["posixGroup", "top"],
            {
                "cn": [name],
                "gidNumber": [str(number)],
                "memberUid": members,
                **{key: [value] for key, value in attributes.items()},
            },
        )

    def _one(self, base: str, clauses: str) -> LdapEntry | None:
        return next(iter(self.directory.search(base, clauses, ["*"])), None)


@pytest.fixture
def looker(slapd: Slapd) -> Iterator[Looker]:
    looker = Looker(slapd)
    yield looker
    looker.directory.close()
