# SPDX-License-Identifier: MIT
"""The username under which each person of an offering was last in step on the cluster: by it passes see who has been
renamed since, and that many are at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.account_names import fold
from agent.state import given_usernames
from agent.state.store import Source, note, reading


def of_offering(source: Source, offering_uuid: str) -> dict[str, str]:
    """Return the usernames by the person's uuid. Of whom nothing is known here, the name that the agent gave. Raises
    StateError: without them it is unknown who is renamed.
    """
    with reading(source) as db:
        rows = db.rows("SELECT person, username FROM cluster_usernames WHERE offering = ?", offering_uuid)
        given = given_usernames.of_offering(db, offering_uuid)
    known = {person: fold(username) for person, username in given.items()}
    return {**known, **{row["person"]: row["username"] for row in rows}}


def write(source: Source, offering_uuid: str, names: Mapping[str, str]) -> bool:
    """Remember these usernames, by the person's uuid. False, with a warning, where they cannot be written down."""
    return not names or note(
        source,
        "the usernames of people on the cluster",
        lambda db: db.run_many(
            "INSERT OR REPLACE INTO cluster_usernames VALUES (?, ?, ?)",
            ((offering_uuid, person, username) for person, username in sorted(names.items())),
        ),
    )
