# SPDX-License-Identifier: MIT
"""From actions to requests, pure: which actions share one, and what a row is written as.

slurmrestd adds a row that a change names and that is not there, and takes an empty name for all of them. So nothing
is written about what the rows do not hold, and no name is empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.core.actions import (
    AddMember,
    AllowMember,
    AllowSubmission,
    BlockMember,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    CreateQos,
    DeleteAccount,
    DeleteQos,
    LimitsAction,
    MoveAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetQos,
    SetUserLimits,
)
from agent.core.association_actions import KeepDefaultAccount, RemovePartition, ResetQosUsage, SetMemberQos
from agent.core.errors import BackendError, PlanRefused
from agent.core.periodic import LimitType
from agent.core.periodic_actions import SetFairshare, SetPeriodicLimits
from backends.hierarchy import levels
from backends.slurm import qos_values
from backends.slurm.allowed_names import checked, free_text
from backends.slurm.grouping import grouped, portioned, products
from backends.slurm.rest.client import RequestRefused
from backends.slurm.rest.rows import (
    ASSOCIATIONS,
    GROUP_MINUTES,
    GROUP_TRES,
    JOB_MINUTES,
    SHARE_OF_PARENT,
    UNLIMITED,
    Key,
    Row,
    Rows,
)

# An empty name means all of them: the others would be changed as well.
NO_BASE_ROW = (
    "slurmrestd cannot end the association of {user} in {account} that is good for all partitions, and leave the "
    "others, and this host has no sacctmgr (slurm_bin_path). End it by hand: sacctmgr delete user where name={user} "
    "account={account} cluster={cluster} partition=''"
)
# Fields that hold a name of each kind, or nothing.
HOLDERS = {
    "parent": "account",
    "default_account": "account",
    "user": "user",
    "default_qos": "QoS",
    "default": "QoS",
}
NONE_AT_ALL = {"set": True, "infinite": False, "number": 0}
LISTS = {
    LimitType.GRP_TRES_MINS: GROUP_MINUTES,
    LimitType.MAX_TRES_MINS: JOB_MINUTES,
    LimitType.GRP_TRES: GROUP_TRES,
}

# The row as it shall be, and what else is written of it.
Change = tuple[Row, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Request:
    """One change."""

    actions: tuple[ClusterAction, ...]
    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    body: Any = None
    # What it makes of the rows.
    rows: tuple[Row, ...] = ()
    # Rows that are no more after it.
    gone: frozenset[Key] = frozenset()


def is_for_commands(action: ClusterAction) -> bool:
    """Return whether an action has no request, and a command of SLURM."""
    match action:
        case RemovePartition():
            return not action.partition
        case SetLimits():
            return action.on_qos
    return isinstance(action, ResetQosUsage)


class RequestBuilder:
    """Turns actions into the requests of one cluster."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def check(self, action: ClusterAction) -> None:
        """Raise PlanRefused for a name that SLURM cannot take, BackendError for an action without a request."""
        if type(action) not in SUPPORTED or (isinstance(action, SetLimits) and action.on_qos):
            raise BackendError(f"slurmrestd has no request for {action.verb}")
        if isinstance(action, RemovePartition) and not action.partition:
            words = NO_BASE_ROW.format(user=action.user, account=action.account, cluster=self._cluster)
            raise PlanRefused(words)
        for kind, name in _names(action):
            checked(kind, name)
        if isinstance(action, CreateQos):
            qos_values.body(action, self._cluster)

    def requests(self, actions: Sequence[ClusterAction], rows: Rows) -> list[Request]:
        """Return the requests for actions of one kind, in their order. What is not there needs none."""
        return BUILDERS[type(actions[0])](self, actions, rows) if actions else []

    def refusal(self, action: ClusterAction, rows: Rows) -> BackendError | None:
        """Return why an action cannot be done on a cluster with these rows."""
        needed = {CreateAccount: "parent", AddMember: "account", MoveAccount: "after"}.get(type(action))
        name = getattr(action, needed) if needed else ""
        if name and rows.account(name) is None:
            return RequestRefused(f"there is no account {name} on cluster {self._cluster}")
        return None

    def create_accounts(self, actions: Sequence[CreateAccount], rows: Rows) -> list[Request]:
        """Return one request for all accounts of a level that differ in nothing but their names."""
        found = []
        for level in levels(actions, {a.account: a.parent for a in actions}):
            texts = grouped(
                level,
                lambda a: (
                    a.parent,
                    free_text(a.description, a.account),
                    free_text(a.organization, a.account),
                ),
            )
            for (parent, description, organization), group in texts.items():
                new = [a for a in group if rows.account(a.account) is None]
                for some in portioned([new]):
                    condition = {
                        "accounts": [a.account for a in some],
                        "clusters": [self._cluster],
                        "association": {"parent": parent},
                    }
                    account = {"description": description, "organization": organization}
                    found.append(Request(
                        tuple(some), "POST", "slurmdb/accounts_association/",
                        body={"association_condition": condition, "account": account},
                        rows=tuple(Row(a.account, parent=parent) for a in some),
                    ))  # fmt: skip
        return found

    def change_rows(
        self,
        actions: Sequence[ClusterAction],
        rows: Rows,
        change: Callable[[Any, Row], Change],
    ) -> list[Request]:
        """Return one request for the rows of all these actions: of a user where an action names one."""
        found = []
        for some in portioned([actions]):
            named, changed, bodies = [], [], []
            for action in some:
                user = getattr(action, "user", "")
                for row in rows.of_user(action.account, user):
                    new, changes = change(action, row)
                    named.append(action)
                    changed.append(new)
                    bodies.append(new.body(self._cluster, **changes))
            if bodies:
                found.append(Request(
                    tuple(dict.fromkeys(named)), "POST", ASSOCIATIONS, body={"associations": bodies},
                    rows=tuple(changed),
                ))  # fmt: skip
        return found

    def set_qos(self, actions: Sequence[SetQos], rows: Rows) -> list[Request]:
        """Return requests that give accounts their QoS. SLURM refuses a default that members' own QoS lack, where they
        have no default of their own: it is added to these first.
        """
        found = []
        for some in portioned([[action for action in actions if rows.account(action.account)]]):
            accounts = {action.account: action for action in some}
            changed = [
                replace(row, qos=(*row.qos, accounts[row.account].default))
                for row in rows.by_key.values()
                if row.user and row.account in accounts and row.lacks(accounts[row.account].default)
            ]
            bodies = [row.body(self._cluster) for row in changed]
            for action in some:
                for row in rows.of_user(action.account, ""):
                    new, changes = _qos_of(action, row)
                    changed.append(new)
                    bodies.append(new.body(self._cluster, **changes))
            if bodies:
                found.append(Request(
                    tuple(some), "POST", ASSOCIATIONS, body={"associations": bodies}, rows=tuple(changed)
                ))  # fmt: skip
        return found

    def add_members(self, actions: Sequence[AddMember], rows: Rows) -> list[Request]:
        """Return one request per set of users: accounts with the same new users, partitions and QoS share it."""
        per_account = grouped(
            actions, lambda a: (a.account, a.default_account, a.partitions, a.qos, a.default_qos)
        )
        merged: dict[Any, list[AddMember]] = defaultdict(list)
        for group in portioned(per_account.values()):
            first = group[0]
            users = tuple(sorted({a.user for a in group}))
            merged[users, first.default_account, first.partitions, first.qos, first.default_qos] += group
        return [
            self._add(group, list(users), default, rows) for (users, default, *_), group in merged.items()
        ]

    def _add(self, group: Sequence[AddMember], users: list[str], default: str, rows: Rows) -> Request:
        first = group[0]
        accounts = list(dict.fromkeys(a.account for a in group))
        # A default account is one of the user's own: sacctmgr makes that association, too.
        if default and default not in accounts and any(not rows.of_user(default, user) for user in users):
            accounts.insert(0, default)
        association: dict[str, Any] = {"fairshare": SHARE_OF_PARENT}
        if first.qos:
            association["qoslevel"] = list(first.qos)
        if first.default_qos:
            association["defaultqos"] = first.default_qos
        condition = {
            "users": users,
            "accounts": accounts,
            "clusters": [self._cluster],
            "association": association,
            **({"partitions": list(first.partitions)} if first.partitions else {}),
        }
        made = [
            Row(account, user, partition, qos=first.qos, default_qos=first.default_qos)
            for account in accounts
            for user in users
            for partition in first.partitions or ("",)
        ]
        return Request(
            tuple(group), "POST", "slurmdb/users_association/",
            body={"association_condition": condition, "user": {"defaultaccount": default} if default else {}},
            rows=tuple(row for row in made if row.key not in rows.by_key),
        )  # fmt: skip

    def move_defaults(
        self, actions: Sequence[MoveDefaultAccount | KeepDefaultAccount], rows: Rows
    ) -> list[Request]:
        there = [a for a in actions if rows.of_user(a.account, a.user)]
        return [
            Request(
                tuple(some), "POST", "slurmdb/users/",
                body={"users": [{"name": a.user, "default": {"account": a.account}} for a in some]},
            )
            for some in portioned([there])
        ]  # fmt: skip

    def remove_members(self, actions: Sequence[RemoveMember], rows: Rows) -> list[Request]:
        """Return requests that end associations: those that are no user's default first, as in sacctmgr's case."""
        found = []
        for default in (False, True):
            leavers = [
                a for a in actions if bool(a.is_default) is default and rows.of_user(a.account, a.user)
            ]
            for group in products(leavers):
                users = sorted({a.user for a in group})
                accounts = sorted({a.account for a in group})
                gone = {row.key for a in group for row in rows.of_user(a.account, a.user)}
                params = (*self._where(accounts), ("user", ",".join(users)))
                found.append(Request(tuple(group), "DELETE", ASSOCIATIONS, params, gone=frozenset(gone)))
        return found

    def remove_partitions(self, actions: Sequence[RemovePartition], rows: Rows) -> list[Request]:
        """Return requests that end associations with named partitions: one for all users of an account who lose one."""
        found = []
        there = [a for a in actions if (a.account, a.user, a.partition) in rows.folded]
        for group in grouped(there, lambda a: (a.account, a.partition)).values():
            for some in portioned([group]):
                users = ",".join(sorted({a.user for a in some}))
                params = (*self._where([some[0].account]), ("user", users), ("partition", some[0].partition))
                gone = frozenset(rows.folded[a.account, a.user, a.partition] for a in some)
                found.append(Request(tuple(some), "DELETE", ASSOCIATIONS, params, gone=gone))
        return found

    def delete_accounts(self, actions: Sequence[DeleteAccount], rows: Rows) -> list[Request]:
        """Return requests that end all rows of accounts on this cluster, leaves before parents."""
        found = []
        for level in reversed(levels(actions, {a.account: a.parent for a in actions})):
            for some in portioned([[a for a in level if rows.account(a.account)]]):
                names = [a.account for a in some]
                gone = frozenset(key for key in rows.by_key if key[0] in names)
                found.append(Request(tuple(some), "DELETE", ASSOCIATIONS, self._where(names), gone=gone))
        return found

    def create_qos(self, actions: Sequence[CreateQos]) -> list[Request]:
        bodies = ((a, {"qos": [qos_values.body(a, self._cluster)]}) for a in actions)
        return [Request((a,), "POST", "slurmdb/qos/", body=body) for a, body in bodies]

    def _where(self, accounts: Iterable[str]) -> tuple[tuple[str, str], ...]:
        return (("account", ",".join(accounts)), ("cluster", self._cluster))


