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
    """How a directory follows the accounts that Waldur has. `has_login`: whether entries carry the login in Waldur."""

    skips_missing: bool = False
    on_mismatch: OnMismatch = OnMismatch.REPORT
    personal_groups: bool = True
    has_login: bool = False


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


@dataclass(frozen=True, slots=True)
class DirectoryPeople:
    """Entries with a name, number or login that Waldur has, and groups with a name or number that a user would get who
    is new, or whose entry has other numbers.

    `stale`: attributes to be set as in Waldur, by username; `obstacles`: why a name cannot be a user's.
    """

    entries: tuple[DirectoryUser, ...] = ()
    groups: tuple[tuple[str, int | None], ...] = ()
    stale: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    obstacles: Mapping[str, str] = field(default_factory=dict)
