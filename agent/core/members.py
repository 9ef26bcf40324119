# SPDX-License-Identifier: MIT
"""Who belongs into an account, by their names on the cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProjectAccounts:
    """Service and course accounts of one project: those in use, those whose state is in transition, and closed ones."""

    active: frozenset[str] = frozenset()
    in_transition: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()


# The one empty set that all share: each frozenset() of its own takes 216 bytes (3.11).
NO_MEMBERS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DesiredMembers:
    """Who shall be in an account."""

    # They belong in.
    wanted: frozenset[str] = frozenset()
    # They may stay if they are there.
    kept: frozenset[str] = frozenset()
    # How many members have no name here yet.
    nameless: int = 0
    # Where it is false no member is removed: one who belongs in may be missing from those wanted.
    complete: bool = True
    # Names whose users Waldur lists.
    known: frozenset[str] = frozenset()
    # How many may have another name on the cluster, which is unknown.
    renamed: int = 0

    def stale(self, inside: frozenset[str]) -> frozenset[str]:
        """Return those of the users inside the account who do not belong there."""
        return inside - self.wanted - self.kept

    def unclear(self, stale: frozenset[str]) -> frozenset[str]:
        """Return those of `stale` who may be a member whose name was blanked, or changed: no other user has their name
        in Waldur.
        """
        return stale - self.known if self.nameless or self.renamed else frozenset()

    def joined(self, other: DesiredMembers) -> DesiredMembers:
        """Return the members of two resources that stand for one account."""
        return DesiredMembers(
            self.wanted | other.wanted,
            self.kept | other.kept,
            self.nameless + other.nameless,
            self.complete and other.complete,
            self.known | other.known,
            self.renamed + other.renamed,
        )