def _submission(limit: Mapping[str, Any]) -> Callable[[Any, Row], Change]:
    return lambda _, row: (row, {"jobs": {"per": {"submitted": limit}}})


def _member_submission(limit: Mapping[str, Any]) -> Callable[[Any, Row], Change]:
    return lambda _, row: (row, {"jobs": {"total": limit}})


def _qos_of(action: SetQos | SetMemberQos, row: Row) -> Change:
    new = replace(row, qos=tuple(action.after), default_qos=action.default)
    return new, {"default": {"qos": action.default}}


ROW_CHANGES: Mapping[type[ClusterAction], Callable[[Any, Row], Change]] = {
    MoveAccount: lambda a, row: (replace(row, parent=a.after), {"parent_account": a.after}),
    SetMemberQos: _qos_of,
    SetLimits: lambda a, row: (row.with_limits(GROUP_MINUTES, a.after), {}),
    SetUserLimits: lambda a, row: (row.with_limits(JOB_MINUTES, a.after), {}),
    AllowSubmission: _submission(UNLIMITED),
    BlockSubmission: _submission(NONE_AT_ALL),
    AllowMember: _member_submission(UNLIMITED),
    BlockMember: _member_submission(NONE_AT_ALL),
    SetFairshare: lambda a, row: (replace(row, share=a.after), {"shares_raw": a.after}),
    SetPeriodicLimits: lambda a, row: (row.with_limits(LISTS[LimitType(a.limit_type)], a.after), {}),
}


