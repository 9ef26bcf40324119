# SPDX-License-Identifier: MIT
"""A large tree of accounts and users, put into the accounting database of a test cluster past sacctmgr: 10,000
associations in seconds, which single commands would make in hours.

The rows are those that sacctmgr writes (observed with SLURM 22.05). slurmdbd and slurmctld keep the tree in memory, so
both are started again. Nothing is written to the table of transactions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from agent.core.account_names import fold
from rig import job_rows

ROWS_PER_STATEMENT = 2000
# `fairshare=parent` in the table.
PARENT_SHARES = 2147483647
OTHERS_PER_ACCOUNT = 10
# An association of under a day is deleted from the table when it is removed, and everything behind it renumbered.
AGE_S = 2 * 86_400


class Cluster(job_rows.Cluster, Protocol):
    """SQL and servers of a cluster."""

    def restart(self) -> None:
        """Start slurmdbd and slurmctld again."""


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
    count = associations // (per_account + 1)
    return [
        Account(f"other{number}", users=[f"o{number}_{each}" for each in range(per_account)])
        for number in range(count)
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
    table, now = f"{cluster.cluster}_assoc_table", int(time.time()) - age_s
    tres = job_rows.tres_ids(cluster)
    known = set(cluster.sql("SELECT name FROM user_table WHERE deleted = 0").split())
    first = int(cluster.sql(f"SELECT rgt FROM {table} WHERE acct = 'root' AND user = ''"))
    with_default = set(known)
    rows: list[str] = []

    def place(account: Account, left: int) -> int:
        """Add the rows of an account and all below it; return the number that follows them."""
        users, inner = [], left + 1
        for child in children.get(account.name, ()):
            inner = place(child, inner)
        for user in account.users:
            is_default = int(user not in with_default)
            with_default.add(user)
            users.append(
                f"({now},{now},{is_default},'{user}','{account.name}','',{inner},{inner + 1},{PARENT_SHARES},'')"
            )
            inner += 2
        limits = ",".join(f"{tres[name]}={value}" for name, value in account.limits.items())
        rows.append(f"({now},{now},0,'','{account.name}','{account.parent}',{left},{inner},1,'{limits}')")
        rows.extend(users)
        return inner + 1

    end = first
    for top in children.get("root", ()):
        end = place(top, end)
    columns = "creation_time, mod_time, is_def, user, acct, parent_acct, lft, rgt, shares, grp_tres_mins"
    _insert(cluster, table, columns, rows)
    _insert(
        cluster,
        "acct_table",
        "creation_time, mod_time, name, description, organization",
        (f"({now},{now},'{a.name}','{a.description or fold(a.name)}','{a.organization}')" for a in found),
    )
    new = dict.fromkeys(user for account in found for user in account.users if user not in known)
    _insert(
        cluster,
        "user_table",
        "creation_time, mod_time, name, admin_level",
        (f"({now},{now},'{u}',1)" for u in new),
    )
    cluster.sql(f"UPDATE {table} SET rgt = {end} WHERE acct = 'root' AND user = ''")
    cluster.restart()


def clear(cluster: Cluster) -> None:
    """Forget every account and user but root, with everything that stands about them."""
    name = cluster.cluster
    usage = [f"{name}_assoc_usage_{period}_table" for period in ("hour", "day", "month")]
    emptied = [*usage, f"{name}_job_table", f"{name}_step_table", f"{name}_suspend_table", "txn_table"]
    cluster.sql(
        "".join(f"DELETE FROM {table};" for table in emptied)
        + f"DELETE FROM {name}_assoc_table WHERE acct != 'root';"
        "DELETE FROM acct_table WHERE name != 'root'; DELETE FROM user_table WHERE name != 'root';"
        f"UPDATE {name}_assoc_table SET lft = 1, rgt = 4 WHERE user = '';"
        f"UPDATE {name}_assoc_table SET lft = 2, rgt = 3 WHERE user = 'root';"
    )
    cluster.restart()


def _insert(cluster: Cluster, table: str, columns: str, rows: Iterable[str]) -> None:
    waiting: Iterator[str] = iter(rows)
    while some := list(islice(waiting, ROWS_PER_STATEMENT)):
        cluster.sql(f"INSERT INTO {table} ({columns}) VALUES {','.join(some)};")
