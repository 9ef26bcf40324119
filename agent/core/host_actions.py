# SPDX-License-Identifier: MIT
"""What is done on the head node itself: homes, and the quotas of homes. Nothing here is ever removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from agent.core.actions import Action


class HostAction(Action):
    """Done on the head node, for one user."""

    user: str


@dataclass(frozen=True, kw_only=True)
class MakeHome(HostAction):
    """Make the home of a user and fill it from the skeleton. A home that is there already is not touched."""

    verb: ClassVar[str] = "make home"
    user: str
    path: str
    umask: str

    def target(self) -> str:
        return f"{self.path} of {self.user} with umask {self.umask}"


@dataclass(frozen=True, kw_only=True)
class SetQuota(HostAction):
    """Limit what a user's home may hold. `place`: the home (Ceph) or the mount point (XFS, Lustre).

    `limits` as in `HomeQuota`; limits that are not named keep what they are.
    """

    verb: ClassVar[str] = "set quota"
    user: str
    provider: str
    place: str
    limits: tuple[tuple[str, str], ...]

    def target(self) -> str:
        limits = " ".join(f"{name}={value}" for name, value in self.limits)
        return f"of {self.user} on {self.place} ({self.provider}) {limits}"
