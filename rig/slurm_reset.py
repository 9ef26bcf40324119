# SPDX-License-Identifier: MIT
"""Bring a test cluster back to its state at the start, fast enough to run between tests.

Cancels jobs, removes every user, account, QoS and cluster that is not built in, and forgets finished jobs. Where
commands cannot bring it back, the tables of the accounting are put back.
"""

import subprocess
import warnings
from collections.abc import Set as AbstractSet
from typing import Protocol

from rig.job_rows import GENERATED
from rig.processes import RealPartError, wait_until

BUILT_IN_ACCOUNT = "root"
BUILT_IN_USER = "root"
NAMES_PER_COMMAND = 1000
ALL_REPORTED = "DBD Agent queue size: 0\n"
# Of jobs that squeue does not name unasked.
ENDED = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
})  # fmt: skip
# Reasons of jobs that wait for more than their turn: they are reported to slurmdbd when they end.
NOT_REPORTED_YET = ("JobHeld", "Dependency", "BeginTime")
# Rounds of the thread in which slurmctld 22.05 reports submissions and late starts.
SECONDS_BETWEEN_REPORTS = 5
LIMIT_COLUMNS = (
    "shares, is_def, grp_tres_mins, grp_tres, grp_submit_jobs, grp_jobs, grp_wall,"
    " max_tres_mins_pj, max_tres_pj, max_jobs, max_submit_jobs, max_wall_pj, qos, def_qos_id"
)
READS = {
    "user": "name, admin_level FROM user_table",
    "account": "name FROM acct_table",
    "qos": "name FROM qos_table",
    "cluster": "name FROM cluster_table",
    "association": f"acct, user, `partition`, {LIMIT_COLUMNS} FROM {{cluster}}_assoc_table",
}
ROOT_AS_IT_WAS = (
    *("fairshare=1", "qos=normal", "defaultqos=-1", "grpsubmitjobs=-1", "grpjobs=-1", "grpwall=-1"),
    *("maxjobs=-1", "maxsubmitjobs=-1", "maxwall=-1"),
    *(f"{limit}=cpu=-1,mem=-1,gres/gpu=-1" for limit in ("grptresmins", "grptres", "maxtresmins", "maxtres")),
)
JOB_TABLES = ("job_table", "step_table", "suspend_table", "job_env_table", "job_script_table")
AT_START = "at_start"
"""A database with the tables below as they were when the cluster had started."""

KEPT_TABLES = (
    "{cluster}_assoc_table", "acct_table", "acct_coord_table", "user_table", "qos_table", "cluster_table",
)  # fmt: skip
# slurmdbd 22.05 can leave gaps when two of its clients write at once. Deleted associations have places, too.
GAPS = "SELECT MAX(rgt) - MIN(lft) + 1 - 2 * COUNT(*) FROM {cluster}_assoc_table"
USAGE_TABLES = tuple(
    f"{kind}usage_{period}_table" for kind in ("assoc_", "wckey_", "") for period in ("hour", "day", "month")
)


