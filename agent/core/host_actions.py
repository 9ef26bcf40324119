# SPDX-License-Identifier: MIT
"""What is done on the head node itself: homes, and the quotas of homes. Nothing here is ever removed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from agent.core.actions import FREE, NO_PARTS, Action, Effect, Target
from agent.core.model import Part, Snapshot
from agent.core.policy import Cost, PolicyRules

USER_ID: Mapping[str, str] = {"user": "user"}
SIZE = re.compile(r"([0-9]+)([kmgtpe]?)(i?b)?", re.IGNORECASE)
UNITS = "kmgtpe"


class HostAction(Action):
    """Done on the head node, for one user."""

    where: ClassVar[str] = "head node"
    target: ClassVar[Target] = Target.HOME
    parts: ClassVar[frozenset[Part]] = NO_PARTS
    identifiers: ClassVar[Mapping[str, str]] = USER_ID

    user: str

    @property
    def program(self) -> str:
        """Return what carries it out: where that is missing, no action of this kind can be done."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class MakeHome(HostAction):
    """Make the home of a user and fill it from the skeleton. A home that is there already is not touched."""

    verb: ClassVar[str] = "make home"
    effect, costs = Effect.ADD, FREE
    user: str
    path: str
    umask: str

    def subject(self) -> str:
        return f"{self.path} of {self.user} with umask {self.umask}"

    @property
    def program(self) -> str:
        return "mkhomedir_helper"


@dataclass(frozen=True, kw_only=True)
class SetQuota(HostAction):
    """Limit what a user's home may hold. `place`: the home (Ceph) or the mount point (XFS, Lustre).

    `limits` as in `HomeQuota`; limits that are not named keep what they are. `before`: what we set last, empty where
    that is not known.
    """

    verb: ClassVar[str] = "set quota"
    effect, costs = Effect.CHANGE, frozenset({Cost.QUOTAS_LOWERED})
    user: str
    provider: str
    place: str
    before: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    limits: tuple[tuple[str, str], ...]

    def subject(self) -> str:
        limits = " ".join(f"{name}={value}" for name, value in self.limits)
        return f"of {self.user} on {self.place} ({self.provider}) {limits}"

    @property
    def program(self) -> str:
        return self.provider

    def takes_away(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        """0 is no limit at all, for all three providers."""
        after = dict(self.limits)
        return any(
            name in after and 0 < _size(after[name]) < (_size(value) or float("inf"))
            for name, value in self.before
        )


def _size(text: str) -> float:
    """Return a number with or without a unit, by which limits of one quota compare; unreadable text is no limit."""
    found = SIZE.fullmatch(text.strip())
    if not found:
        return 0
    number, unit = int(found[1]), found[2].lower()
    return float(number * 1024 ** (UNITS.index(unit) + 1 if unit else 0))
