# SPDX-License-Identifier: MIT
"""From actions to argv lists, pure: which actions share one command, and in which order commands run.

A committing sacctmgr call costs about 0.65 s whether it names one user or a hundred (22.05), so actions
that differ only in names are merged. Every name is checked here, before it can reach a command.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

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
from agent.core.errors import BackendError
from backends.hierarchy import levels
from backends.slurm.allowed_names import checked, free_text
from backends.slurm.schema import SlurmSettings

Item = TypeVar("Item")
Key = TypeVar("Key")

# One argument is kept below the kernel's 128 KiB: 500 names of 255 characters.
NAMES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Batch:
    """Actions that one command carries out. `argv` is what follows `sacctmgr -i`, or `scancel`."""

    actions: tuple[ClusterAction, ...]
    argv: tuple[str, ...]
    program: str = "sacctmgr"


@dataclass(frozen=True, slots=True)
class Place:
    """The cluster that commands are about; without a name the one of slurm.conf."""

    name: str = ""

    @property
    def option(self) -> tuple[str, ...]:
        return (f"cluster={self.name}",) if self.name else ()


class Grammar:
    """Knows the cluster's name and the site's policies, and turns actions into commands."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._place = Place(settings.cluster_name)

    def batches(self, actions: Iterable[ClusterAction]) -> list[Batch]:
        """All commands, in the order in which they may run: builders first, parents before children,
        removals last, leaves before parents."""
        by_kind: dict[type[ClusterAction], list[ClusterAction]] = defaultdict(list)
        for action in dict.fromkeys(actions):
            by_kind[type(action)].append(action)
        unknown = by_kind.keys() - MAKERS.keys()
        if unknown:
            raise BackendError(f"SLURM has no command for {', '.join(kind.verb for kind in unknown)}")
        return [batch for kind in ORDER for batch in MAKERS[kind](self._place, by_kind[kind])]

    def single(self, action: ClusterAction) -> Batch:
        """The command for this action alone."""
        return self.batches([action])[0]


def _create(place: Place, actions: Sequence[CreateAccount]) -> list[Batch]:
    found = []
    for level in levels(actions, {a.account: a.parent for a in actions}):
        for (parent, description, organization), group in _grouped(
            level,
            lambda a: (
                a.parent,
                free_text(a.description, a.account),
                free_text(a.organization, a.account),
            ),
        ).items():
            below = f"parent={checked('account', parent)}"
            texts = (f"description={description}", f"organization={organization}")
            found += _named(place, "add account", group, (below, *texts))
    return found


def _move(place: Place, actions: Sequence[MoveAccount]) -> list[Batch]:
    return _modified(place, actions, lambda a: (f"parent={checked('account', a.after)}",))


def _qos(place: Place, actions: Sequence[SetQos]) -> list[Batch]:
    return _modified(
        place,
        actions,
        lambda a: (
            f"qos={','.join(checked('QoS', name) for name in a.after)}",
            f"defaultqos={checked('QoS', a.default)}",
        ),
    )


def _create_qos(_: Place, actions: Sequence[CreateQos]) -> list[Batch]:
    """QoS belong to no cluster: `cluster=` is left out."""
    found = []
    for made in actions:
        flags = (f"flags={made.flags}",) if made.flags else ()
        limits = tuple(f"{option}={value}" for option, value in made.limits)
        found.append(Batch((made,), ("add", "qos", f"name={checked('QoS', made.account)}", *flags, *limits)))
    return found


def _delete_qos(_: Place, actions: Sequence[DeleteQos]) -> list[Batch]:
    return [Batch((a,), ("remove", "qos", "where", f"name={checked('QoS', a.account)}")) for a in actions]


def _limits(place: Place, actions: Sequence[SetLimits]) -> list[Batch]:
    return _modified(place, actions, _tres_limits)


