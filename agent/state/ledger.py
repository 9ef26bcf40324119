# SPDX-License-Identifier: MIT
"""The accounts of each cluster that this host knows to be an offering's, and those that its Waldur names.

What is ours is decided by the policy (`agent.plan.policy.ownership`); here it is remembered. Which accounts an offering
names counts for the other offerings on the cluster: two that name the same one must not undo each other's members.
A name leaves by an ending that was seen, or when whole listings have lacked it for an hour. Until all offerings of the
configuration have left a list no member is removed. An offering that is gone from the configuration is forgotten after
a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from agent.config.model import Offering
from agent.core.ownership import Ledger, Origin
from agent.state import columns
from agent.state.store import AHEAD_AT_MOST, Db, Source, moment_text, note, reading, recall, writing

VALID_FOR = timedelta(days=1)
# A listing that lacks an account is believed after it has lacked it for so long.
BELIEVED_AFTER = timedelta(hours=1)

LEDGER = "whose accounts these are"
NAMES = "which accounts the offering names"


@dataclass(frozen=True, slots=True)
class NamedByOthers:
    """The accounts that other offerings name."""

    # With the name of one of these offerings each.
    accounts: Mapping[str, str]
    # A neighbour that has not reported yet which accounts it names, empty when all have.
    unrecorded: str = ""


def read(source: Source, cluster: str, offering_uuid: str) -> Ledger:
    """Return what is known of an offering's accounts. Raises StateError: without it nothing is changed."""
    with reading(source) as db:
        seen = {
            row["offering"]: row["name"]
            for row in db.rows("SELECT offering, name FROM ledgers WHERE cluster = ?", cluster)
        }
        rows = db.rows(
            "SELECT offering, account, origin FROM ledger_accounts WHERE cluster = ?1 AND "
            "(offering = ?2 OR origin = ?3 OR (origin IN (?4, ?5) AND named))",
            cluster,
            offering_uuid,
            Origin.MADE,
            Origin.FOUND,
            Origin.ADOPTED,
        )
    return Ledger(
        {
            row["account"]: columns.choice(row, "origin", Origin)
            for row in rows
            if row["offering"] == offering_uuid
        },
        {
            row["account"]: f"offering {seen.get(row['offering'], row['offering'])}"
            for row in rows
            if row["offering"] != offering_uuid
        },
        is_first=offering_uuid not in seen,
    )


def asked(source: Source, cluster: str, offering_uuid: str) -> frozenset[str]:
    """Return the accounts that a person was asked to adopt, and has not. Raises StateError."""
    known = read(source, cluster, offering_uuid)
    return frozenset(filter(known.is_asked, known.origins))


def write(
    source: Source, cluster: str, offering: Offering, accounts: Mapping[str, Origin], *, is_seen: bool
) -> None:
    """Note whose accounts these are, and with `is_seen` that the offering was looked at on this cluster. What is the
    offering's already stays so, whatever is asked of it. Raises StateError.
    """
    now = moment_text(datetime.now(UTC))
    with writing(source) as db:
        if is_seen:
            _enter(db, cluster, offering)
        db.run_many(
            "INSERT OR IGNORE INTO ledger_accounts (cluster, offering, account, origin, since, named, lacking_since) "
            "VALUES (?, ?, ?, ?, ?, 0, '')",
            ((cluster, offering.uuid, account, Origin.NAMED, now) for account in accounts),
        )
        replaced = {
            Origin.ASKED: (Origin.NAMED,),
            Origin.FOUND: (Origin.NAMED, Origin.ASKED),
            Origin.MADE: (Origin.NAMED, Origin.ASKED, Origin.FOUND),
            Origin.ADOPTED: (Origin.NAMED, Origin.ASKED),
        }
        db.run_many(
            "UPDATE ledger_accounts SET origin = ?, since = ? "
            "WHERE cluster = ? AND offering = ? AND account = ? AND origin IN (?, ?, ?)",
            (
                (origin, now, cluster, offering.uuid, account, *(*replaced[origin], "", "")[:3])
                for account, origin in accounts.items()
            ),
        )


def forget(source: Source, cluster: str, offering: Offering, ended: Iterable[str]) -> bool:
    """Note that these accounts are gone: their ending was seen. False, with a warning, where it cannot be written."""
    rows = [(cluster, offering.uuid, account) for account in ended]
    sql = "DELETE FROM ledger_accounts WHERE cluster = ? AND offering = ? AND account = ?"
    return not rows or note(source, LEDGER, lambda db: db.run_many(sql, rows))


