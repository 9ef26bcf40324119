# SPDX-License-Identifier: MIT
"""What a person may make the agent forget: hints, without which something is only asked or done once more."""

from __future__ import annotations

from collections.abc import Mapping

from agent.state.store import Source, writing

# What it is called, and the tables it is in.
HINTS: Mapping[str, tuple[str, ...]] = {
    "homes": ("homes",),
    "project-directories": ("project_directories",),
    "listings": ("waldur_listings", "seen_offerings"),
    "refused-months": ("refused_months",),
    "live-jobs": ("live_jobs",),
    "settled-usage": ("settled_usage", "settled_months", "settled_accounts"),
    "named-accounts": ("ledgers", "reported_accounts"),
    "hierarchy-names": ("hierarchy_names",),
    "untold-usage": ("untold_usage",),
}


def forget(source: Source, hint: str, offering_uuid: str) -> int:
    """Forget one kind of hint of an offering; return how many rows. Raises StateError."""
    with writing(source) as db:
        counts = [
            db.run(f"DELETE FROM {table} WHERE offering = ?", offering_uuid)  # noqa: S608  our own names
            for table in HINTS[hint]
        ]
    return sum(counts)
