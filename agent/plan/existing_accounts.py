# SPDX-License-Identifier: MIT
"""Keeping an account that stands in step: its place, members, state and limits. Nothing here makes allocations.

wanted                          there                       action
below its project's account     elsewhere                   CreateAccount (accounts above), MoveAccount
member                          -                           AddMember
-                               member                      MoveDefaultAccount, BlockMember, CancelJobs, RemoveMember
a default account               a member without one        MoveDefaultAccount
paused, downscaled or free      other QoS or submission     SetQos, BlockSubmission, AllowSubmission
limits of a user                other ones                  SetUserLimits
a partition or QoS of a member  another one                 AddMember, SetMemberQos, RemovePartition
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from agent.core.account_names import fold
from agent.core.actions import (
    AllowMember,
    AllowSubmission,
    BlockMember,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    MoveAccount,
    MoveDefaultAccount,
    SetQos,
    SetUserLimits,
)
from agent.core.association_actions import KeepDefaultAccount, RemovePartition, SetMemberQos
from agent.core.associations import Association
from agent.core.model import AllocationSpec, MemberQos, Part, Snapshot
from agent.plan import accounts

NO_LIMIT = -1
NO_QOS = MemberQos()


def place(spec: AllocationSpec, snapshot: Snapshot, reason: str) -> list[ClusterAction]:
    """Return the moves that bring an account below its project's, and that below its customer's. A site with one level
    of accounts is left alone: there nothing changes when a project moves to another customer.
    """
    if len(spec.ancestors) < 2:
        return []
    customer, project = spec.ancestors[-2:]
    if project.name == customer.name:
        return []
    moves = []
    for account in (project, spec.account):
        standing = snapshot.accounts.get(account.name)
        if standing is not None and standing.parent and standing.parent != account.parent:
            moves.append(
                MoveAccount(account=account.name, before=standing.parent, after=account.parent, reason=reason)
            )
    return [*accounts.missing_accounts(spec.ancestors, snapshot, reason), *moves] if moves else []


def state(spec: AllocationSpec, snapshot: Snapshot, reason: str) -> Iterator[ClusterAction]:
    """Yield the QoS or the block of a paused or downscaled resource, and the way back."""
    account, wanted = spec.account.name, spec.state
    standing = snapshot.accounts[account]
    present = standing.qos | ({standing.default_qos} - {""})
    differs = standing.qos != set(wanted.qos) or standing.default_qos != wanted.default_qos
    if wanted.qos and differs and (not wanted.only_from or present & wanted.only_from):
        yield SetQos(
            account=account,
            before=tuple(sorted(standing.qos)),
            after=wanted.qos,
            default=wanted.default_qos,
            reason=reason,
        )
    if wanted.submission is False and standing.submit_limit != 0:
        yield BlockSubmission(account=account, reason=reason)
    if wanted.submission is True and standing.submit_limit == 0:
        yield AllowSubmission(account=account, reason=reason)


def departures(
    leavers: Mapping[str, Set[str]],
    snapshot: Snapshot,
    *,
    default_account: str,
    reasons: Mapping[str, str],
) -> dict[str, list[ClusterAction]]:
    """Return the steps of all who leave, by account: all accounts of a pass at once, as some leave several of them.
    `reasons`: why a member leaves, by account.

    Jobs of a leaver are cancelled first: SLURM refuses to remove who still has some.
    """
    snapshot.require(Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS)
    gone: dict[str, set[str]] = {}
    for account, users in leavers.items():
        for user in users:
            gone.setdefault(user, set()).add(account)
    found = {}
    for account, users in leavers.items():
        reason = reasons[account]
        moved, removed = accounts.departures(
            account,
            users,
            snapshot,
            default_account=default_account,
            reason=reason,
            leaving=lambda user: gone[user],
        )
        is_known = Part.JOBS in snapshot.complete and account in snapshot.active_jobs
        stopped: list[ClusterAction] = []
        for user in sorted(users):
            jobs = snapshot.active_users.get((account, user), 0)
            if jobs or not is_known:
                stopped += [
                    BlockMember(account=account, user=user, reason=reason),
                    CancelJobs(account=account, user=user, jobs=jobs if is_known else None, reason=reason),
                ]
        found[account] = [*moved, *stopped, *removed]
    return found


def returned(
    spec: AllocationSpec, blocked: Set[str], snapshot: Snapshot, reason: str
) -> Iterator[AllowMember]:
    """Yield what lets members submit again whom we `blocked` to remove them, and who came back before that."""
    account = spec.account.name
    for user in sorted(blocked & set(spec.members) & snapshot.users_of(account)):
        yield AllowMember(account=account, user=user, reason=f"{reason}: back before they were out")


def missing_defaults(spec: AllocationSpec, snapshot: Snapshot, reason: str) -> Iterator[MoveDefaultAccount]:
    """Yield a default account for members who have lost theirs: without one `srun` alone is refused. So have those
    whose default was put aside by a removal of a partition that was cut off (`backends.slurm.detour`): to an account
    above, of Waldur's, in which they have that one association, with all its marks.
    """
    if Part.DEFAULT_ACCOUNTS not in snapshot.complete:
        return
    account = spec.account.name
    for user in sorted(snapshot.users_of(account) & set(spec.members)):
        default = snapshot.default_accounts.get(user, "")
        if not default:
            yield MoveDefaultAccount(account=account, user=user, before="", reason=f"{reason}: it has none")
        elif _is_put_aside(spec, user, snapshot):
            why = f"{reason}: it was put aside while a partition was removed"
            yield MoveDefaultAccount(account=account, user=user, before=default, reason=why)


def closed_defaults(spec: AllocationSpec, snapshot: Snapshot) -> list[str]:
    """Return members whose default is an account above that takes no jobs of theirs, and was not put aside for sure:
    that is somebody's decision.
    """
    account = spec.account.name
    above = snapshot.above(account)
    found = []
    for user in sorted(snapshot.users_of(account) & set(spec.members)):
        default = snapshot.default_accounts.get(user, "")
        is_closed = default in above and Association(default, user) in snapshot.closed
        if is_closed and not _is_put_aside(spec, user, snapshot):
            found.append(user)
    return found


def _accounts_above(spec: AllocationSpec, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the accounts that an allocation stands below and that are Waldur's, the nearest first: none that the site
    has for everybody.
    """
    ours = {ancestor.name for ancestor in spec.ancestors}
    return tuple(name for name in snapshot.above(spec.account.name) if name in ours)


