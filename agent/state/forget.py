# SPDX-License-Identifier: MIT
"""What a person may make the agent forget, so that something is asked or done once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.state import hints
from agent.state.hints import Hints
from agent.state.store import Source, writing

# What it is called: kinds of hints, and tables that have the offering.
FORGETTABLE: Mapping[str, tuple[str | Hints[Any], ...]] = {
    "homes": (hints.HOMES,),
    "project-directories": (hints.PROJECT_DIRECTORIES,),
    "listings": ("waldur_listings", hints.SEEN_OFFERINGS),
    "refused-months": (hints.REFUSED_MONTHS,),
    "live-jobs": (hints.LIVE_JOBS,),
    "finalised-usage": ("finalised_usage", "finalised_months", "finalised_accounts"),
    "named-accounts": ("ledgers", "reported_accounts"),
    "hierarchy-names": ("hierarchy_names",),
    "unreported-usage": ("unreported_usage",),
}


def forget(source: Source, what: str, offering_uuid: str) -> int:
    """Forget what is called so of an offering; return how many rows. Raises StateError."""
    with writing(source) as db:
        return sum(
            place.drop(db, offering_uuid)
            if isinstance(place, Hints)
            else db.run(f"DELETE FROM {place} WHERE offering = ?", offering_uuid)  # noqa: S608  our own names
            for place in FORGETTABLE[what]
        )
