# SPDX-License-Identifier: MIT
"""From the output of sacctmgr, squeue and scontrol to values: parsed whole, or ParseError.

Every command names its columns, so that no release's default layout matters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agent.core.account_names import fold
from agent.core.errors import ParseError
from agent.core.model import Account, Association, MemberQos
from backends.command_output import is_whole, lines

ASSOCIATION_COLUMNS = (
    "cluster", "account", "user", "partition", "parentname", "grptresmins", "grpsubmit", "qos", "defaultqos",
    "maxtresmins",
)  # fmt: skip
SHOW_ASSOCIATIONS = "sacctmgr show assoc"
QOS_COLUMNS = ("name", "grptresmins", "description")
QOS_USER_COLUMNS = ("cluster", "account", "qos", "defaultqos")
SHOW_QOS = "sacctmgr show qos"

# 22.05 has no letter above P: exabytes end with "?".
_QUANTITY = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,20}))?([KMGTP?]?)")
_SCALE = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "?": 6}
_MEGABYTE_EXPONENT = 2
_PARTITION_NAME = re.compile(r"PartitionName=(\S+)")
_QOS_RECORD = re.compile(r"QOS=(\S+)\([0-9]+\) .*?GrpTRESMins=(\S*)")
_ASSOC_MGR_FIELD = re.compile(r"(?:^| )(ClusterName|Account|UserName|Partition|GrpTRESMins)=(\S*)")
_USED_TRES = re.compile(r"([^=,\s]+)=(?:N|[0-9]+)\(([0-9]+)\)")


@dataclass(frozen=True, slots=True)
class Tree:
    """The accounts and associations of the clusters that were listed."""

    clusters: frozenset[str]
    accounts: Mapping[str, Account]
    associations: frozenset[Association]
    user_limits: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)
    member_qos: Mapping[Association, MemberQos] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Qos:
    """A QoS: what it says of itself, and its own GrpTRESMins."""

    description: str
    limits: Mapping[str, int]


def associations(stdout: str) -> Tree:
    """Parse `show assoc` with ASSOCIATION_COLUMNS and own values only (WOPLimits).

    The root account is always there: without it, nothing was read. Raises ParseError.
    """
    clusters: set[str] = set()
    accounts: dict[str, Account] = {}
    found: set[Association] = set()
    user_limits: dict[tuple[str, str], Mapping[str, int]] = {}
    member_qos: dict[Association, MemberQos] = {}
    for row in rows(SHOW_ASSOCIATIONS, stdout, len(ASSOCIATION_COLUMNS)):
        cluster, account, user, partition, parent, limits, submit, qos, default_qos, per_job = row
        clusters.add(cluster)
        own, default_qos = _qos_names(qos), fold(default_qos)
        if user:
            partition = fold(partition)
            found.add(Association(account, user, partition))
            if own or default_qos:
                member_qos[Association(account, user, partition)] = MemberQos(own, default_qos)
            if per_job:
                user_limits[account, user] = tres_limits(per_job)
            continue
        accounts[account] = Account(
            name=account,
            parent=parent or None,
            limits=tres_limits(limits),
            qos=own,
            default_qos=default_qos,
            submit_limit=_submit_limit(submit),
        )
    if "root" not in accounts:
        raise ParseError(SHOW_ASSOCIATIONS, "", "the root account is missing, the output is not complete")
    for above in accounts.values():
        if above.parent and above.parent not in accounts:
            raise ParseError(SHOW_ASSOCIATIONS, above.name, f"its parent {above.parent} is missing")
    for member in found:
        if member.account not in accounts:
            raise ParseError(SHOW_ASSOCIATIONS, member.user, f"its account {member.account} is missing")
    return Tree(frozenset(clusters), accounts, frozenset(found), user_limits, member_qos)


def users_of_qos(stdout: str) -> dict[str, list[str]]:
    """Parse `show assoc` with QOS_USER_COLUMNS: the accounts, with their cluster, by QoS. Raises ParseError."""
    found: dict[str, list[str]] = {}
    for cluster, account, names, default in rows("sacctmgr show assoc", stdout, len(QOS_USER_COLUMNS)):
        for name in {*map(fold, names.split(",")), fold(default)} - {""}:
            found.setdefault(name, []).append(f"account {account} on cluster {cluster}")
    return found


def qos(stdout: str) -> dict[str, Qos]:
    """Parse `show qos` with QOS_COLUMNS; a description may hold the separator. Raises ParseError."""
    found = {}
    for line in lines(SHOW_QOS, stdout):
        columns = line.split("|", len(QOS_COLUMNS) - 1)
        if len(columns) != len(QOS_COLUMNS):
            raise ParseError(
                SHOW_QOS, line, f"{len(QOS_COLUMNS)} columns were asked for, {len(columns)} came"
            )
        name, limits, description = columns
        found[fold(name)] = Qos(description, tres_limits(limits, SHOW_QOS))
    if not found:
        raise ParseError(SHOW_QOS, "", "every cluster has the QoS normal")
    return found


def partitions(stdout: str) -> frozenset[str]:
    """Parse `scontrol --oneliner show partition`: the names in the spelling of associations, which sacctmgr folds
    (22.05); slurm.conf and jobs may have capitals. Raises ParseError.
    """
    command = "scontrol show partition"
    found = set()
    for line in lines(command, stdout):
        name = _PARTITION_NAME.match(line)
        if name is None:
            raise ParseError(command, line, "a line should begin with PartitionName=")
        found.add(fold(name[1]))
    return frozenset(found)


def _qos_names(text: str) -> frozenset[str]:
    return frozenset(map(fold, filter(None, text.split(","))))


def _submit_limit(text: str) -> int | None:
    """Parse GrpSubmitJobs, empty or N where there is none. Raises ParseError."""
    if text in ("", "N"):
        return None
    if not is_whole(text):
        raise ParseError(SHOW_ASSOCIATIONS, text, "GrpSubmit should be a number of jobs")
    return int(text)


def tres_limits(text: str, command: str = SHOW_ASSOCIATIONS) -> dict[str, int]:
    """Parse `cpu=600000,mem=2000M` to {"cpu": 600000, "mem": 2000}; memory is in MiB. Raises ParseError."""
    limits = {}
    for pair in filter(None, text.split(",")):
        tres, equals, value = pair.partition("=")
        quantity = _QUANTITY.fullmatch(value)
        if not (tres and equals and quantity):
            raise ParseError(command, pair, "a limit should read like cpu=100 or mem=2G")
        whole, fraction, unit = quantity.groups()
        exponent = _SCALE[unit]
        if tres == "mem":
            exponent = exponent - _MEGABYTE_EXPONENT if unit else 0
        if fraction:
            limits[tres] = int(float(f"{whole}.{fraction}") * 1024**exponent)
        else:
            limits[tres] = int(whole) << 10 * exponent if exponent >= 0 else int(whole) >> -10 * exponent
    return limits


def tres_names(stdout: str) -> frozenset[str]:
    """Parse `list tres format=type,name` to names: `cpu`, `gres/gpu`. Raises ParseError."""
    names = {f"{kind}/{name}" if name else kind for kind, name in rows("sacctmgr list tres", stdout, 2)}
    if "cpu" not in names:
        raise ParseError("sacctmgr list tres", stdout[:80], "every cluster has the TRES cpu")
    return frozenset(names)


def default_accounts(stdout: str) -> dict[str, str]:
    """Parse `show user format=user,defaultaccount`: every user listed, with "" where there is no default account.

    Output that is cut at the end of a line looks whole: only the tree tells who had to be in it. Raises ParseError.
    """
    return dict(rows("sacctmgr show user", stdout, 2))


def job_counts(stdout: str) -> Counter[tuple[str, str]]:
    """Parse `squeue -o "%a|%u"`: active jobs by account and user. Raises ParseError."""
    return Counter((fold(account), fold(user)) for account, user in rows("squeue", stdout, 2))


def names(command: str, stdout: str) -> tuple[str, ...]:
    """Parse a list of one column (`list cluster`, `show qos`), which has no separator. Raises ParseError."""
    return tuple(line.split("|")[0].strip() for line in lines(command, stdout))


def limit_usage(stdout: str, cluster: str = "") -> dict[str, dict[str, int]]:
    """Parse `scontrol --oneliner show assoc_mgr`: what is used of GrpTRESMins by account and TRES, in TRES-minutes.

    `GrpTRESMins=cpu=600(42)` shows the limit and what is used (22.05). Only rows of accounts count: what their users
    use is in them already. Rows of other clusters are left out. Raises ParseError.
    """
    found: dict[str, dict[str, int]] = {}
    for line in stdout.split("\n"):
        row = dict(_ASSOC_MGR_FIELD.findall(line))
        if not row.get("Account") or row.get("UserName") or row.get("Partition"):
            continue
        if cluster and row.get("ClusterName", "").lower() != cluster.lower():
            continue
        found[row["Account"]] = _used(row.get("GrpTRESMins", ""), line)
    return found


def qos_usage(stdout: str) -> dict[str, dict[str, int]]:
    """Parse the QoS of `scontrol --oneliner show assoc_mgr flags=qos`: what is used of GrpTRESMins by QoS and TRES, in
    TRES-minutes. Raises ParseError.
    """
    records = ((_QOS_RECORD.match(line), line) for line in stdout.split("\n"))
    return {record[1]: _used(record[2], line) for record, line in records if record}


def _used(limits: str, line: str) -> dict[str, int]:
    used = _USED_TRES.findall(limits)
    if not all(is_whole(minutes) for _, minutes in used):
        raise ParseError("scontrol show assoc_mgr", line, "no TRES can have so many minutes")
    return {tres: int(minutes) for tres, minutes in used}


def rows(command: str, stdout: str, columns: int) -> Iterator[list[str]]:
    """Yield the columns of each line of a command that names them. Raises ParseError."""
    for line in lines(command, stdout):
        row = line.split("|")
        if len(row) != columns:
            raise ParseError(command, line, f"{columns} columns were asked for, {len(row)} came")
        yield row
