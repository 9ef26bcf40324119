# SPDX-License-Identifier: MIT
"""Who belongs into an account, by their names on the cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProjectAccounts:
    """Service and course accounts of one project: those in use, those whose state is not settled, and closed ones."""

    active: frozenset[str] = frozenset()
    unsettled: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()


# The one empty set that all share: each frozenset() of its own takes 216 bytes (3.11).
NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DesiredMembers:
    """`wanted` belong in, `kept` may stay if they are there. `nameless` counts members who have no name here yet,
    `renamed` those who may have another one on the cluster, and nobody knows which.

    Where `complete` is false nobody is removed: somebody who belongs in may be missing from `wanted`.
    `known`: names that Waldur tells whose they are.
    """

    wanted: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    nameless: int = 0
    complete: bool = True
    known: frozenset[str] = frozenset()
    renamed: int = 0

    def stale(self, inside: frozenset[str]) -> frozenset[str]:
        """Return those of the users inside the account who do not belong there."""
        return inside - self.wanted - self.kept

    def unclear(self, stale: frozenset[str]) -> frozenset[str]:
        """Return those of `stale` who may be a member whose name was blanked, or changed: nobody else has their name in
        Waldur.
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