def _changing(kind: type[ClusterAction]) -> Callable[[RequestBuilder, Any, Rows], list[Request]]:
    return lambda builder, actions, rows: builder.change_rows(actions, rows, ROW_CHANGES[kind])


def _names(action: ClusterAction) -> Iterator[tuple[str, str]]:
    """Yield the names in an action, each after its kind. What may be empty, and is, is none."""
    yield "account", action.account
    match action:
        case MoveAccount():
            yield "account", action.after
        case RemovePartition():
            yield "partition", action.partition
        case SetQos() | SetMemberQos():
            yield from (("QoS", name) for name in action.after)
        case LimitsAction():
            yield from (("TRES", tres) for tres, _ in action.after)
    yield from ((kind, name) for holder, kind in HOLDERS.items() if (name := getattr(action, holder, "")))
    yield from (("partition", name) for name in getattr(action, "partitions", ()))
    yield from (("QoS", name) for name in getattr(action, "qos", ()))


BUILDERS: Mapping[type[ClusterAction], Callable[[RequestBuilder, Any, Rows], list[Request]]] = {
    **{kind: _changing(kind) for kind in ROW_CHANGES},
    CreateAccount: RequestBuilder.create_accounts,
    SetQos: RequestBuilder.set_qos,
    AddMember: RequestBuilder.add_members,
    MoveDefaultAccount: RequestBuilder.move_defaults,
    KeepDefaultAccount: RequestBuilder.move_defaults,
    RemovePartition: RequestBuilder.remove_partitions,
    RemoveMember: RequestBuilder.remove_members,
    DeleteAccount: RequestBuilder.delete_accounts,
    CreateQos: lambda builder, actions, _rows: builder.create_qos(actions),
    DeleteQos: lambda _, actions, _rows: [
        Request((a,), "DELETE", f"slurmdb/qos/{checked('QoS', a.account)}") for a in actions
    ],
}
SUPPORTED = frozenset({*BUILDERS, CancelJobs})


def accounts_of(actions: Iterable[ClusterAction]) -> frozenset[str]:
    """Return the accounts whose rows the requests of these actions go by."""
    return frozenset(name for action in actions for kind, name in _names(action) if kind == "account")


def in_kinds(actions: Iterable[ClusterAction]) -> Iterator[list[ClusterAction]]:
    """Yield the actions of each kind together, each action once, in the order of their phases."""
    by_kind: dict[type[ClusterAction], list[ClusterAction]] = defaultdict(list)
    for action in dict.fromkeys(actions):
        by_kind[type(action)].append(action)
    for kind in sorted(by_kind, key=lambda kind: kind.phase):
        yield by_kind[kind]
