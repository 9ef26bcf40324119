# SPDX-License-Identifier: MIT
"""What the site's directory (LDAP) holds, as far as planners need to know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class DirectoryGroup:
    """A group that is named like an account. `obstacle`: why it is not ours to change; empty when it is.

    `gid`: its number, None where it has none, or is not there.
    """

    name: str
    members: frozenset[str] = frozenset()
    obstacle: str = ""
    gid: int | None = None


class OnMismatch(StrEnum):
    """What is done about an entry whose numbers are not Waldur's: a note, a failed pass, or Waldur's numbers count."""

    REPORT = "report"
    FAIL = "fail"
    ADOPT = "adopt"


@dataclass(frozen=True, slots=True)
class AccountRules:
    """How a directory follows the accounts that Waldur has. `has_login`: whether entries carry the login in Waldur.
    `home_bases`: homes that Waldur names are written where they are directly below one of these; `login_shells`: the
    shells that are written.
    """

    skips_missing: bool = False
    on_mismatch: OnMismatch = OnMismatch.REPORT
    personal_groups: bool = True
    has_login: bool = False
    home_bases: tuple[str, ...] = ()
    login_shells: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DirectoryUser:
    """A user's entry. `login`: the login in Waldur that it carries; `renamed_from`: a renaming that was cut off;
    `is_parked`: the agent has disabled it.
    """

    name: str
    uid: int | None
    gid: int | None
    login: str = ""
    renamed_from: str = ""
    is_parked: bool = False
    home: str = ""
    shell: str = ""


@dataclass(frozen=True, slots=True)
class DirectoryPeople:
    """Entries with a name, number or login that Waldur has, and groups with a name or number that a user would get who
    is new, or whose entry has other numbers.

    `stale`: attributes to be set as in Waldur, by username; `obstacles`: why a name cannot be a user's. What this host
    knows by its name service of those who would get a name, a home or numbers: `host_uids` by name, `host_users` and
    `host_groups` by number.
    """

    entries: tuple[DirectoryUser, ...] = ()
    groups: tuple[tuple[str, int | None], ...] = ()
    stale: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    obstacles: Mapping[str, str] = field(default_factory=dict)
    host_uids: Mapping[str, int] = field(default_factory=dict)
    host_users: Mapping[int, str] = field(default_factory=dict)
    host_groups: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProviderGroup:
    """A group that Waldur has for a project of the provider. `gid`: None where Waldur has no number for it yet.

    `offerings`: the provider's offerings where the project has resources, None where that is not known; `organization`:
    the slug, empty where the project is gone.
    """

    name: str
    gid: int | None
    members: frozenset[str] = frozenset()
    offerings: frozenset[str] | None = frozenset()
    organization: str = ""


@dataclass(frozen=True, slots=True)
class GroupParent:
    """An entry that lists the groups whose project has resources at `offerings`; empty: at this offering."""

    dn: str
    attribute: str = "member"
    offerings: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProviderGroupRules:
    """How a directory follows the groups that Waldur has for projects. `is_add_only`: nobody leaves one; `adopts`: a
    group with another number gets Waldur's; `description`: names the organization, with `{slug}` in it.
    """

    is_add_only: bool = False
    adopts: bool = False
    description: str = ""
    parents: tuple[GroupParent, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenProviderGroups:
    """What a directory holds of such groups, by their names in Waldur.

    `holders`: other entries by a group's number; `elsewhere`: groups of the same name in another place; `obstacles`:
    why a name cannot be a group's; `people`: members who have an entry, None where they need none; `refused`: why a
    user can be no member; `parents`: the groups that each entry lists, by its DN, None where there is no such entry.
    """

    groups: Mapping[str, DirectoryGroup] = field(default_factory=dict)
    holders: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    obstacles: Mapping[str, str] = field(default_factory=dict)
    people: frozenset[str] | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    descriptions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parents: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
