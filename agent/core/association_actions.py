# SPDX-License-Identifier: MIT
"""Actions on what only some sites keep: QoS and partitions of single associations, and what a QoS has counted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent.core.actions import (
    ACCOUNT_ID,
    FREE,
    MEMBER_IDS,
    NO_PARTS,
    TREE,
    ClusterAction,
    Effect,
    ObjectKind,
    ObjectRef,
    Phase,
    Target,
    qos_severity,
)
from agent.core.associations import Association
from agent.core.model import MemberQos, Part, Snapshot
from agent.core.policy import Cost, PolicyRules


@dataclass(frozen=True, kw_only=True)
class ResetQosUsage(ClusterAction):
    """Forget what was counted for the QoS of an account: one of its name may have been used before. It comes before the
    account gets the QoS, so that a pass which is cut off between the two, or is refused here, does it again: neither
    the QoS nor members are added without it.
    """

    verb = "reset usage of QoS"
    subject = "{account}"
    effect, target, phase = Effect.CHANGE, Target.CLUSTER, Phase.PLACE
    parts, identifiers = NO_PARTS, ACCOUNT_ID
    costs = frozenset({Cost.USAGE_RESET})
    makes = (ObjectRef(ObjectKind.FRESH_QOS),)
    needs = (ObjectRef(ObjectKind.ACCOUNT), ObjectRef(ObjectKind.QOS))
    account: str

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        """Return whether both stand: what an account counted that is gone belongs to no account."""
        return self.account in snapshot.accounts and self.account in snapshot.qos


@dataclass(frozen=True, kw_only=True)
class SetMemberQos(ClusterAction):
    """Give all associations of a user in an account exactly these QoS, and one of them as the default."""

    verb = "set QoS of member"
    subject = "{user} in {account} {before:none} -> {after} default {default}"
    effect, target, phase = Effect.CHANGE, Target.USER, Phase.SET_MEMBERS
    parts, identifiers = frozenset({Part.ASSOCIATIONS}), MEMBER_IDS
    costs = frozenset({Cost.MEMBERS_PAUSED})
    needs = (ObjectRef(ObjectKind.ACCOUNT), ObjectRef(ObjectKind.MEMBER, of="user"))
    account: str
    user: str
    before: tuple[str, ...] = field(default=(), compare=False)
    after: tuple[str, ...]
    default: str

    def takes_away(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        """Return whether the QoS is that of paused or downscaled accounts."""
        return qos_severity(self.default, rules) > 0

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        """Return whether one of the associations loses by it. From a pause to being downscaled none does."""
        rows = snapshot.rows_of(self.account, self.user)
        before = (snapshot.member_qos.get(row, MemberQos()).default for row in rows)
        return any(qos_severity(self.default, rules) > qos_severity(qos, rules) for qos in before)

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        own = MemberQos(frozenset(self.after), self.default)
        rows = dict.fromkeys(snapshot.rows_of(self.account, self.user), own)
        return replace(snapshot, member_qos={**snapshot.member_qos, **rows})


@dataclass(frozen=True, kw_only=True)
class KeepDefaultAccount(ClusterAction):
    """Make an account the default on all partitions that a user has it on, before the one that was marked as the
    default goes (22.05 forgets the default account with it).
    """

    subject = "{account} of {user}"
    effect, target, phase = Effect.CHANGE, Target.USER, Phase.MOVE_DEFAULTS
    parts, costs, identifiers = frozenset({Part.DEFAULT_ACCOUNTS}), FREE, MEMBER_IDS
    needs = (ObjectRef(ObjectKind.ACCOUNT), ObjectRef(ObjectKind.MEMBER, of="user"))
    ends = (ObjectRef(ObjectKind.DEFAULT_PARTITION, of="user"),)
    account: str
    user: str

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, default_accounts={**snapshot.default_accounts, self.user: self.account})


@dataclass(frozen=True, kw_only=True)
class RemovePartition(ClusterAction):
    """End the association of a user with one partition (empty: the one that is good for all); others in the account
    stay. Jobs that still need it delay it.
    """

    subject = "{partition:without a name} of {user} in {account}"
    effect, target, phase = Effect.REMOVE, Target.USER, Phase.REMOVE_MEMBERS
    parts, identifiers = TREE | {Part.DEFAULT_ACCOUNTS}, MEMBER_IDS
    costs = frozenset({Cost.PARTITIONS_REMOVED})
    needs = (ObjectRef(ObjectKind.ACCOUNT), ObjectRef(ObjectKind.MEMBER, of="user"))
    awaits = (ObjectRef(ObjectKind.DEFAULT_PARTITION, of="user"),)
    account: str
    user: str
    partition: str
    # It is the user's default account.
    is_default: bool = field(default=False, compare=False)
    # Accounts above it that are Waldur's, to one of which the default may go meanwhile.
    aside: tuple[str, ...] = field(default=(), compare=False)

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        row = Association(self.account, self.user, self.partition)
        kept = {place: own for place, own in snapshot.member_qos.items() if place != row}
        return replace(snapshot, associations=snapshot.associations - {row}, member_qos=kept)