def write_named(
    source: Source, cluster: str, offering: Offering, named: Set[str], standing: Set[str] | None
) -> bool:
    """Record for the other offerings which accounts this one names: all of them, not those of one resource. `standing`:
    the accounts that the cluster has, None where they were not read; what is neither there nor named is forgotten.
    False, with a warning, where it cannot be written down.
    """
    which = (cluster, offering.uuid)

    def work(db: Db) -> None:
        moment = datetime.now(UTC)
        now, oldest = moment_text(moment), moment_text(moment - BELIEVED_AFTER)
        newest = moment_text(moment + AHEAD_AT_MOST)
        known = {
            row["account"]: row
            for row in db.rows("SELECT * FROM ledger_accounts WHERE cluster = ? AND offering = ?", *which)
        }
        _enter(db, cluster, offering)
        db.run(
            "UPDATE ledgers SET named = ?, name = ? WHERE cluster = ? AND offering = ?",
            now,
            offering.name,
            *which,
        )
        db.run_many(
            "INSERT OR IGNORE INTO ledger_accounts (cluster, offering, account, origin, since, named, lacking_since) "
            "VALUES (?, ?, ?, ?, ?, 1, '')",
            ((*which, account, Origin.NAMED, now) for account in named - known.keys()),
        )
        again = [a for a in named & known.keys() if not known[a]["named"] or known[a]["lacking_since"]]
        db.run_many(
            "UPDATE ledger_accounts SET named = 1, lacking_since = '' "
            "WHERE cluster = ? AND offering = ? AND account = ?",
            ((*which, account) for account in again),
        )
        lacking = {account: row for account, row in known.items() if row["named"] and account not in named}
        begun = [a for a, row in lacking.items() if not row["lacking_since"] or row["lacking_since"] > newest]
        over = {a for a, row in lacking.items() if row["lacking_since"] and row["lacking_since"] < oldest}
        db.run_many(
            "UPDATE ledger_accounts SET lacking_since = ? WHERE cluster = ? AND offering = ? AND account = ?",
            ((now, *which, account) for account in begun),
        )
        db.run_many(
            "UPDATE ledger_accounts SET named = 0, lacking_since = '' "
            "WHERE cluster = ? AND offering = ? AND account = ?",
            ((*which, account) for account in over),
        )
        gone = [
            account
            for account, row in known.items()
            if account not in named
            and (not row["named"] or account in over)
            and row["since"] < oldest
            and (
                row["origin"] in (Origin.NAMED, Origin.ASKED)
                or (standing is not None and account not in standing)
            )
        ]
        db.run_many(
            "DELETE FROM ledger_accounts WHERE cluster = ? AND offering = ? AND account = ?",
            ((*which, account) for account in gone),
        )

    return note(source, NAMES, work)


def of_offering(source: Source, cluster: str, offering_uuid: str) -> frozenset[str]:
    """Return the accounts that an offering named at its last whole look; none where it cannot be read."""
    sql = "SELECT account FROM ledger_accounts WHERE cluster = ? AND offering = ? AND named = 1"
    found = recall(source, NAMES, lambda db: db.rows(sql, cluster, offering_uuid))
    return frozenset(row["account"] for row in found or ())


def of_others(
    source: Source, cluster: str, offering_uuid: str, neighbours: Mapping[str, str]
) -> NamedByOthers:
    """Return what the other offerings on this cluster have recorded. `neighbours`: the names of those that must have,
    by uuid. Raises StateError: without it members of others would be removed.
    """
    with reading(source) as db:
        ledgers = db.rows(
            "SELECT * FROM ledgers WHERE cluster = ? AND offering != ? AND named != '' ORDER BY offering",
            cluster,
            offering_uuid,
        )
        accounts = db.rows(
            "SELECT offering, account FROM ledger_accounts WHERE cluster = ? AND offering != ? AND named = 1 "
            "ORDER BY offering",
            cluster,
            offering_uuid,
        )
    oldest = moment_text(datetime.now(UTC) - VALID_FOR)
    recorded = {
        row["offering"]: row["name"]
        for row in ledgers
        if row["offering"] in neighbours or row["named"] > oldest
    }
    found = {
        row["account"]: f"offering {recorded[row['offering']]}"
        for row in accounts
        if row["offering"] in recorded
    }
    unrecorded = sorted(name for uuid, name in neighbours.items() if uuid not in recorded)
    return NamedByOthers(found, unrecorded[0] if unrecorded else "")


def clusters(source: Source) -> dict[str, str]:
    """Return by offering the name of the cluster on which it was seen last; none where it cannot be read."""
    sql = "SELECT offering, cluster FROM ledgers ORDER BY seen"
    found = recall(source, "on which cluster offerings were seen", lambda db: db.rows(sql))
    return {row["offering"]: row["cluster"] for row in found or ()}


def _enter(db: Db, cluster: str, offering: Offering) -> None:
    now = moment_text(datetime.now(UTC))
    which = (cluster, offering.uuid)
    if not db.run("UPDATE ledgers SET seen = ? WHERE cluster = ? AND offering = ?", now, *which):
        db.run("INSERT INTO ledgers VALUES (?, ?, ?, ?, '')", *which, offering.name, now)
