# SPDX-License-Identifier: MIT
"""From actions to argv lists, pure: which actions share one command, and in which order commands run.

A committing sacctmgr call costs about 0.65 s whether it names one user or a hundred (22.05), so actions
that differ only in names are merged. Every name is checked here, before it can reach a command.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
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
    MoveAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetQos,
    SetUserLimits,
)
from agent.core.association_actions import (
    KeepDefaultAccount,
    RemovePartition,
    ResetQosUsage,
    SetMemberQos,
)
from agent.core.associations import Association
from agent.core.errors import BackendError
from agent.core.model import MemberQos
from backends.hierarchy import levels
from backends.slurm.allowed_names import checked, free_text
from backends.slurm.grouping import grouped, portioned, products, removals

UserAction = (
    AddMember
    | RemoveMember
    | MoveDefaultAccount
    | SetUserLimits
    | BlockMember
    | AllowMember
    | SetMemberQos
    | KeepDefaultAccount
    | RemovePartition
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Actions that one command carries out."""

    actions: tuple[ClusterAction, ...]
    # What follows `sacctmgr -i`, or `scancel`.
    argv: tuple[str, ...]
    program: str = "sacctmgr"


class CommandBuilder:
    """Turns actions into the commands of one cluster; without a name it is the one of slurm.conf."""

    def __init__(self, cluster: str = "", seen_cluster: Callable[[], str] = str) -> None:
        """`seen_cluster` returns the name under which a cluster without one in the settings was last seen."""
        self._cluster = cluster
        self._seen_cluster = seen_cluster
        self._where = (f"cluster={cluster}",) if cluster else ()

    def batches(self, actions: Iterable[ClusterAction]) -> list[Batch]:
        """Return all commands in the order in which they may run.

        Builders come first, parents before children; removals come last, leaves before parents. Raises PlanRefused
        for a name that SLURM cannot take, BackendError for an action that it has no command for.
        """
        by_kind: dict[type[ClusterAction], list[ClusterAction]] = defaultdict(list)
        for action in dict.fromkeys(actions):
            by_kind[type(action)].append(action)
        unknown = by_kind.keys() - BUILDERS.keys()
        if unknown:
            raise BackendError(f"SLURM has no command for {', '.join(kind.verb for kind in unknown)}")
        return [b for kind in ORDER if kind in by_kind for b in BUILDERS[kind](self, by_kind[kind])]

    def single(self, action: ClusterAction) -> Batch:
        """Return the command for this action alone. Raises what `batches` does."""
        return self.batches([action])[0]

    def _create_accounts(self, actions: Sequence[CreateAccount]) -> list[Batch]:
        found = []
        for level in levels(actions, {a.account: a.parent for a in actions}):
            options = grouped(
                level,
                lambda a: (
                    f"parent={checked('account', a.parent)}",
                    f"description={free_text(a.description, a.account)}",
                    f"organization={free_text(a.organization, a.account)}",
                ),
            )
            for words, group in options.items():
                found += self._for_accounts("add account", group, words)
        return found

    def _delete_accounts(self, actions: Sequence[DeleteAccount]) -> list[Batch]:
        depths = levels(actions, {a.account: a.parent for a in actions})
        return [b for level in reversed(depths) for b in self._for_accounts("remove account where", level)]

    def _modify_accounts(
        self, actions: Sequence[ClusterAction], changes: Callable[..., tuple[str, ...]]
    ) -> list[Batch]:
        """Return one `modify account` for all accounts that get the same values."""
        found = []
        for values, group in grouped(actions, changes).items():
            found += self._for_accounts("modify account where", group, ("set", *values))
        return found

    def _modify_users(
        self, actions: Sequence[UserAction], changes: Callable[..., tuple[str, ...]]
    ) -> list[Batch]:
        """Return one `modify user` for all users that get the same values in one account."""
        found = []
        for (account, values), group in grouped(actions, lambda a: (a.account, changes(a))).items():
            where = (f"name={_users(group)}", f"account={checked('account', account)}", *self._where)
            found.append(Batch(tuple(group), ("modify", "user", "where", *where, "set", *values)))
        return found

    def _remove_partitions(self, actions: Sequence[RemovePartition]) -> list[Batch]:
        """Return one command for all users who lose the same partition in one account. `partition=` without a name
        means the association without one, and leaves those that have one (22.05).
        """
        found = []
        for (account, partition, _), group in grouped(
            actions, lambda a: (a.account, a.partition, a.is_default)
        ).items():
            where = f"partition={checked('partition', partition) if partition else ''}"
            for some in portioned([group]):
                names = (
                    f"name={_users(some)}",
                    f"account={checked('account', account)}",
                    where,
                    *self._where,
                )
                found.append(Batch(tuple(some), ("remove", "user", "where", *names)))
        return found

    def around(self, actions: Sequence[RemovePartition], other: str) -> list[tuple[str, ...]]:
        """Return what comes before and after a removal from default accounts that is refused (`detour`): the users'
        default becomes an account that they are not in, closed to them; it is set back; and they leave that one.
        """
        (account,) = {checked("account", action.account) for action in actions}
        users, other = f"name={_users(actions)}", checked("account", other)
        closed = ("GrpSubmitJobs=0", "MaxSubmitJobs=0", "fairshare=parent")
        return [
            ("add", "user", users, *self._where, f"account={other}", f"DefaultAccount={other}", *closed),
            ("modify", "user", "where", users, *self._where, "set", f"DefaultAccount={account}"),
            ("remove", "user", "where", users, f"account={other}", *self._where),
        ]

    def additions_of_qos(
        self, actions: Sequence[SetQos], member_qos: Mapping[Association, MemberQos]
    ) -> list[tuple[str, ...]]:
        """Return what comes before a change of QoS that is refused: members with QoS of their own, without a default
        among them, get the account's new default as well. `partition=` without a name: see `_remove_partitions`.
        """
        defaults = {action.account: action.default for action in actions}
        lacking = [
            row
            for row, own in member_qos.items()
            if own.names and not own.default and defaults.get(row.account, "") not in {"", *own.names}
        ]
        found = []
        for (account, partition), group in grouped(lacking, lambda row: (row.account, row.partition)).items():
            for some in portioned([sorted(checked("user", row.user) for row in group)]):
                names = (f"name={','.join(some)}", f"account={checked('account', account)}")
                where = (*names, f"partition={checked('partition', partition) if partition else ''}")
                more = f"qos+={checked('QoS', defaults[account])}"
                found.append(("modify", "user", "where", *where, *self._where, "set", more))
        return found

    def _set_limits(self, actions: Sequence[SetLimits]) -> list[Batch]:
        def limits(action: SetLimits) -> str:
            return f"GrpTRESMins={_values(action.after)}"

        own = [action for action in actions if action.on_qos]
        others = [action for action in actions if not action.on_qos]
        return [*self._modify_accounts(others, lambda a: (limits(a),)), *_modify_qos(own, limits)]

    def _move_defaults(self, actions: Sequence[MoveDefaultAccount | KeepDefaultAccount]) -> list[Batch]:
        found = []
        for group in portioned(grouped(actions, lambda a: a.account).values()):
            default = checked("account", group[0].account)
            where = ("modify", "user", "where", f"name={_users(group)}", *self._where)
            found.append(Batch(tuple(group), (*where, "set", f"DefaultAccount={default}")))
        return found

    def _add_members(self, actions: Sequence[AddMember]) -> list[Batch]:
        """Return one call per set of users: accounts with the same new users, partitions and QoS share it."""
        per_account = grouped(
            actions, lambda a: (a.account, a.default_account, a.partitions, a.qos, a.default_qos)
        )
        merged: dict[tuple[str, tuple[str, ...]], list[AddMember]] = defaultdict(list)
        for group in portioned(per_account.values()):
            first = group[0]
            partitions = ",".join(checked("partition", name) for name in first.partitions)
            qos = ",".join(checked("QoS", name) for name in first.qos)
            options = (
                *self._where,
                f"DefaultAccount={checked('account', first.default_account)}"
                if first.default_account
                else "",
                f"partitions={partitions}" if partitions else "",
                f"qoslevel={qos}" if qos else "",
                f"defaultqos={checked('QoS', first.default_qos)}" if first.default_qos else "",
                # Without it each user gets a share of their own and the account's is split by head count.
                "fairshare=parent",
            )
            merged[_users(group), tuple(filter(None, options))] += group
        return [
            Batch(tuple(group), ("add", "user", f"name={users}", f"account={_accounts(group)}", *options))
            for (users, options), group in merged.items()
        ]

    def _remove_members(self, actions: Sequence[RemoveMember]) -> list[Batch]:
        """Return the commands that end associations, whoever else is in the accounts.

        One command names users and accounts and ends all their pairs, so only equal sets are merged.
        """
        return self._removals(actions, products)

    def removals(self, actions: Sequence[RemoveMember], users_of: Callable[[str], Set[str]]) -> list[Batch]:
        """Return the fewest commands that end these associations and no other. `users_of`: who is in an account now."""
        return self._removals(actions, lambda leavers: removals(leavers, users_of))

    def _removals(
        self,
        actions: Sequence[RemoveMember],
        groups: Callable[[Sequence[RemoveMember]], Iterable[Sequence[RemoveMember]]],
    ) -> list[Batch]:
        """Associations that are no user's default come first, and never in one command with a default one: 22.05
        refuses a default account that follows another row, by user name.
        """
        return [
            self.removal(group)
            for default in (False, True)
            for group in groups([a for a in actions if bool(a.is_default) is default])
        ]

    def removal(self, actions: Sequence[RemoveMember]) -> Batch:
        """Return the command that names the users and the accounts of these actions."""
        names = (f"name={_users(actions)}", f"account={_accounts(actions)}", *self._where)
        return Batch(tuple(actions), ("remove", "user", "where", *names))

    def _cancel_jobs(self, actions: Sequence[CancelJobs]) -> list[Batch]:
        """Return one scancel per action: it takes one account at a time."""
        cluster = (f"--clusters={self._cluster}",) if self._cluster else ()
        found = []
        for cancel in actions:
            account = f"--account={checked('account', cancel.account)}"
            user = (f"--user={checked('user', cancel.user)}",) if cancel.user else ()
            found.append(Batch((cancel,), (*cluster, account, *user), "scancel"))
        return found

    def _create_qos(self, actions: Sequence[CreateQos]) -> list[Batch]:
        """QoS belong to no cluster: `cluster=` is omitted."""
        found = []
        for action in actions:
            flags = (f"flags={action.flags}",) if action.flags else ()
            limits = tuple(f"{option}={value}" for option, value in action.limits)
            name = checked("QoS", action.account)
            mark = f"description={mark_of_qos(name, self._cluster or self._seen_cluster())}"
            found.append(Batch((action,), ("add", "qos", f"name={name}", mark, *flags, *limits)))
        return found

    def _for_accounts(
        self, verb: str, actions: Sequence[ClusterAction], options: tuple[str, ...] = ()
    ) -> list[Batch]:
        return [
            Batch(tuple(group), (*verb.split(), f"name={_accounts(group)}", *self._where, *options))
            for group in portioned([actions])
        ]


