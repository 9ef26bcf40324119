# SPDX-License-Identifier: MIT
"""From the output of sacctmgr, squeue and scontrol to values: parsed whole, or ParseError.

Every command names its columns, so that no release's default layout matters.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from sys import intern
from typing import TypeVar

from agent.core.account_names import fold
from agent.core.associations import Association, Associations
from agent.core.errors import ParseError
from agent.core.model import Account, MemberQos
from backends.command_output import is_whole, lines

ASSOCIATION_COLUMNS = (
    "cluster", "account", "user", "partition", "parentname", "grptresmins", "grpsubmit", "qos", "defaultqos",
    "maxtresmins",
)  # fmt: skip
# By these and `grpsubmit` a default account is known that was put aside (`detour`). None is where the tree is read by
# parents.
MARK_COLUMNS = ("maxsubmit", "share")
PUT_ASIDE = ["0", "0", "parent"]
# Where a row stands in the tree, from which its parent follows: `parentname` costs a query for each account (22.05).
PLACED_COLUMNS = (*ASSOCIATION_COLUMNS, *MARK_COLUMNS, "lft", "rgt")
# From 23.11 on a row has no place but the names of all accounts above it: `/customer/project/`.
LINEAGE_COLUMNS = (*ASSOCIATION_COLUMNS, *MARK_COLUMNS, "lineage")
DEFAULT_COLUMNS = ("account", "user")
SHOW_ASSOCIATIONS = "sacctmgr show assoc"
# The account that every tree has: an answer without it is not whole.
ROOT = "root"
SHOW_DEFAULTS = "sacctmgr show assoc onlydefaults"
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
Result = TypeVar("Result")
_USED_TRES = re.compile(r"([^=,\s]+)=(?:N|[0-9]+)\(([0-9]+)\)")


@dataclass(frozen=True, slots=True)
class Tree:
    """The accounts and associations of the clusters that were listed."""

    clusters: frozenset[str]
    accounts: Mapping[str, Account]
    associations: Associations
    user_limits: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)
    member_qos: Mapping[Association, MemberQos] = field(default_factory=dict)
    closed: frozenset[Association] = frozenset()
    put_aside: frozenset[Association] = frozenset()


@dataclass(frozen=True, slots=True)
class Qos:
    """A QoS: what it says of itself, and its own GrpTRESMins."""

    description: str
    limits: Mapping[str, int]


class Misplaced(ParseError):
    """The rows of a tree contradict each other in where they are: no parents follow from that."""


class Unfiltered(ParseError):
    """Rows were listed that were not asked for: the program does not know the option that excludes them."""


def associations(
    answer: str | Iterable[str], columns: tuple[str, ...] = ASSOCIATION_COLUMNS, *, whole: bool = True
) -> Tree:
    """Parse `show assoc` with ASSOCIATION_COLUMNS and own values only (WOPLimits); or with PLACED_COLUMNS or
    LINEAGE_COLUMNS and without parents (WOPInfo), which follow from these. Where it is not `whole`, parents may be
    missing.

    The root account is always there: without it, nothing was read. Names and values that are the same are kept once.
    Raises ParseError; Misplaced where no parents follow from where the rows are.
    """
    clusters: set[str] = set()
    accounts: dict[str, Account] = {}
    users: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    user_limits: dict[tuple[str, str], Mapping[str, int]] = {}
    member_qos: dict[Association, MemberQos] = {}
    closed: list[Association] = []
    put_aside: list[Association] = []
    kinds: dict[tuple[str, ...], type[_Places | _Lineages]] = {
        PLACED_COLUMNS: _Places,
        LINEAGE_COLUMNS: _Lineages,
    }
    places = kinds[columns]() if columns in kinds else None
    limits_of, qos_of = _once(tres_limits), _once(_qos_names)
    for row in rows(SHOW_ASSOCIATIONS, answer, len(columns)):
        cluster, account, user, partition, parent, limits, submit, qos, default_qos, per_job, *place = row
        account, parent = intern(account), intern(parent)
        clusters.add(cluster)
        own, default_qos = qos_of(qos), fold(default_qos)
        if places and len(clusters) == 1:
            places.add(account, user, partition, *place[len(MARK_COLUMNS) :])
        if user:
            user, partition = intern(user), intern(fold(partition))
            users[partition][account].append(user)
            if own or default_qos:
                member_qos[Association(account, user, partition)] = MemberQos(own, default_qos)
            if per_job:
                user_limits[account, user] = limits_of(per_job)
            closed += [Association(account, user, partition)] * (submit == "0")
            is_aside = [submit, *place[: len(MARK_COLUMNS)]] == PUT_ASIDE
            put_aside += [Association(account, user, partition)] * is_aside
            continue
        accounts[account] = Account(
            name=account,
            parent=parent or None,
            limits=limits_of(limits),
            qos=own,
            default_qos=default_qos,
            submit_limit=_submit_limit(submit),
        )
    if ROOT not in accounts:
        raise ParseError(SHOW_ASSOCIATIONS, "", "the root account is missing, the output is not complete")
    # Each cluster has a tree of its own, and its own places.
    if places and len(clusters) == 1:
        for name, above_it in places.parents().items():
            accounts[name] = replace(accounts[name], parent=above_it)
    for above in accounts.values():
        if whole and above.parent and above.parent not in accounts:
            raise ParseError(SHOW_ASSOCIATIONS, above.name, f"its parent {above.parent} is missing")
    for inside in users.values():
        for account in inside.keys() - accounts.keys():
            raise ParseError(SHOW_ASSOCIATIONS, inside[account][0], f"its account {account} is missing")
    return Tree(
        frozenset(clusters),
        accounts,
        Associations.of_users(users),
        user_limits,
        member_qos,
        frozenset(closed),
        frozenset(put_aside),
    )


class _Places:
    """The places of rows: an account reaches from `left` to `right`, and everything in it lies between these."""

    def __init__(self) -> None:
        self._accounts: list[tuple[int, int, str]] = []
        self._of_users: list[str] = []
        self._users = array("q")

    def add(self, account: str, user: str, _partition: str, left: str, right: str) -> None:
        """Note the place of a row. Raises Misplaced."""
        if not (is_whole(left) and is_whole(right) and int(left) < int(right) < 1 << 62):
            raise Misplaced(
                SHOW_ASSOCIATIONS, account, f"it has no place in the tree: {left or None} to {right or None}"
            )
        if user:
            self._of_users.append(account)
            self._users.append(int(left))
        else:
            self._accounts.append((int(left), int(right), account))

    def parents(self) -> dict[str, str | None]:
        """Return the parent of each account. Raises Misplaced where accounts overlap, where there is more than one
        tree, or where a user is elsewhere than the own account.
        """
        found: dict[str, str | None] = {}
        reach: dict[str, tuple[int, int]] = {}
        above: list[tuple[int, str]] = []
        for left, right, account in sorted(self._accounts):
            while above and above[-1][0] < left:
                above.pop()
            if (above and right >= above[-1][0]) or (not above and account != ROOT) or account in found:
                around = above[-1][1] if above else "no account"
                raise Misplaced(
                    SHOW_ASSOCIATIONS, account, f"its place {left} to {right} is not within {around}"
                )
            found[account] = above[-1][1] if above else None
            reach[account] = left, right
            above.append((right, account))
        for account, left in zip(self._of_users, self._users, strict=True):
            first, last = reach.get(account, (left, left))
            if not first <= left <= last:
                raise Misplaced(
                    SHOW_ASSOCIATIONS, account, f"a user of it is at {left}, which is not within it"
                )
        return found


class _Lineages:
    """The accounts above each row, of which the last counts: an account ends with its own name, a user's row goes on
    with `0-USER/` and, where it has one, the partition. Root is not named. Accounts below one that was moved keep the
    lineage from before (24.11; not 26.05), in which the last account above is right all the same.
    """

    def __init__(self) -> None:
        self._parents: dict[str, str | None] = {}

    def add(self, account: str, user: str, partition: str, lineage: str) -> None:
        """Note the lineage of a row. Raises Misplaced."""
        *above, own = (
            lineage.removeprefix("/")
            .removesuffix(f"0-{user}/{partition and f'{partition}/'}" if user else "")
            .rstrip("/")
            .split("/")
        )
        is_again = not user and account in self._parents
        if own != ("" if account == ROOT else account) or "" in above or is_again:
            raise Misplaced(SHOW_ASSOCIATIONS, account, f"it has the lineage {lineage or None}")
        if not user:
            self._parents[account] = None if account == ROOT else intern(above[-1]) if above else ROOT

    def parents(self) -> dict[str, str | None]:
        """Return the parent of each account. Raises Misplaced where one is not below root."""
        below_root = {ROOT}
        for first in self._parents:
            way: dict[str, None] = {}
            account: str | None = first
            while account not in below_root:
                if account is None or account not in self._parents or account in way:
                    raise Misplaced(
                        SHOW_ASSOCIATIONS, first, f"its lineage does not lead to root by {account}"
                    )
                way[account] = None
                account = self._parents[account]
            below_root.update(way)
        return self._parents


def _once(read: Callable[[str], Result]) -> Callable[[str], Result]:
    """Return a reader that returns one and the same value for the same text."""
    values: dict[str, Result] = {}

    def value_of(text: str) -> Result:
        if text not in values:
            values[text] = read(text)
        return values[text]

    return value_of


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


def default_accounts(answer: str | Iterable[str]) -> dict[str, str]:
    """Parse `show user format=user,defaultaccount`: every user listed, with "" where there is no default account.

    Output that is cut at the end of a line looks whole: the tree says who had to be in it. Raises ParseError.
    """
    return dict(rows("sacctmgr show user", answer, 2))


def default_associations(answer: str | Iterable[str]) -> dict[str, str]:
    """Parse `show assoc onlydefaults` with DEFAULT_COLUMNS: the default account of each user who has one. Raises
    ParseError; Unfiltered where others are listed as well.
    """
    found: dict[str, str] = {}
    for account, user in rows(SHOW_DEFAULTS, answer, len(DEFAULT_COLUMNS)):
        # On several partitions a user has several rows of one account.
        if not user or found.setdefault(intern(user), intern(account)) != account:
            raise Unfiltered(SHOW_DEFAULTS, account, "it is no user's default account")
    return found


def job_counts(stdout: str) -> Counter[tuple[str, str]]:
    """Parse `squeue -o "%a|%u"`: active jobs by account and user. Raises ParseError."""
    return Counter((fold(account), fold(user)) for account, user in rows("squeue", stdout, 2))


def clusters(stdout: str) -> dict[str, int]:
    """Parse `list cluster format=cluster,rpc`: each with the protocol of its slurmctld, 0 where none has registered
    yet. Raises ParseError.
    """
    found = rows("sacctmgr list cluster", stdout, 2)
    return {name: int(protocol) if protocol.isdecimal() else 0 for name, protocol in found}


def limit_usage(stdout: str, cluster: str = "") -> dict[str, dict[str, int]]:
    """Parse `scontrol --oneliner show assoc_mgr`: what is used of GrpTRESMins by account and TRES, in TRES-minutes.

    `GrpTRESMins=cpu=600(42)` shows the limit and what is used (22.05). Only rows of accounts count: what their users
    use is in them already. Rows of other clusters are skipped. Raises ParseError.
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


def rows(command: str, answer: str | Iterable[str], columns: int) -> Iterator[list[str]]:
    """Yield the columns of each line of a command that names them, from all of its output or from whole lines of it.
    Raises ParseError.
    """
    found = lines(command, answer) if isinstance(answer, str) else filter(str.strip, answer)
    for line in found:
        row = line.split("|")
        if len(row) != columns:
            raise ParseError(command, line, f"{columns} columns were asked for, {len(row)} came")
        yield row