def put_aside(
    spec: AllocationSpec, snapshot: Snapshot, among: Set[Association] | None = None
) -> list[Association]:
    """Return the associations, all or those `among` some, that a removal of a partition made in the accounts above, and
    did not end: with all its marks, and the only one of the user there.
    """
    marked = snapshot.put_aside if among is None else snapshot.put_aside & among
    above = _accounts_above(spec, snapshot) if marked else ()
    return [
        row
        for row in sorted(marked, key=lambda row: (row.account, row.user))
        if row.account in above and snapshot.rows_of(row.account, row.user) == {row} and not row.partition
    ]


def _is_put_aside(spec: AllocationSpec, user: str, snapshot: Snapshot) -> bool:
    return bool(put_aside(spec, snapshot, {Association(snapshot.default_accounts.get(user, ""), user)}))


def associations(spec: AllocationSpec, snapshot: Snapshot, reason: str) -> Iterator[ClusterAction]:
    """Yield what brings the partitions and QoS of members in step who are in already. Where the desired state names
    none, those that people gave by hand stay. What is not wanted any more goes in a later pass than what takes its
    place is added. A member whose default account it is keeps that.
    """
    if spec.unplaced or not (spec.partitions or spec.qos):
        return
    account = spec.account.name
    for user in sorted(snapshot.users_of(account) & set(spec.members)):
        rows = snapshot.rows_of(account, user)
        stale = sorted({row.partition for row in rows} - set(spec.partitions))
        own = {snapshot.member_qos.get(row, NO_QOS) for row in rows}
        found = {(frozenset(map(fold, each.names)), fold(each.default)) for each in own}
        if spec.qos and found != {(frozenset(map(fold, spec.qos)), fold(spec.default_qos))}:
            before = sorted(frozenset[str]().union(*(each.names for each in own)))
            yield SetMemberQos(
                account=account,
                user=user,
                before=tuple(before),
                after=spec.qos,
                default=spec.default_qos,
                reason=reason,
            )
        if not spec.partitions or not stale or len(stale) == len(rows):
            continue
        is_default = snapshot.default_accounts.get(user) == account
        if is_default:
            yield KeepDefaultAccount(account=account, user=user, reason=reason)
        for partition in stale:
            yield RemovePartition(
                account=account,
                user=user,
                partition=partition,
                is_default=is_default,
                aside=_accounts_above(spec, snapshot) if is_default else (),
                reason=reason,
            )


def user_limits(
    account: str, wanted: Mapping[str, Mapping[str, int]], known: Set[str], snapshot: Snapshot, reason: str
) -> Iterator[SetUserLimits]:
    """Yield changed limits per job and user, `wanted` by user. Of TRES in `known` an unwanted limit is lifted."""
    for user in sorted(snapshot.users_of(account) | set(wanted)):
        before = snapshot.user_limits.get((account, user), {})
        after = {tres: NO_LIMIT for tres in before if tres in known} | dict(wanted.get(user, {}))
        changed = tuple(
            (tres, value) for tres, value in sorted(after.items()) if before.get(tres, NO_LIMIT) != value
        )
        if changed:
            yield SetUserLimits(
                account=account,
                user=user,
                before=tuple((tres, before[tres]) for tres, _ in changed if tres in before),
                after=changed,
                reason=reason,
            )
