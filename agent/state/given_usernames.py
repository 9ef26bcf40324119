# SPDX-License-Identifier: MIT
"""The last username of each person at an offering: a server that forgets them gets the same ones again.

Servers of 2024 blank all usernames when the offering's options are edited (5.8.4).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agent.state.store import Source, note, reading


def of_offering(source: Source, offering_uuid: str) -> dict[str, str]:
    """Return the usernames by the person's uuid. Raises StateError: without them people would get new names."""
    with reading(source) as db:
        rows = db.rows("SELECT person, username FROM given_usernames WHERE offering = ?", offering_uuid)
    return {row["person"]: row["username"] for row in rows}


def of_offerings(source: Source, offerings: Collection[str]) -> dict[str, str]:
    """Return whose each username is that was given at one of these offerings, the person's uuid by the username. Raises
    StateError.
    """
    if not offerings:
        return {}
    with reading(source) as db:
        rows = db.rows("SELECT offering, person, username FROM given_usernames ORDER BY offering, person")
    return {row["username"]: row["person"] for row in rows if row["offering"] in offerings}


def write(source: Source, offering_uuid: str, given: Mapping[str, str]) -> bool:
    """Remember these usernames, by the person's uuid. False, with a warning, where they cannot be written down."""
    return not given or note(
        source,
        "the usernames of people",
        lambda db: db.run_many(
            "INSERT OR REPLACE INTO given_usernames VALUES (?, ?, ?)",
            ((offering_uuid, person, username) for person, username in sorted(given.items())),
        ),
    )
