# SPDX-License-Identifier: MIT
"""What is done on the head node itself: homes, project directories and their quotas. Nothing here is ever removed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from agent.core.actions import ACCOUNT_ID, FREE, NO_PARTS, Action, Effect, Target, Where
from agent.core.model import Part, Snapshot
from agent.core.policy import Cost, PolicyRules

USER_ID: Mapping[str, str] = {"user": "user"}
SIZE = re.compile(r"([0-9]+)([kmgtpe]?)(i?b)?", re.IGNORECASE)
UNITS = "kmgtpe"


class HostAction(Action):
    """Done on the head node."""

    where: ClassVar[Where] = Where.HEAD_NODE
    parts: ClassVar[frozenset[Part]] = NO_PARTS


class HomeAction(HostAction):
    """Done for one user."""

    target: ClassVar[Target] = Target.HOME
    identifiers: ClassVar[Mapping[str, str]] = USER_ID

    user: str

    @property
    def program(self) -> str:
        """Return what carries it out: where that is missing, no action of this kind can be done."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class MakeHome(HomeAction):
    """Make the home of a user and fill it from the skeleton. A home that is there already is not touched."""

    subject = "{path} of {user} with umask {umask}"
    effect, costs = Effect.ADD, frozenset({Cost.HOMES_MADE})
    user: str
    path: str
    umask: str

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return True

    @property
    def program(self) -> str:
        return "mkhomedir_helper"


@dataclass(frozen=True, kw_only=True)
class SetQuota(HomeAction):
    """Limit what a user's home may hold; limits that are not named keep what they are."""

    subject = "of {user} on {place} ({provider}) {limits}"
    effect, costs = Effect.CHANGE, frozenset({Cost.QUOTAS_LOWERED})
    user: str
    provider: str
    # The home (Ceph) or the mount point (XFS, Lustre).
    place: str
    # What we set last, empty where that is not known.
    before: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    # As in `HomeQuota`.
    limits: tuple[tuple[str, str], ...]

    @property
    def program(self) -> str:
        return self.provider

    def takes_away(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        """Return whether a limit falls; 0 is no limit at all, for all three providers."""
        return _is_lower(self.before, self.limits)


class DirectoryHostAction(HostAction):
    """Done for the project directory of one account."""

    target: ClassVar[Target] = Target.DIRECTORY
    identifiers: ClassVar[Mapping[str, str]] = ACCOUNT_ID

    account: str
    path: str


@dataclass(frozen=True, kw_only=True)
class MakeProjectDirectory(DirectoryHostAction):
    """Make the directory of an allocation's members: empty, complete in owner, group and rights before it has its name.
    One that is there already is not touched.
    """

    subject = "{path} of {owner}:{group} ({gid}) with mode {mode}{rights}"
    effect, costs = Effect.ADD, FREE
    account: str
    path: str
    owner: str
    group: str
    gid: int
    mode: str
    has_acl: bool
    # Lustre's, 0 where there is no quota.
    project_id: int = 0

    @property
    def rights(self) -> str:
        acl = f" and rights for {self.group}" if self.has_acl else ""
        return acl + (f", project {self.project_id}" if self.project_id else "")


@dataclass(frozen=True, kw_only=True)
class SetProjectQuota(DirectoryHostAction):
    """Limit what a project directory may hold (Lustre)."""

    subject = "of {path} ({whose} {project_id} on {mount_point}) {limits}"
    effect, costs = Effect.CHANGE, frozenset({Cost.QUOTAS_LOWERED})
    account: str
    path: str
    project_id: int
    mount_point: str
    # What we set last, else what the file system has; empty for a directory that is new, None where it is unknown.
    before: tuple[tuple[str, str], ...] | None = field(default=(), compare=False)
    limits: tuple[tuple[str, str], ...]
    # The id is the number of a group.
    of_group: bool = False

    @property
    def whose(self) -> str:
        return "group" if self.of_group else "project"

    def takes_away(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        # A quota that is unknown may be a higher one.
        return self.before is None or _is_lower(self.before, self.limits)


def _is_lower(before: Iterable[tuple[str, str]], limits: Iterable[tuple[str, str]]) -> bool:
    """Return whether a limit is lower than before; 0 is no limit at all."""
    after = dict(limits)
    return any(
        name in after and 0 < _size(after[name]) < (_size(value) or float("inf")) for name, value in before
    )


def _size(text: str) -> float:
    """Return a number with or without a unit, by which limits of one quota compare; unreadable text is no limit."""
    found = SIZE.fullmatch(text.strip())
    if not found:
        return 0
    number, unit = int(found[1]), found[2].lower()
    return float(number * 1024 ** (UNITS.index(unit) + 1 if unit else 0))