class Cluster(Protocol):
    """Commands and SQL that a reset runs on the cluster."""

    cluster: str

    def run(self, *argv: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a SLURM command."""

    def ask(self, *argv: str, timeout_s: float = 60) -> str:
        """Run a SLURM command that must succeed."""

    def sql(self, *statements: str) -> str:
        """Run SQL statements in the accounting database."""

    def restart(self) -> None:
        """Start slurmdbd and slurmctld again."""


Records = dict[str, frozenset[tuple[str, ...]]]
"""By kind, the rows of everything that a test may change; the first column is the name."""


def read_records(cluster: Cluster) -> Records:
    """Users, accounts, QoS, clusters and associations, read past sacctmgr."""
    statements = [
        f"SELECT '{kind}', {columns.format(cluster=cluster.cluster)} WHERE deleted=0"
        for kind, columns in READS.items()
    ]
    rows = [tuple(line.split("\t")) for line in cluster.sql(*statements).splitlines()]
    return {kind: frozenset(row[1:] for row in rows if row[0] == kind) for kind in READS}


def cancel_jobs(cluster: Cluster) -> None:
    """Cancel every job and wait until the last of all that slurmctld remembers was reported to slurmdbd.

    A row that came after they were forgotten would stay, and slurmctld may report a job's beginning after its end: one
    that meets the thread which reports submissions is left to that thread's next round (observed with SLURM 22.05).
    Only such a message brings the eligible time. A job without one is waited for until that round is over.
    """
    lines = cluster.ask("squeue", "-h", "-t", "all", "-o", "%A %T %r").splitlines()
    rows = [line.split(maxsplit=2) for line in lines]
    remembered = {job for job, _, _ in rows}
    reasons = {job: reason for job, state, reason in rows if state not in ENDED}
    if reasons:
        begun = {job for job, reason in reasons.items() if not reason.startswith(NOT_REPORTED_YET)}
        wait_until("a row of every job", lambda: begun <= _rows_of_jobs(cluster, begun).keys())
        cluster.ask("scancel", "--full", *sorted(reasons))
        wait_until("the end of cancelled jobs", lambda: not cluster.ask("squeue", "-h"))
    wait_until("all jobs are reported to slurmdbd", lambda: ALL_REPORTED in cluster.ask("sdiag"))

    def all_is_reported() -> bool:
        rows = _rows_of_jobs(cluster, remembered)
        return reasons.keys() <= rows.keys() and all(rows.values())

    wait_until("beginning and end of every job in the accounting", all_is_reported)


def _rows_of_jobs(cluster: Cluster, jobs: AbstractSet[str]) -> dict[str, bool]:
    """Return those of the jobs that slurmdbd has rows of, and whether all was reported, or nothing in a whole round."""
    if not jobs:
        return {}
    ids = ",".join(sorted(jobs))
    rows = cluster.sql(
        "SELECT id_job, (MIN(time_eligible) > 0 AND MIN(time_end) > 0)"
        f" OR MAX(mod_time) + {SECONDS_BETWEEN_REPORTS} < UNIX_TIMESTAMP()"
        f" FROM {cluster.cluster}_job_table WHERE id_job IN ({ids}) GROUP BY id_job"
    )
    return {job: is_whole == "1" for job, is_whole in (row.split() for row in rows.splitlines())}


def remove(cluster: Cluster, kind: str, names: list[str]) -> None:
    """Remove users, accounts, QoS or clusters by name; jobs that still end are waited for."""
    for first in range(0, len(names), NAMES_PER_COMMAND):
        listed = ",".join(names[first : first + NAMES_PER_COMMAND])
        argv = ("sacctmgr", "-i", "remove", kind, "where", f"name={listed}")

        def done(argv: tuple[str, ...] = argv) -> bool:
            answer = cluster.run(*argv)
            if answer.returncode and "Job(s) active" not in answer.stderr + answer.stdout:
                raise RealPartError(f"{' '.join(argv)}: {answer.stdout}{answer.stderr}")
            return answer.returncode == 0

        wait_until(f"removal of {kind} {listed}", done)


def keep(cluster: Cluster) -> Records:
    """Keep a copy of the tables of a cluster that has just started; return what `reset` brings it back to."""
    tables = [table.format(cluster=cluster.cluster) for table in KEPT_TABLES]
    copies = (f"CREATE TABLE {AT_START}.{table} AS SELECT * FROM {table}" for table in tables)
    cluster.sql(f"CREATE DATABASE {AT_START}", *copies)
    return read_records(cluster)


def put_back(cluster: Cluster) -> None:
    """Put the copies of `keep` in the place of the tables. slurmdbd and slurmctld read them once, and start again."""
    tables = [table.format(cluster=cluster.cluster) for table in KEPT_TABLES]
    for table in tables:
        cluster.sql(f"DELETE FROM {table}", f"INSERT INTO {table} SELECT * FROM {AT_START}.{table}")
    cluster.restart()


def reset(cluster: Cluster, built_in: Records) -> None:
    """Bring the cluster back to the records it had at its start.

    Raises RealPartError when commands cannot, but with SLURM 22.05, which can break its tree by itself when two clients
    write at once: then this is a warning. The tables are put back first: no later test suffers from it.
    """
    cancel_jobs(cluster)
    try:
        undo(cluster, built_in)
    except RealPartError as failure:
        damage = f"{failure}\n{_traces(cluster)}"
        put_back(cluster)
        undo(cluster, built_in)
        if not is_placed(cluster):
            raise RealPartError(damage) from failure
        warnings.warn(f"the tables of the cluster were put back: {damage}", stacklevel=2)


def undo(cluster: Cluster, built_in: Records) -> None:
    """Remove what was not there at the start, and set what was; raises RealPartError when that is not enough."""
    forget_jobs(cluster)
    now = read_records(cluster)
    if now != built_in:
        remove_extra(cluster, now, built_in)
        forget_jobs(cluster)
        now = read_records(cluster)
    if now != built_in:
        cluster.ask(
            *("sacctmgr", "-i", "modify", "account", "where", f"name={BUILT_IN_ACCOUNT}"),
            *(f"cluster={cluster.cluster}", "set", *ROOT_AS_IT_WAS),
        )
        now = read_records(cluster)
    if now != built_in:
        raise RealPartError(f"the cluster is not what it was:\n{now}\nat its start:\n{built_in}")
    if is_placed(cluster) and (gaps := cluster.sql(GAPS.format(cluster=cluster.cluster))) != "0\n":
        raise RealPartError(f"the numbering of the associations is off by {gaps.strip()}")


def forget_jobs(cluster: Cluster) -> None:
    """Forget jobs and usage. sacct would show them to the next test; a generated job that has not ended would keep its
    account; and slurmdbd keeps the rows of accounts that had jobs, marked as deleted, in the way of accounts of the
    same name.
    """
    tables = [f"{cluster.cluster}_{table}" for table in JOB_TABLES + USAGE_TABLES]
    generated = f"DELETE FROM {cluster.cluster}_event_table WHERE reason='{GENERATED}'"
    cluster.sql(*(f"DELETE FROM {table}" for table in tables), generated)


def is_placed(cluster: Cluster) -> bool:
    """Return whether the associations of this release have places; they have lineages from 23.11 on."""
    return not cluster.sql(f"SHOW COLUMNS FROM {cluster.cluster}_assoc_table LIKE 'lineage'")


def _traces(cluster: Cluster) -> str:
    """Return what may tell how the tree was broken: root's associations, deleted ones too, with their places where
    this release has any; who wrote in the last minute; and the last deadlock of two transactions. slurmdbd repeats the
    statement that was refused, while all before it is rolled back (mysql_common.c, `_mysql_query_internal`).
    """
    table = f"{cluster.cluster}_assoc_table"
    known = cluster.sql(f"SHOW COLUMNS FROM {table}").split()
    columns = ", ".join(name for name in ("id_assoc", "user", "deleted", "lft", "rgt") if name in known)
    roots = cluster.sql(f"SELECT {columns} FROM {table} WHERE acct='root'")
    writes = cluster.sql(
        "SELECT timestamp, actor, action, LEFT(name, 200), LEFT(info, 200) FROM txn_table"
        " WHERE timestamp > UNIX_TIMESTAMP() - 60"
    )
    _, _, deadlock = cluster.sql("SHOW ENGINE INNODB STATUS").partition("LATEST DETECTED DEADLOCK")
    deadlock, _, _ = deadlock.partition("\nTRANSACTIONS\n")
    return f"{columns} of root:\n{roots}writes of the last minute:\n{writes}the last deadlock:{deadlock or ' none'}"


def remove_extra(cluster: Cluster, now: Records, built_in: Records) -> None:
    """Remove what was not there at the start; users first: an account that is a default cannot go."""
    if not now["user"] >= built_in["user"] or not now["association"] >= built_in["association"]:
        cluster.ask(
            *("sacctmgr", "-i", "modify", "user", "where", f"name={BUILT_IN_USER}", "set"),
            *(f"defaultaccount={BUILT_IN_ACCOUNT}", "adminlevel=administrator"),
        )
    for kind in ("user", "account", "qos", "cluster"):
        names_now, names_built_in = ({row[0] for row in records[kind]} for records in (now, built_in))
        remove(cluster, kind, sorted(names_now - names_built_in))
