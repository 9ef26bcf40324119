# SPDX-License-Identifier: MIT
"""What Waldur was told of each member of a resource: it is told again only where that changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.state.store import Db, Source, note, recall

WHAT = "what Waldur was told of members"

# Resource uuid -> person's uuid -> what was told.
Told = Mapping[str, Mapping[str, str]]


def of_offering(source: Source, offering_uuid: str) -> Told | None:
    """Return what was told; None, with a warning, where nobody can tell."""
    sql = "SELECT resource, person, told FROM told_members WHERE offering = ?"

    def work(db: Db) -> Told:
        found: dict[str, dict[str, str]] = {}
        for row in db.rows(sql, offering_uuid):
            found.setdefault(row["resource"], {})[row["person"]] = row["told"]
        return found

    return recall(source, WHAT, work)


def write(source: Source, offering_uuid: str, news: Told, gone: Iterable[tuple[str, str]]) -> bool:
    """Remember what was told; forget persons who are `gone` from a resource. False, with a warning, where that is not
    possible.
    """

    def work(db: Db) -> None:
        db.run_many(
            "INSERT OR REPLACE INTO told_members VALUES (?, ?, ?, ?)",
            (
                (offering_uuid, resource, person, told)
                for resource, persons in news.items()
                for person, told in persons.items()
            ),
        )
        db.run_many(
            "DELETE FROM told_members WHERE offering = ? AND resource = ? AND person = ?",
            ((offering_uuid, resource, person) for resource, person in gone),
        )

    return note(source, WHAT, work)
