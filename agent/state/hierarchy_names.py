# SPDX-License-Identifier: MIT
"""Which account stands for each project and customer of Waldur: another name there moves nothing on the cluster.

Every pass over all members leaves what it has seen. Without it, a project whose slug was changed in Waldur is taken
for another one, and its accounts move below a new account.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.state.store import Db, Source, note, recall

WHAT = "the accounts of projects and customers"


def of_offering(source: Source, cluster: str, offering_uuid: str) -> dict[str, str]:
    """Return the accounts by the uuid of the project or customer; none where it cannot be read."""
    return recall(source, WHAT, lambda db: _accounts(db, cluster, offering_uuid)) or {}


def write(source: Source, cluster: str, offering_uuid: str, news: Mapping[str, str]) -> bool:
    """Remember accounts by the uuid of their project or customer. False, with a warning, where that cannot be
    written.
    """
    rows = [(cluster, offering_uuid, uuid, account) for uuid, account in sorted(news.items())]
    sql = "INSERT OR REPLACE INTO hierarchy_names VALUES (?, ?, ?, ?)"
    return not rows or note(source, WHAT, lambda db: db.run_many(sql, rows))


def _accounts(db: Db, cluster: str, offering_uuid: str) -> dict[str, str]:
    sql = "SELECT uuid, account FROM hierarchy_names WHERE cluster = ? AND offering = ?"
    return {row["uuid"]: row["account"] for row in db.rows(sql, cluster, offering_uuid)}
