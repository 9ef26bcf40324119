# SPDX-License-Identifier: MIT
"""What the site's directory (LDAP) holds, as far as planners need to know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class DirectoryGroup:
    """A group that is named like an account."""

    name: str
    members: frozenset[str] = frozenset()
    # Why it is not ours to change; empty when it is.
    obstacle: str = ""
    # None where it has none, or is not there.
    gid: int | None = None


class OnMismatch(StrEnum):
    """What is done about an entry whose numbers are not Waldur's: a note, a failed pass, or Waldur's numbers count."""

    REPORT = "report"
    FAIL = "fail"
    ADOPT = "adopt"


@dataclass(frozen=True, slots=True)
class AccountRules:
    """How a directory follows the accounts that Waldur has."""

    skips_missing: bool = False
    on_mismatch: OnMismatch = OnMismatch.REPORT
    personal_groups: bool = True
    # Whether entries carry the login in Waldur.
    has_login: bool = False
    # Homes that Waldur names are written where they are directly below one of these.
    home_bases: tuple[str, ...] = ()
    # The shells that are written.
    login_shells: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DirectoryUser:
    """A user's entry."""

    name: str
    uid: int | None
    gid: int | None
    # The login in Waldur that it carries.
    login: str = ""
    # The name before a renaming that was cut off.
    renamed_from: str = ""
    # The agent has disabled it.
    is_parked: bool = False
    home: str = ""
    shell: str = ""


@dataclass(frozen=True, slots=True)
class DirectoryPeople:
    """Entries with a name, number or login that Waldur has, and groups with a name or number that a user would get who
    is new, or whose entry has other numbers.
    """

    entries: tuple[DirectoryUser, ...] = ()
    groups: tuple[tuple[str, int | None], ...] = ()
    # Attributes to be set as in Waldur, by username.
    stale: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    # Why a name cannot be a user's.
    obstacles: Mapping[str, str] = field(default_factory=dict)
    # By name: what this host knows by its name service of those who would get a name, a home or numbers.
    host_uids: Mapping[str, int] = field(default_factory=dict)
    # The same by number.
    host_users: Mapping[int, str] = field(default_factory=dict)
    # The same by number.
    host_groups: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProviderGroup:
    """A group that Waldur has for a project of the provider."""

    name: str
    # None where Waldur has no number for it yet.
    gid: int | None
    members: frozenset[str] = frozenset()
    # The provider's offerings where the project has resources, None where that is not known.
    offerings: frozenset[str] | None = frozenset()
    # The slug, empty where the project is gone.
    organization: str = ""


@dataclass(frozen=True, slots=True)
class GroupParent:
    """An entry that lists groups."""

    dn: str
    attribute: str = "member"
    # It lists those whose project has resources at these; empty: at this offering.
    offerings: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProviderGroupRules:
    """How a directory follows the groups that Waldur has for projects."""

    # No member leaves one.
    is_add_only: bool = False
    # A group with another number gets Waldur's.
    adopts: bool = False
    # Names the organization, with `{slug}` in it.
    description: str = ""
    parents: tuple[GroupParent, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenProviderGroups:
    """What a directory holds of such groups, by their names in Waldur."""

    groups: Mapping[str, DirectoryGroup] = field(default_factory=dict)
    # Other entries by a group's number.
    holders: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    # Groups of the same name in another place.
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    # Why a name cannot be a group's.
    obstacles: Mapping[str, str] = field(default_factory=dict)
    # Members who have an entry, None where they need none.
    people: frozenset[str] | None = None
    # Why a user can be no member.
    refused: Mapping[str, str] = field(default_factory=dict)
    descriptions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The groups that each entry lists, by its DN, None where there is no such entry.
    parents: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
