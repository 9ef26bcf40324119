# SPDX-License-Identifier: MIT
"""From the desired state of an allocation and the cluster's state to the actions between them.

wanted      there        action
account     -            CreateAccount (parents first)
account     elsewhere    none: moving a project is not an order's business
limit       other value  SetLimits, for the TRES that differ
member      -            AddMember
(gone)      account      MoveDefaultAccount, BlockSubmission, CancelJobs, RemoveMember, DeleteAccount
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace

from agent.core.actions import (
    Action,
    AddMember,
    AllowSubmission,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    CreateQos,
    DeleteAccount,
    DeleteQos,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetQos,
)
from agent.core.association_actions import ResetQosUsage
from agent.core.associations import Association
from agent.core.model import AccountSpec, AllocationSpec, Part, Snapshot


def building(spec: AllocationSpec, snapshot: Snapshot, reason: str) -> list[ClusterAction]:
    """Return what is missing of an allocation. Nothing that stands is changed, but for limits that differ."""
    snapshot.require(Part.ACCOUNTS, Part.ASSOCIATIONS)
    standing = snapshot.accounts.get(spec.account.name)
    # A soft deletion left the account blocked: who gets it back may submit again, unless its state forbids it.
    is_blocked = standing is not None and standing.submit_limit == 0 and spec.state.submission is not False
    return [
        *missing_accounts((*spec.ancestors, spec.account), snapshot, reason),
        *_own_qos(spec, snapshot, reason),
        *((AllowSubmission(account=spec.account.name, reason=reason),) if is_blocked else ()),
        *limits(spec.account.name, spec.limits, snapshot, reason, on_qos=_is_limited_by_qos(spec, snapshot)),
        *missing_members(spec, snapshot, reason),
    ]


def _is_limited_by_qos(spec: AllocationSpec, snapshot: Snapshot) -> bool:
    """Return whether limits belong on the account's own QoS. One that was limited before keeps its limits itself:
    they would go on to count, and would not be maintained.
    """
    standing = snapshot.accounts.get(spec.account.name)
    is_free = standing is None or standing.limits_on_qos or not standing.limits
    return spec.own_qos is not None and spec.own_qos.holds_limits and is_free


def limits(
    account: str,
    wanted: Mapping[str, int],
    snapshot: Snapshot,
    reason: str,
    *,
    on_qos: bool | None = None,
) -> list[ClusterAction]:
    """Return one action for all TRES whose limit differs; TRES without a desired value keep theirs. `on_qos`: where
    they are set, None to leave them where they are.
    """
    snapshot.require(Part.ACCOUNTS)
    standing = snapshot.accounts.get(account)
    before = standing.limits if standing else {}
    after = tuple(sorted((tres, value) for tres, value in wanted.items() if before.get(tres) != value))
    if not after:
        return []
    return [
        SetLimits(
            account=account,
            before=tuple((tres, before[tres]) for tres, _ in after if tres in before),
            after=after,
            on_qos=bool(standing and standing.limits_on_qos) if on_qos is None else on_qos,
            reason=reason,
        )
    ]


def grown(snapshot: Snapshot, actions: Iterable[Action]) -> Snapshot:
    """Return the cluster as it will be when the accounts and members among these actions have been added."""
    planned = list(actions)
    made = {account.name: account for action in planned for account in action.new_accounts()}
    joined = {member for action in planned for member in action.new_members()}
    return replace(
        snapshot, accounts={**made, **snapshot.accounts}, associations=snapshot.associations | joined
    )


def removal(
    account: str, snapshot: Snapshot, *, default_account: str, reason: str, leaving: Set[str] = frozenset()
) -> list[ClusterAction]:
    """Return the actions that empty and delete an account. It must have no accounts below it.

    A QoS named like the account, which it alone has, was made for it and goes after it: a QoS that is a default
    cannot go before.
    """
    steps = emptying(account, snapshot, default_account=default_account, reason=reason, leaving=leaving)
    if obstacle(account, snapshot):
        return steps
    steps.append(
        DeleteAccount(account=account, parent=snapshot.accounts[account].parent or "", reason=reason)
    )
    # Others may have made a QoS of the same name, or use this one.
    if snapshot.has_own_qos(account) and snapshot.users_of_qos(account) == {account}:
        steps.append(DeleteQos(account=account, reason=reason))
    return steps


def left_qos(account: str, snapshot: Snapshot, reason: str) -> list[ClusterAction]:
    """Return the deletion of the QoS that was made for an account which is gone: a removal was cut off there."""
    is_left = account in snapshot.made_qos and account not in snapshot.accounts
    if not is_left or snapshot.users_of_qos(account):
        return []
    return [DeleteQos(account=account, reason=reason)]


def obstacle(account: str, snapshot: Snapshot) -> str:
    """Return what must be known before anyone can be removed from an account; empty when it is. Until then the account
    is only blocked: who is removed from an unknown default account would be left without one.
    """
    if Part.DEFAULT_ACCOUNTS in snapshot.complete:
        return ""
    elsewhere = [user for user in snapshot.users_of(account) if snapshot.accounts_of(user) - {account}]
    return f"the default accounts of {', '.join(sorted(elsewhere)[:5])} were not read" if elsewhere else ""


def emptying(
    account: str, snapshot: Snapshot, *, default_account: str, reason: str, leaving: Set[str] = frozenset()
) -> list[ClusterAction]:
    """Return the actions that cancel jobs and remove members; the account itself stays. Without members it has no jobs.

    `leaving`: the other accounts that go in the same pass; no user's default moves there.
    """
    snapshot.require(Part.ACCOUNTS, Part.ASSOCIATIONS)
    if obstacle(account, snapshot):
        return [BlockSubmission(account=account, reason=reason)]
    users = snapshot.users_of(account)
    moved, removed = departures(
        account, users, snapshot, default_account=default_account, reason=reason, leaving=lambda _: leaving
    )
    jobs = snapshot.active_jobs.get(account, 0)
    is_known = Part.JOBS in snapshot.complete and account in snapshot.active_jobs
    stopped: list[ClusterAction] = []
    # Jobs stop before members go: SLURM refuses to remove who still has jobs. Unknown counts as active.
    if jobs or (users and not is_known):
        stopped = [
            BlockSubmission(account=account, reason=reason),
            CancelJobs(account=account, jobs=jobs if is_known else None, reason=reason),
        ]
    return [*moved, *stopped, *removed]


def departures(
    account: str,
    users: Iterable[str],
    snapshot: Snapshot,
    *,
    default_account: str,
    reason: str,
    leaving: Callable[[str], Set[str]] = lambda _: frozenset(),
) -> tuple[list[ClusterAction], list[ClusterAction]]:
    """Return the moves of default accounts, and the removals, with which these members leave an account.

    Users keep a valid default account (`_next_default`), which is not among those they are `leaving` as well. Who has
    no other account keeps none: SLURM then forgets the user.
    """
    moved: list[ClusterAction] = []
    removed: list[ClusterAction] = []
    for user in sorted(users):
        is_default = snapshot.default_accounts.get(user) == account
        others = snapshot.accounts_of(user) - {account} - leaving(user)
        if is_default and others:
            target = _next_default(others, snapshot, default_account)
            moved.append(MoveDefaultAccount(account=target, user=user, before=account, reason=reason))
        removed.append(
            RemoveMember(account=account, user=user, is_default=is_default and not others, reason=reason)
        )
    return moved, removed


def _next_default(accounts: Set[str], snapshot: Snapshot, default_account: str) -> str:
    """Return which of a user's accounts becomes their default: the site's `default_account` where it takes no jobs,
    else an allocation's. Jobs in a default account that takes some, or at the top of the tree, count for no allocation:
    those come last.
    """
    if default_account in accounts and snapshot.refuses_jobs(default_account):
        return default_account

    def order(name: str) -> tuple[bool, bool, str]:
        standing = snapshot.accounts.get(name)
        return name == default_account, standing is not None and not standing.parent, name

    return min(accounts, key=order)


def missing_accounts(
    specs: Iterable[AccountSpec], snapshot: Snapshot, reason: str
) -> Iterator[ClusterAction]:
    for spec in specs:
        if spec.name not in snapshot.accounts:
            yield CreateAccount(
                account=spec.name,
                parent=spec.parent,
                description=spec.description,
                organization=spec.organization,
                reason=reason,
            )


def _own_qos(spec: AllocationSpec, snapshot: Snapshot, reason: str) -> Iterator[ClusterAction]:
    """Yield what makes and sets the account's own QoS, once: where it exists, what people changed about it is left
    alone. One that holds limits begins at zero: SLURM gives a QoS that is made again what the old one had counted.
    """
    own = spec.own_qos
    if own is None:
        return
    standing = snapshot.accounts.get(spec.account.name)
    has_it = standing is not None and own.name in standing.qos
    is_new = Part.QOS in snapshot.complete and own.name not in snapshot.qos
    if is_new:
        yield CreateQos(account=own.name, flags=own.flags, limits=own.limits, reason=reason)
    # A pass that was cut off may have made it, and not have come to this.
    if own.holds_limits and (is_new or (own.name in snapshot.made_qos and not has_it)):
        yield ResetQosUsage(account=own.name, reason=reason)
    if has_it:
        return
    # What the account has, its own or inherited, or will inherit from the nearest account above it that stands.
    upwards = (spec.account, *reversed(spec.ancestors))
    names = (spec.account.name, *(account.parent for account in upwards))
    before = next((sorted(snapshot.qos_of(name)) for name in names if name in snapshot.accounts), [])
    after = tuple(dict.fromkeys((*before, own.name, *own.additional)))
    yield SetQos(
        account=spec.account.name, before=tuple(before), after=after, default=own.name, reason=reason
    )


def missing_members(spec: AllocationSpec, snapshot: Snapshot, reason: str) -> Iterator[ClusterAction]:
    if spec.unplaced:
        return
    defaults_known = Part.DEFAULT_ACCOUNTS in snapshot.complete
    for user in spec.members:
        wanted = [Association(spec.account.name, user, partition) for partition in spec.partitions or ("",)]
        missing = [association for association in wanted if association not in snapshot.associations]
        if missing:
            yield AddMember(
                account=spec.account.name,
                user=user,
                default_account=spec.default_account,
                present_default=snapshot.default_accounts.get(user, "") if defaults_known else None,
                partitions=tuple(a.partition for a in missing if a.partition),
                qos=spec.qos,
                default_qos=spec.default_qos,
                reason=reason,
            )
