# SPDX-License-Identifier: MIT
"""Who belongs into an account, by their names on the cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProjectAccounts:
    """Service and course accounts of one project: those in use, and those whose state is not settled."""

    active: frozenset[str] = frozenset()
    unsettled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class People:
    """`wanted` belong in, `kept` may stay if they are there. `nameless` counts members who have no name here yet.

    Where `complete` is false nobody is removed: somebody who belongs in may be missing from `wanted`.
    """

    wanted: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    nameless: int = 0
    complete: bool = True

    def joined(self, other: People) -> People:
        """Those of two resources that stand for one account."""
        return People(
            self.wanted | other.wanted,
            self.kept | other.kept,
            self.nameless + other.nameless,
            self.complete and other.complete,
        )