def _user_limits(place: Place, actions: Sequence[SetUserLimits]) -> list[Batch]:
    """MaxTRESMins of users; those with the same values in one account share a command."""
    found = []
    for (account, values), group in _grouped(actions, lambda a: (a.account, _values(a.after))).items():
        where = (f"name={_users(group)}", f"account={checked('account', account)}", *place.option)
        found.append(Batch(tuple(group), ("modify", "user", "where", *where, "set", f"MaxTRESMins={values}")))
    return found


def _member_submission(place: Place, actions: Sequence[BlockMember | AllowMember], value: int) -> list[Batch]:
    """MaxSubmitJobs of users; those of one account share a command."""
    found = []
    for account, group in _grouped(actions, lambda a: a.account).items():
        where = (f"name={_users(group)}", f"account={checked('account', account)}", *place.option)
        found.append(
            Batch(tuple(group), ("modify", "user", "where", *where, "set", f"MaxSubmitJobs={value}"))
        )
    return found


def _block_members(place: Place, actions: Sequence[BlockMember]) -> list[Batch]:
    return _member_submission(place, actions, 0)


def _allow_members(place: Place, actions: Sequence[AllowMember]) -> list[Batch]:
    return _member_submission(place, actions, -1)


def _block(place: Place, actions: Sequence[BlockSubmission]) -> list[Batch]:
    return _modified(place, actions, lambda _: ("GrpSubmitJobs=0",))


def _allow(place: Place, actions: Sequence[AllowSubmission]) -> list[Batch]:
    return _modified(place, actions, lambda _: ("GrpSubmitJobs=-1",))


def _add(place: Place, actions: Sequence[AddMember]) -> list[Batch]:
    """One call per set of users: accounts with the same new users, partitions and QoS share it."""
    per_account = _grouped(
        actions, lambda a: (a.account, a.default_account, a.partitions, a.qos, a.default_qos)
    )
    merged: dict[tuple[tuple[str, ...], tuple[str, ...]], list[AddMember]] = defaultdict(list)
    for group in _portioned(per_account.values()):
        users = tuple(sorted(checked("user", a.user) for a in group))
        merged[users, _association_options(place, group[0])] += group
    return [
        Batch(
            tuple(group),
            ("add", "user", f"name={','.join(users)}", f"account={_accounts(group)}", *options),
        )
        for (users, options), group in merged.items()
    ]


def _association_options(place: Place, join: AddMember) -> tuple[str, ...]:
    default = join.default_account
    partitions = ",".join(checked("partition", name) for name in join.partitions)
    qos = ",".join(checked("QoS", name) for name in join.qos)
    options = (
        *place.option,
        f"DefaultAccount={checked('account', default)}" if default else "",
        f"partitions={partitions}" if partitions else "",
        f"qoslevel={qos}" if qos else "",
        f"defaultqos={checked('QoS', join.default_qos)}" if join.default_qos else "",
        # Without it each user gets a share of their own and the account's is split by head count.
        "fairshare=parent",
    )
    return tuple(filter(None, options))


def _defaults(place: Place, actions: Sequence[MoveDefaultAccount]) -> list[Batch]:
    found = []
    for group in _portioned(_grouped(actions, lambda a: a.account).values()):
        where = ("modify", "user", "where", f"name={_users(group)}", *place.option)
        home = checked("account", group[0].account)
        found.append(Batch(tuple(group), (*where, "set", f"DefaultAccount={home}")))
    return found


def _cancel(place: Place, actions: Sequence[CancelJobs]) -> list[Batch]:
    cluster = (f"--clusters={place.name}",) if place.name else ()
    found = []
    for cancel in actions:
        whose = (f"--user={checked('user', cancel.user)}",) if cancel.user else ()
        found.append(
            Batch(
                (cancel,),
                (*cluster, f"--account={checked('account', cancel.account)}", *whose),
                "scancel",
            )
        )
    return found


def _remove(place: Place, actions: Sequence[RemoveMember]) -> list[Batch]:
    """Associations that are nobody's default first, and never in one command with a default one: 22.05 refuses
    a default account that follows another row, by user name.
    """
    return [
        *_removed(place, [a for a in actions if not a.is_default]),
        *_removed(place, [a for a in actions if a.is_default]),
    ]


