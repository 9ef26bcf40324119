# SPDX-License-Identifier: MIT
"""Which accounts each offering of this host names: two that name the same one must not undo each other's members.

Every pass over everything leaves its list; the others on the same cluster read it. Until all offerings of the
configuration have left one nobody is removed. An offering that is gone from the configuration is forgotten after a day.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from agent.config.model import Offering
from agent.state.store import Db, Source, moment_text, note, reading, recall

VALID_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class NamedByOthers:
    """`accounts` that other offerings name, with the name of one of these each; `silent`: a neighbour that has not
    told yet which accounts it names, empty when all have.
    """

    accounts: Mapping[str, str]
    silent: str = ""


def write(source: Source, cluster: str, offering: Offering, named: Set[str]) -> bool:
    """Tell the other offerings which accounts this one names: all of them, not those of one resource. False, with a
    warning, where it cannot be written down.
    """
    which = (cluster, offering.uuid)

    def work(db: Db) -> None:
        known = {
            row["account"]
            for row in db.rows(
                "SELECT account FROM named_accounts WHERE cluster = ? AND offering = ?", *which
            )
        }
        now = moment_text(datetime.now(UTC))
        changed = db.run(
            "UPDATE account_namings SET name = ?, at = ? WHERE cluster = ? AND offering = ?",
            offering.name,
            now,
            *which,
        )
        if not changed:
            db.run("INSERT INTO account_namings VALUES (?, ?, ?, ?)", *which, offering.name, now)
        db.run_many(
            "DELETE FROM named_accounts WHERE cluster = ? AND offering = ? AND account = ?",
            ((*which, account) for account in known - named),
        )
        # What is not Unicode is stored in other words, under which it may be there already.
        db.run_many(
            "INSERT OR IGNORE INTO named_accounts VALUES (?, ?, ?)",
            ((*which, account) for account in named - known),
        )

    return note(source, "which accounts the offering names", work)


def of_offering(source: Source, cluster: str, offering_uuid: str) -> frozenset[str]:
    """Return the accounts that an offering named when it was last looked at as a whole; none where nobody can tell."""
    sql = "SELECT account FROM named_accounts WHERE cluster = ? AND offering = ?"
    what = "which accounts the offering names"
    found = recall(source, what, lambda db: db.rows(sql, cluster, offering_uuid))
    return frozenset(row["account"] for row in found or ())


def of_others(
    source: Source, cluster: str, offering_uuid: str, neighbours: Mapping[str, str]
) -> NamedByOthers:
    """Return what the other offerings on this cluster have told. `neighbours`: the names of those that must have, by
    uuid. Raises StateError: without it members of others would be removed.
    """
    with reading(source) as db:
        namings = db.rows(
            "SELECT * FROM account_namings WHERE cluster = ? AND offering != ? ORDER BY offering",
            cluster,
            offering_uuid,
        )
        accounts = db.rows(
            "SELECT offering, account FROM named_accounts WHERE cluster = ? AND offering != ? ORDER BY offering",
            cluster,
            offering_uuid,
        )
    oldest = moment_text(datetime.now(UTC) - VALID_FOR)
    heard = {
        row["offering"]: row["name"] for row in namings if row["offering"] in neighbours or row["at"] > oldest
    }
    found = {
        row["account"]: f"offering {heard[row['offering']]}" for row in accounts if row["offering"] in heard
    }
    silent = sorted(name for uuid, name in neighbours.items() if uuid not in heard)
    return NamedByOthers(found, silent[0] if silent else "")
