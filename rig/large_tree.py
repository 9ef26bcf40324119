# SPDX-License-Identifier: MIT
"""A large tree of accounts and users, put into the accounting database of a test cluster past sacctmgr: 10,000
associations in seconds, which single commands would make in hours.

The rows are those that sacctmgr writes (observed with SLURM 22.05, 24.11 and 26.05). slurmdbd and slurmctld keep the
tree in memory, so both are started again. Nothing is written to the table of transactions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Protocol

from agent.core.account_names import fold
from rig import job_rows, slurm_reset

ROWS_PER_STATEMENT = 2000
# `fairshare=parent` in the table.
PARENT_SHARES = 2147483647
OTHERS_PER_ACCOUNT = 10
# An association of under a day is deleted from the table when it is removed, and everything behind it renumbered.
AGE_S = 2 * 86_400
TIMES = ("creation_time", "mod_time")
# Where a row stands, up to 23.02 and from 23.11 on.
OF_PLACES, OF_LINEAGES = frozenset({"lft", "rgt"}), frozenset({"id_parent", "lineage"})
Row = Mapping[str, str | int]


class Cluster(job_rows.Cluster, slurm_reset.Cluster, Protocol):
    """SQL, commands and servers of a cluster."""


@dataclass(frozen=True, slots=True)
class Account:
    """One account with its users."""

    name: str
    parent: str = "root"
    users: Sequence[str] = ()
    description: str = ""
    organization: str = ""
    # GrpTRESMins by TRES.
    limits: Mapping[str, int] = field(default_factory=dict)


def others(associations: int, per_account: int = OTHERS_PER_ACCOUNT) -> list[Account]:
    """Return accounts of others below root, which have about so many associations in all, one user in each."""
    accounts = associations // (per_account + 1)
    return [
        Account(f"other{number}", users=[f"o{number}_{each}" for each in range(per_account)])
        for number in range(accounts)
    ]


def add(cluster: Cluster, accounts: Iterable[Account], *, age_s: int = AGE_S) -> None:
    """Put new accounts with their users at the end of the tree, as if made so long ago. Parents are root or among the
    accounts.

    The first account of a user in the database is the default one.
    """
    found = list(accounts)
    children: dict[str, list[Account]] = {}
    for account in found:
        children.setdefault(account.parent, []).append(account)
    table, times = f"{cluster.cluster}_assoc_table", dict.fromkeys(TIMES, int(time.time()) - age_s)
    tres = job_rows.tres_ids(cluster)
    known = set(cluster.sql("SELECT name FROM user_table WHERE deleted = 0").split())
    root = f"FROM {table} WHERE acct = 'root' AND user = ''"
    ids = count(int(cluster.sql(f"SELECT MAX(id_assoc) + 1 FROM {table}")))
    with_default = set(known)
    rows: list[Row] = []

    def place(account: Account, left: int, parent: int, above: str) -> int:
        """Add the rows of an account and all below it; return the number that follows them."""
        own, lineage, inner = next(ids), f"{above}{account.name}/", left + 1
        users: list[Row] = []
        stands: Row
        for child in children.get(account.name, ()):
            inner = place(child, inner, own, lineage)
        for user in account.users:
            stands = {"id_parent": own, "lineage": f"{lineage}0-{user}/", "lft": inner, "rgt": inner + 1}
            is_default = int(user not in with_default)
            with_default.add(user)
            users.append(
                {"id_assoc": next(ids), "is_def": is_default, "user": user, "acct": account.name, **stands}
                | {"parent_acct": "", "shares": PARENT_SHARES, "grp_tres_mins": "", **times}
            )
            inner += 2
        limits = ",".join(f"{tres[name]}={value}" for name, value in account.limits.items())
        stands = {"id_parent": parent, "lineage": lineage, "lft": left, "rgt": inner}
        rows.append(
            {"id_assoc": own, "is_def": 0, "user": "", "acct": account.name, **stands}
            | {"parent_acct": account.parent, "shares": 1, "grp_tres_mins": limits, **times}
        )
        rows.extend(users)
        return inner + 1

    is_placed = slurm_reset.is_placed(cluster)
    end = int(cluster.sql(f"SELECT rgt {root}")) if is_placed else 0
    root_id = int(cluster.sql(f"SELECT id_assoc {root}"))
    for top in children.get("root", ()):
        end = place(top, end, root_id, "/")
    _insert(cluster, table, rows, without=OF_LINEAGES if is_placed else OF_PLACES)
    texts = (
        {"name": a.name, "description": a.description or fold(a.name), "organization": a.organization}
        for a in found
    )
    _insert(cluster, "acct_table", ({**text, **times} for text in texts))
    new = dict.fromkeys(user for account in found for user in account.users if user not in known)
    _insert(cluster, "user_table", ({"name": user, "admin_level": 1, **times} for user in new))
    if is_placed:
        cluster.sql(f"UPDATE {table} SET rgt = {end} WHERE acct = 'root' AND user = ''")
    # A table that has grown over years is known to the database as it is.
    cluster.sql(f"ANALYZE TABLE {table}, acct_table, user_table")
    cluster.restart()


def clear(cluster: Cluster) -> None:
    """Put accounts, users, QoS and clusters back as they were at the start; forget usage, jobs and transactions."""
    slurm_reset.forget_jobs(cluster)
    cluster.sql("DELETE FROM txn_table")
    slurm_reset.put_back(cluster)


def _insert(
    cluster: Cluster, table: str, rows: Iterable[Row], *, without: AbstractSet[str] = frozenset()
) -> None:
    """Write rows of the same columns, which are named: each release has others beside them."""
    waiting: Iterator[Row] = iter(rows)
    while some := list(islice(waiting, ROWS_PER_STATEMENT)):
        columns = [column for column in some[0] if column not in without]
        values = ",".join(f"({','.join(_literal(row[column]) for column in columns)})" for row in some)
        cluster.sql(f"INSERT INTO {table} ({','.join(columns)}) VALUES {values}")


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"