def _removed(place: Place, leaves: Sequence[RemoveMember]) -> list[Batch]:
    """One command names users and accounts and ends all their pairs, so only equal sets may be merged: the
    users who leave the same accounts, or the accounts that the same users leave, whichever is less.
    """
    by_users = _products(leaves, lambda a: a.user, lambda a: a.account)
    by_accounts = _products(leaves, lambda a: a.account, lambda a: a.user)
    groups = min(by_users, by_accounts, key=len)
    return [
        Batch(
            tuple(group),
            (
                "remove",
                "user",
                "where",
                f"name={_users(group)}",
                f"account={_accounts(group)}",
                *place.option,
            ),
        )
        for group in groups
    ]


def _delete(place: Place, actions: Sequence[DeleteAccount]) -> list[Batch]:
    depths = levels(actions, {a.account: a.parent for a in actions})
    return [batch for level in reversed(depths) for batch in _named(place, "remove account where", level, ())]


def _modified(
    place: Place, actions: Sequence[ClusterAction], changes: Callable[..., tuple[str, ...]]
) -> list[Batch]:
    """One `modify account` for all accounts that get the same values."""
    found = []
    for values, group in _grouped(actions, changes).items():
        found += _named(place, "modify account where", group, ("set", *values))
    return found


def _named(
    place: Place, verb: str, actions: Sequence[ClusterAction], options: tuple[str, ...]
) -> list[Batch]:
    words = tuple(verb.split())
    return [
        Batch(tuple(group), (*words, f"name={_accounts(group)}", *place.option, *options))
        for group in _portioned([actions])
    ]


def _accounts(actions: Iterable[ClusterAction]) -> str:
    return ",".join(dict.fromkeys(checked("account", a.account) for a in actions))


def _users(
    actions: Iterable[
        AddMember | RemoveMember | MoveDefaultAccount | SetUserLimits | BlockMember | AllowMember
    ],
) -> str:
    return ",".join(sorted({checked("user", a.user) for a in actions}))


def _tres_limits(change: SetLimits) -> tuple[str, ...]:
    return (f"GrpTRESMins={_values(change.after)}",)


def _values(limits: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{checked('TRES', tres)}={int(value)}" for tres, value in limits)


def _products(
    leaves: Sequence[RemoveMember], one: Callable[[RemoveMember], str], many: Callable[[RemoveMember], str]
) -> list[list[RemoveMember]]:
    """Groups that are a whole product of users and accounts: all that `one` names leaves the same set of `many`."""
    sets = {name: frozenset(map(many, group)) for name, group in _grouped(leaves, one).items()}
    groups = _grouped(leaves, lambda a: sets[one(a)])
    return [
        [a for a in group if one(a) in ones and many(a) in manies]
        for group in groups.values()
        for ones in _portioned([sorted({one(a) for a in group})])
        for manies in _portioned([sorted({many(a) for a in group})])
    ]


def _grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    groups: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def _portioned(groups: Iterable[Sequence[Item]]) -> Iterator[Sequence[Item]]:
    for group in groups:
        for start in range(0, len(group), NAMES_AT_ONCE):
            yield group[start : start + NAMES_AT_ONCE]


# What makes the commands of each kind of action.
MAKERS: Mapping[type[ClusterAction], Callable[[Place, Sequence[Any]], list[Batch]]] = {
    CreateAccount: _create,
    MoveAccount: _move,
    CreateQos: _create_qos,
    SetQos: _qos,
    SetLimits: _limits,
    AddMember: _add,
    SetUserLimits: _user_limits,
    MoveDefaultAccount: _defaults,
    AllowSubmission: _allow,
    AllowMember: _allow_members,
    BlockSubmission: _block,
    BlockMember: _block_members,
    CancelJobs: _cancel,
    RemoveMember: _remove,
    DeleteAccount: _delete,
    DeleteQos: _delete_qos,
}
ORDER = sorted(MAKERS, key=lambda kind: kind.phase)
