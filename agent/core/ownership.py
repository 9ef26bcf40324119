# SPDX-License-Identifier: MIT
"""What a host knows of whose accounts stand on a cluster: the ledger of one offering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Origin(StrEnum):
    """How an account came to be an offering's: this host made it, it stood as the offering's own when that was first
    seen, or a person adopted it. ASKED: a person was asked to adopt it; NAMED: Waldur names it, and no more is known.
    """

    MADE = "made"
    FOUND = "found"
    ADOPTED = "adopted"
    ASKED = "asked"
    NAMED = "named"


OURS = frozenset({Origin.MADE, Origin.FOUND, Origin.ADOPTED})


@dataclass(frozen=True, slots=True)
class Ledger:
    """Who made the accounts of a cluster, as far as this host knows."""

    # By account, of the offering itself.
    origins: Mapping[str, Origin] = field(default_factory=dict)
    # By account, the offering of this host that made it, or that found or adopted it and names it.
    made_by_others: Mapping[str, str] = field(default_factory=dict)
    # The offering was not seen on this cluster before.
    is_first: bool = False
    # Origins that are not written down yet.
    news: Mapping[str, Origin] = field(default_factory=dict)

    def is_ours(self, account: str) -> bool:
        return self.origins.get(account) in OURS

    def is_asked(self, account: str) -> bool:
        """Return whether a person was asked to adopt this account, and has not."""
        return self.origins.get(account) is Origin.ASKED