def mark_of_qos(account: str, cluster: str) -> str:
    """Return the description by which a QoS says for which account of which cluster it was made, and by whom."""
    return f"waldur-site-cluster: account {account} on {cluster.lower()}"


def marked_qos(descriptions: Mapping[str, str], cluster: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the QoS that were made for accounts of this cluster, and those for accounts of another one.

    Where the cluster's name is not known, all count as another's: nothing of them is touched.
    """
    marked = {name for name, text in descriptions.items() if text.startswith(mark_of_qos(name, ""))}
    ours = {name for name in marked if cluster and descriptions[name] == mark_of_qos(name, cluster)}
    return frozenset(ours), frozenset(marked - ours)


def _modify_qos(actions: Iterable[ClusterAction], change: Callable[[Any], str]) -> list[Batch]:
    """Return the change of the QoS that were made for accounts, one command for all that get the same value."""
    found = []
    for value, group in grouped(actions, change).items():
        for some in portioned([group]):
            where = ("where", f"name={_qos_names(some)}")
            found.append(Batch(tuple(some), ("modify", "qos", *where, "set", value)))
    return found


def _qos_names(actions: Iterable[ClusterAction]) -> str:
    return ",".join(dict.fromkeys(checked("QoS", action.account) for action in actions))


def _accounts(actions: Iterable[ClusterAction]) -> str:
    return ",".join(dict.fromkeys(checked("account", a.account) for a in actions))


def _users(actions: Iterable[UserAction]) -> str:
    return ",".join(sorted({checked("user", a.user) for a in actions}))


def _values(limits: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{checked('TRES', tres)}={int(value)}" for tres, value in limits)


def _qos_values(action: SetQos | SetMemberQos) -> tuple[str, str]:
    """Return the QoS with their default: SLURM refuses QoS without the default that stands, with rc 0 (22.05)."""
    names = ",".join(checked("QoS", name) for name in action.after)
    return f"qos={names}", f"defaultqos={checked('QoS', action.default)}"


# What builds the commands of each kind of action.
BUILDERS: Mapping[type[ClusterAction], Callable[[CommandBuilder, Sequence[Any]], list[Batch]]] = {
    CreateAccount: CommandBuilder._create_accounts,
    MoveAccount: lambda builder, actions: builder._modify_accounts(
        actions, lambda a: (f"parent={checked('account', a.after)}",)
    ),
    CreateQos: CommandBuilder._create_qos,
    SetQos: lambda builder, actions: builder._modify_accounts(actions, lambda a: _qos_values(a)),
    ResetQosUsage: lambda _, actions: _modify_qos(actions, lambda _: "RawUsage=0"),
    SetLimits: CommandBuilder._set_limits,
    AddMember: CommandBuilder._add_members,
    SetMemberQos: lambda builder, actions: builder._modify_users(actions, lambda a: _qos_values(a)),
    SetUserLimits: lambda builder, actions: builder._modify_users(
        actions, lambda a: (f"MaxTRESMins={_values(a.after)}",)
    ),
    KeepDefaultAccount: CommandBuilder._move_defaults,
    MoveDefaultAccount: CommandBuilder._move_defaults,
    AllowSubmission: lambda builder, actions: builder._modify_accounts(
        actions, lambda _: ("GrpSubmitJobs=-1",)
    ),
    AllowMember: lambda builder, actions: builder._modify_users(actions, lambda _: ("MaxSubmitJobs=-1",)),
    BlockSubmission: lambda builder, actions: builder._modify_accounts(
        actions, lambda _: ("GrpSubmitJobs=0",)
    ),
    BlockMember: lambda builder, actions: builder._modify_users(actions, lambda _: ("MaxSubmitJobs=0",)),
    CancelJobs: CommandBuilder._cancel_jobs,
    RemovePartition: CommandBuilder._remove_partitions,
    RemoveMember: CommandBuilder._remove_members,
    DeleteAccount: CommandBuilder._delete_accounts,
    # Who has them is read once for each command.
    DeleteQos: lambda _, actions: [
        Batch(tuple(some), ("remove", "qos", "where", f"name={_qos_names(some)}"))
        for some in portioned([actions])
    ],
}
ORDER = sorted(BUILDERS, key=lambda kind: kind.phase)
