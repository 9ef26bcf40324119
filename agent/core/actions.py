# SPDX-License-Identifier: MIT
"""What a backend does on the cluster, one verb each; actions are equal when they mean the same.

An action names its object by natural key and carries what was before and what shall be; `reason` is for
people and takes no part in equality, so that two orders which need the same customer account share one
action. CLI, log, journal and tests all show an action by its one-line `render`. What an action means to
policy, journal, backends and previews it declares itself: see `Action`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum, IntEnum, StrEnum
from typing import Any, ClassVar, NamedTuple, TypeVar

from agent.core.account_names import fold
from agent.core.associations import Association
from agent.core.model import Account, MemberQos, Part, Snapshot
from agent.core.policy import Charge, Cost, PolicyRules

# Every kind of action that is defined, by name: to read them back from JSON.
ACTION_CLASSES: dict[str, type[Action]] = {}


class Effect(StrEnum):
    """What an action does to what it is about; TELL changes what Waldur shows, and nothing that people work with."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"
    BLOCK = "block"
    TELL = "tell"


class Target(StrEnum):
    """What an action is about."""

    ACCOUNT = "account"
    USER = "user"
    CLUSTER = "cluster"
    HOME = "home"
    DIRECTORY = "directory"
    GROUP = "group"
    ORDER = "order"
    RESOURCE = "resource"
    OFFERING = "offering"


class Where(StrEnum):
    """Where an action is carried out: by a backend, by Waldur, or by the agent itself."""

    CLUSTER = "cluster"
    WALDUR = "Waldur"
    DIRECTORY = "directory"
    HEAD_NODE = "head node"


class Phase(IntEnum):
    """The order in which the actions of one batch run, on every cluster: builders first, removals last."""

    MAKE = 1
    PLACE = 2
    SET = 3
    JOIN = 4
    SET_MEMBERS = 5
    MOVE_DEFAULTS = 6
    ALLOW = 7
    BLOCK = 8
    BLOCK_MEMBERS = 9
    CANCEL_JOBS = 10
    REMOVE_MEMBERS = 11
    DELETE = 12
    CLEAR = 13


class ObjectKind(Enum):
    """Kinds of things on a cluster that actions make, need, end or await."""

    ACCOUNT = "account"
    CHILD = "account below"
    MEMBER = "member"
    DEFAULT = "default account"
    QOS = "QoS"
    FRESH_QOS = "QoS that begins at zero"
    JOBS = "jobs"
    SUBMISSION = "submission"
    DEFAULT_PARTITION = "partition of the default account"


class ObjectRef(NamedTuple):
    """A thing by the fields of an action that name it: its account, and the user or account in that."""

    kind: ObjectKind
    account: str = "account"
    of: str = ""


class ClusterObject(NamedTuple):
    """Something of one account."""

    kind: ObjectKind
    account: str
    # The user or account in it, empty for all of them.
    of: str = ""

    def covers(self, other: ClusterObject) -> bool:
        """Return whether one is the other or a part of it. Submission of an account says nothing of a member's."""
        if self[:2] != other[:2]:
            return False
        return self.of == other.of or (self.kind is not ObjectKind.SUBMISSION and "" in (self.of, other.of))


class _Words(string.Formatter):
    """Writes values as people read them. A format names the word for nothing: `{before:none}`."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return getattr(kwargs["action"], str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, tuple):
            pairs = [f"{each[0]}={each[1]}" for each in value if isinstance(each, tuple)]
            text = " ".join(pairs) if pairs else ",".join(value)
        else:
            text = "" if value is None else str(value)
        return text or format_spec


_WORDS = _Words()


@dataclass(frozen=True, kw_only=True)
class Action:
    """Base of all actions. Each class declares what it means, and its place in a batch (`phase`)."""

    # Where the words of the class's name will not do.
    verb: ClassVar[str]
    # What it is done to, in words, with its fields and properties in braces, and after a colon the word for one that is
    # empty.
    subject: ClassVar[str]
    effect: ClassVar[Effect]
    target: ClassVar[Target]
    # Where it is carried out.
    where: ClassVar[Where]
    # What of the snapshot must have been read whole before it may happen.
    parts: ClassVar[frozenset[Part]]
    # What it can cost people (`charges`: what it really costs in one state).
    costs: ClassVar[frozenset[Cost]]
    # Names by which the journal finds it, with the fields that hold the values.
    identifiers: ClassVar[Mapping[str, str]]
    # What is there after it.
    makes: ClassVar[tuple[ObjectRef, ...]] = ()
    # What must stand before it.
    needs: ClassVar[tuple[ObjectRef, ...]] = ()
    # What is gone after it.
    ends: ClassVar[tuple[ObjectRef, ...]] = ()
    # What must have ended before it.
    awaits: ClassVar[tuple[ObjectRef, ...]] = ()
    # Fields that change by the second.
    fleeting: ClassVar[frozenset[str]] = frozenset()
    # Its figures only grow as jobs go on: only one that gets less makes another action.
    grows: ClassVar[bool] = False

    reason: str = field(default="", compare=False)

    def __init_subclass__(cls) -> None:
        if not cls.__name__.endswith("Action"):  # a base of several
            ACTION_CLASSES[cls.__name__] = cls
            if "verb" not in vars(cls):
                cls.verb = re.sub("(?<!^)(?=[A-Z])", " ", cls.__name__).lower().replace("qos", "QoS")

    @property
    def is_routine(self) -> bool:
        """Return whether it only lets a figure grow, as jobs go on: it needs no line of its own in logs and the
        journal.
        """
        return self.grows and not any(self.decreases())

    @property
    def month_total(self) -> tuple[str, str, Mapping[str, str | None]] | None:
        """Return month, account and amounts of what the journal sums up, in one line for all accounts of a month."""
        return None

    def line(self) -> str:
        """Return verb and subject, without the reason."""
        return f"{self.verb} {self.in_words()}"

    def in_words(self) -> str:
        """Return what it is done to."""
        return _WORDS.vformat(self.subject, (), {"action": self})

    def render(self) -> str:
        return self.line() + (f"  ({self.reason})" if self.reason else "")

    def as_json(self) -> dict[str, Any]:
        return {"action": type(self).__name__, **asdict(self), "text": self.render()}

    def ids(self) -> dict[str, str]:
        """Return what the journal finds it by: order, resource, account and user, those there are."""
        found = {name: getattr(self, holder) for name, holder in self.identifiers.items()}
        return {name: str(value) for name, value in found.items() if value}

    @property
    def for_account(self) -> str:
        """Return the account, or the group of one, for whose sake it happens; empty where there is none."""
        return self.ids().get("account", "")

    @property
    def changed_account(self) -> str:
        """Return the account whose owner must agree; empty where it changes none."""
        return self.for_account

    def objects(self, refs: Iterable[ObjectRef]) -> list[ClusterObject]:
        """Return what these declarations mean for this action; without an account they mean nothing."""
        found = (
            ClusterObject(r.kind, getattr(self, r.account), getattr(self, r.of) if r.of else "") for r in refs
        )
        return [thing for thing in found if thing.account]

    def new_accounts(self) -> tuple[Account, ...]:
        """Return the accounts that it makes on the cluster."""
        return ()

    def new_members(self) -> tuple[Association, ...]:
        """Return the associations that it makes on the cluster."""
        return ()

    def takes_away(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        """Return whether it removes, blocks or lowers something in this state; careful modes leave it out then."""
        return self.effect in (Effect.REMOVE, Effect.BLOCK)

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        """Return whether the declared costs are costs to people in this state."""
        return self.takes_away(snapshot, rules)

    def charges(self, snapshot: Snapshot, rules: PolicyRules) -> tuple[Charge, ...]:
        """Return what it costs people in this state, of the costs that it declares."""
        if not self.costs or not self.is_felt(snapshot, rules):
            return ()
        user = self.ids().get("user", "")
        return tuple(Charge(cost, self.for_account, user) for cost in sorted(self.costs))

    def lowered(self, snapshot: Snapshot) -> Mapping[str, tuple[int | None, int]]:
        """Return the limits that it lowers, by name, with the value now (None: unlimited) and then."""
        return {}

    def used_limits(self, snapshot: Snapshot) -> Mapping[str, tuple[int | None, int]]:
        """Return those of `lowered` against which use counts: below it, the cluster ends running jobs."""
        return {}

    def decreases(self) -> Iterable[tuple[str, str, str]]:
        """Return the figures that would be reported lower to Waldur, each with the amount before and after."""
        return ()


ACCOUNT_ID: Mapping[str, str] = {"account": "account"}
MEMBER_IDS: Mapping[str, str] = {"account": "account", "user": "user"}
TREE = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS})
NO_PARTS: frozenset[Part] = frozenset()
FREE: frozenset[Cost] = frozenset()


class ClusterAction(Action):
    """Done by a backend, on the cluster."""

    where: ClassVar[Where] = Where.CLUSTER
    needs: ClassVar[tuple[ObjectRef, ...]] = (ObjectRef(ObjectKind.ACCOUNT),)
    phase: ClassVar[Phase]

    account: str

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the cluster as it is once this is done. What no snapshot shows changes nothing."""
        return snapshot


@dataclass(frozen=True, kw_only=True)
class CreateAccount(ClusterAction):
    subject = "{account} below {parent}"
    effect, target, phase = Effect.ADD, Target.ACCOUNT, Phase.MAKE
    parts, costs, identifiers = NO_PARTS, FREE, ACCOUNT_ID
    makes = (ObjectRef(ObjectKind.ACCOUNT),)
    needs = (ObjectRef(ObjectKind.ACCOUNT, "parent"),)
    account: str
    parent: str
    description: str = ""
    organization: str = ""

    def new_accounts(self) -> tuple[Account, ...]:
        return (Account(self.account, self.parent),)

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        made = {account.name: account for account in self.new_accounts()}
        return replace(snapshot, accounts={**made, **snapshot.accounts})


@dataclass(frozen=True, kw_only=True)
class MoveAccount(ClusterAction):
    subject = "{account} from {before} to {after}"
    effect, target, phase = Effect.CHANGE, Target.ACCOUNT, Phase.PLACE
    parts, identifiers = frozenset({Part.ACCOUNTS}), ACCOUNT_ID
    costs = frozenset({Cost.ACCOUNTS_MOVED})
    needs = (ObjectRef(ObjectKind.ACCOUNT), ObjectRef(ObjectKind.ACCOUNT, "after"))
    ends = (ObjectRef(ObjectKind.CHILD, "before", "account"),)
    account: str
    before: str
    after: str

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return True

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        return _changed(snapshot, self.account, parent=self.after)


class LimitsAction(ClusterAction):
    """Sets limits by name, of which others stay."""

    effect: ClassVar[Effect] = Effect.CHANGE
    costs: ClassVar[frozenset[Cost]] = frozenset({Cost.LIMITS_CUT})

    # As observed.
    before: tuple[tuple[str, int], ...]
    after: tuple[tuple[str, int], ...]

    @property
    def change(self) -> str:
        """Return what becomes of each limit: `cpu=5->6 mem=none->0`."""
        was = dict(self.before)
        return " ".join(f"{name}={was.get(name, 'none')}->{value}" for name, value in self.after)

    def takes_away(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return bool(self.lowered(snapshot))


@dataclass(frozen=True, kw_only=True)
class SetLimits(LimitsAction):
    """Set limits by name, in the cluster's units (SLURM: GrpTRESMins); others stay."""

    subject = "{account}{place} {change}"
    target, phase = Target.ACCOUNT, Phase.SET
    parts, identifiers = frozenset({Part.ACCOUNTS}), ACCOUNT_ID
    account: str
    # As observed.
    before: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    after: tuple[tuple[str, int], ...]
    # They are set on the QoS that was made for the account.
    on_qos: bool = False

    @property
    def place(self) -> str:
        return " on its QoS" if self.on_qos else ""

    def lowered(self, snapshot: Snapshot) -> Mapping[str, tuple[int | None, int]]:
        """Return the limits that it lowers: an account that is yet to be made loses nothing."""
        standing = snapshot.accounts.get(self.account)
        return lowered_limits(standing.limits, self.after) if standing else {}

    def used_limits(self, snapshot: Snapshot) -> Mapping[str, tuple[int | None, int]]:
        return self.lowered(snapshot)

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        standing = snapshot.accounts.get(self.account)
        limits = standing.limits if standing else {}
        return _changed(
            snapshot, self.account, limits={**limits, **dict(self.after)}, limits_on_qos=self.on_qos
        )


@dataclass(frozen=True, kw_only=True)
class SetUserLimits(LimitsAction):
    """Set limits of one user in an account (SLURM: MaxTRESMins, per job); -1 takes one away."""

    verb = "set limits of user"
    subject = "{user} in {account} {change}"
    target, phase = Target.USER, Phase.SET_MEMBERS
    parts, identifiers = TREE, MEMBER_IDS
    account: str
    user: str
    before: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    after: tuple[tuple[str, int], ...]

    def lowered(self, snapshot: Snapshot) -> Mapping[str, tuple[int | None, int]]:
        if self.account not in snapshot.accounts:
            return {}
        return lowered_limits(snapshot.user_limits.get((self.account, self.user), {}), self.after)

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        place = (self.account, self.user)
        values = {**snapshot.user_limits.get(place, {}), **dict(self.after)}
        kept = {tres: value for tres, value in values.items() if value >= 0}
        limits = {key: value for key, value in snapshot.user_limits.items() if key != place}
        return replace(snapshot, user_limits={**limits, **({place: kept} if kept else {})})


@dataclass(frozen=True, kw_only=True)
class SetQos(ClusterAction):
    """Give an account exactly these QoS; the default is set with them, else SLURM refuses quietly (rc 0)."""

    subject = "{account} {before:none} -> {after} default {default}"
    effect, target, phase = Effect.CHANGE, Target.ACCOUNT, Phase.SET
    parts, identifiers = NO_PARTS, ACCOUNT_ID
    costs = frozenset({Cost.ACCOUNTS_BLOCKED, Cost.ACCOUNTS_DOWNSCALED})
    needs = (ObjectRef(ObjectKind.ACCOUNT), ObjectRef(ObjectKind.QOS), ObjectRef(ObjectKind.FRESH_QOS))
    account: str
    before: tuple[str, ...] = field(default=(), compare=False)
    after: tuple[str, ...]
    default: str

    def takes_away(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        """Return whether the QoS is that of a pause, which stops jobs as blocking does, or of downscaled accounts."""
        return qos_severity(self.default, rules) > 0

    def charges(self, snapshot: Snapshot, rules: PolicyRules) -> tuple[Charge, ...]:
        """Return what it costs. From a pause to being downscaled nothing is lost."""
        standing = snapshot.accounts.get(self.account)
        before = qos_severity(standing.default_qos, rules) if standing else 0
        after = qos_severity(self.default, rules)
        if after <= before:
            return ()
        return (Charge(Cost.ACCOUNTS_BLOCKED if after > 1 else Cost.ACCOUNTS_DOWNSCALED, self.account),)

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        return _changed(snapshot, self.account, qos=frozenset(self.after), default_qos=self.default)


@dataclass(frozen=True, kw_only=True)
class CreateQos(ClusterAction):
    """Make a QoS for one account, named like it."""

    subject = "{account}{details}"
    effect, target, phase = Effect.ADD, Target.CLUSTER, Phase.PLACE
    parts, costs, identifiers = NO_PARTS, FREE, ACCOUNT_ID
    makes = (ObjectRef(ObjectKind.QOS),)
    account: str
    flags: str = ""
    # In the backend's spelling.
    limits: tuple[tuple[str, str], ...] = ()

    @property
    def details(self) -> str:
        words = (self.flags, *(f"{name}={value}" for name, value in self.limits))
        return "".join(f" {word}" for word in words if word)

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        own = {self.account}
        return replace(snapshot, qos=snapshot.qos | own, made_qos=snapshot.made_qos | own)


@dataclass(frozen=True, kw_only=True)
class DeleteQos(ClusterAction):
    """Remove the QoS that was made for an account, after the account itself."""

    subject = "{account}"
    effect, target, phase = Effect.REMOVE, Target.CLUSTER, Phase.CLEAR
    parts, costs, identifiers = TREE | {Part.QOS}, FREE, ACCOUNT_ID
    awaits = (ObjectRef(ObjectKind.ACCOUNT),)
    account: str

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        own = {self.account}
        return replace(snapshot, qos=snapshot.qos - own, made_qos=snapshot.made_qos - own)


@dataclass(frozen=True, kw_only=True)
class AddMember(ClusterAction):
    """Associate a user with an account, in the partitions that are named, or in all."""

    subject = "{user} to {account}{place}"
    effect, target, phase = Effect.ADD, Target.USER, Phase.JOIN
    parts, costs, identifiers = NO_PARTS, FREE, MEMBER_IDS
    makes = (ObjectRef(ObjectKind.MEMBER, of="user"),)
    # No member joins an account whose QoS shall hold its limits and could not begin: there would be none.
    needs = (
        ObjectRef(ObjectKind.ACCOUNT),
        ObjectRef(ObjectKind.ACCOUNT, "default_account"),
        ObjectRef(ObjectKind.FRESH_QOS),
    )
    account: str
    user: str
    # What the user's default shall become, empty to leave that to the cluster.
    default_account: str = ""
    # What it is now, empty for a user who has none, None where that is not known.
    present_default: str | None = field(default=None, compare=False)
    partitions: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    default_qos: str = ""

    @property
    def place(self) -> str:
        return f" on {','.join(self.partitions)}" if self.partitions else ""

    def new_members(self) -> tuple[Association, ...]:
        return tuple(
            Association(self.account, self.user, partition) for partition in self.partitions or ("",)
        )

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the cluster with the member: who has no default account gets the first that they join."""
        default = self.default_account or snapshot.default_accounts.get(self.user) or self.account
        rows = self.new_members() if self.qos else ()
        own = dict.fromkeys(rows, MemberQos(frozenset(self.qos), self.default_qos))
        return replace(
            snapshot,
            associations=snapshot.associations | frozenset(self.new_members()),
            member_qos={**snapshot.member_qos, **own},
            default_accounts={**snapshot.default_accounts, self.user: default},
        )


@dataclass(frozen=True, kw_only=True)
class RemoveMember(ClusterAction):
    """End a user's association."""

    subject = "{user} from {account}"
    effect, target, phase = Effect.REMOVE, Target.USER, Phase.REMOVE_MEMBERS
    parts, identifiers = TREE, MEMBER_IDS
    costs = frozenset({Cost.MEMBERS_REMOVED})
    ends = (ObjectRef(ObjectKind.MEMBER, of="user"),)
    awaits = (ObjectRef(ObjectKind.JOBS, of="user"), ObjectRef(ObjectKind.DEFAULT, of="user"))
    account: str
    user: str
    # It is the user's default account, and the last one they leave.
    is_default: bool = field(default=False, compare=False)

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        left = snapshot.associations - snapshot.rows_of(self.account, self.user)
        kept = {row: own for row, own in snapshot.member_qos.items() if row in left}
        defaults = {
            user: account
            for user, account in snapshot.default_accounts.items()
            if (account, user) != (self.account, self.user)
        }
        return replace(snapshot, associations=left, member_qos=kept, default_accounts=defaults)


@dataclass(frozen=True, kw_only=True)
class MoveDefaultAccount(ClusterAction):
    """Give a user another default account, before the present one (empty: none) goes away."""

    subject = "of {user} from {before:none} to {account}"
    effect, target, phase = Effect.CHANGE, Target.USER, Phase.MOVE_DEFAULTS
    parts, identifiers = frozenset({Part.DEFAULT_ACCOUNTS}), MEMBER_IDS
    costs = frozenset({Cost.DEFAULTS_MOVED})
    needs = (ObjectRef(ObjectKind.ACCOUNT), ObjectRef(ObjectKind.MEMBER, of="user"))
    ends = (ObjectRef(ObjectKind.DEFAULT, "before", "user"),)
    account: str
    user: str
    before: str

    @property
    def for_account(self) -> str:
        """Return the account that is left: for its sake the default account moves."""
        return self.before or self.account

    @property
    def changed_account(self) -> str:
        """Return the account that is left: who gets a first default account changes none."""
        return self.before

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return bool(self.before)

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, default_accounts={**snapshot.default_accounts, self.user: self.account})


@dataclass(frozen=True, kw_only=True)
class BlockSubmission(ClusterAction):
    """No new jobs in this account (GrpSubmitJobs=0); running ones go on."""

    subject = "{account}"
    effect, target, phase = Effect.BLOCK, Target.ACCOUNT, Phase.BLOCK
    parts, identifiers = NO_PARTS, ACCOUNT_ID
    costs = frozenset({Cost.ACCOUNTS_BLOCKED})
    ends = (ObjectRef(ObjectKind.SUBMISSION),)
    account: str

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        standing = snapshot.accounts.get(self.account)
        return standing is None or standing.submit_limit != 0

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        return _changed(snapshot, self.account, submit_limit=0)


@dataclass(frozen=True, kw_only=True)
class AllowSubmission(ClusterAction):
    """New jobs are possible again (GrpSubmitJobs=-1)."""

    subject = "{account}"
    makes = (ObjectRef(ObjectKind.SUBMISSION),)
    effect, target, phase = Effect.CHANGE, Target.ACCOUNT, Phase.ALLOW
    parts, costs, identifiers = NO_PARTS, FREE, ACCOUNT_ID
    account: str

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        return _changed(snapshot, self.account, submit_limit=None)


@dataclass(frozen=True, kw_only=True)
class BlockMember(ClusterAction):
    """No new jobs of one user in this account (MaxSubmitJobs=0), until their association goes."""

    subject = "{user} in {account}"
    effect, target, phase = Effect.BLOCK, Target.USER, Phase.BLOCK_MEMBERS
    parts, identifiers = TREE, MEMBER_IDS
    costs = frozenset({Cost.MEMBERS_REMOVED})
    ends = (ObjectRef(ObjectKind.SUBMISSION, of="user"),)
    account: str
    user: str


@dataclass(frozen=True, kw_only=True)
class AllowMember(ClusterAction):
    """A user whom we blocked came back before they were out: new jobs are possible again."""

    subject = "{user} in {account}"
    makes = (ObjectRef(ObjectKind.SUBMISSION, of="user"),)
    effect, target, phase = Effect.CHANGE, Target.USER, Phase.ALLOW
    parts, costs, identifiers = NO_PARTS, FREE, MEMBER_IDS
    account: str
    user: str


@dataclass(frozen=True, kw_only=True)
class CancelJobs(ClusterAction):
    """Cancel the jobs of an account, or of one user in it, and wait for a bounded time until they have ended."""

    subject = "{whose}"
    effect, target, phase = Effect.REMOVE, Target.ACCOUNT, Phase.CANCEL_JOBS
    parts, identifiers = TREE, MEMBER_IDS
    costs = frozenset({Cost.JOBS_CANCELLED})
    ends = (ObjectRef(ObjectKind.JOBS, of="user"),)
    awaits = (ObjectRef(ObjectKind.SUBMISSION, of="user"),)
    fleeting = frozenset({"jobs"})
    account: str
    user: str = ""
    jobs: int | None = field(default=None, compare=False)

    @property
    def whose(self) -> str:
        whose = f"of {self.user} in {self.account}" if self.user else f"of {self.account}"
        return whose + (f" ({self.jobs} active)" if self.jobs is not None else "")

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        """Return whether there may be jobs: those that were not counted may be many."""
        return self.jobs != 0

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        users = {
            (account, user): jobs
            for (account, user), jobs in snapshot.active_users.items()
            if account != self.account or self.user not in ("", user)
        }
        left = sum(jobs for (account, _), jobs in users.items() if account == self.account)
        return replace(snapshot, active_jobs={**snapshot.active_jobs, self.account: left}, active_users=users)


@dataclass(frozen=True, kw_only=True)
class DeleteAccount(ClusterAction):
    subject = "{account} below {parent}"
    effect, target, phase = Effect.REMOVE, Target.ACCOUNT, Phase.DELETE
    parts, identifiers = TREE, ACCOUNT_ID
    costs = frozenset({Cost.ACCOUNTS_EMPTIED})
    ends = (ObjectRef(ObjectKind.ACCOUNT), ObjectRef(ObjectKind.CHILD, "parent", "account"))
    awaits = (
        ObjectRef(ObjectKind.MEMBER),
        ObjectRef(ObjectKind.CHILD),
        ObjectRef(ObjectKind.JOBS),
        ObjectRef(ObjectKind.DEFAULT),
        ObjectRef(ObjectKind.SUBMISSION),
    )
    account: str
    parent: str = field(compare=False)

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        """Return whether it has no accounts below it: with some it only goes after them."""
        return not snapshot.children_of(self.account)

    def applied_to(self, snapshot: Snapshot) -> Snapshot:
        kept = {name: account for name, account in snapshot.accounts.items() if name != self.account}
        return replace(snapshot, accounts=kept)


Chosen = TypeVar("Chosen", bound=Action)


def only(kind: type[Chosen], actions: Iterable[Action]) -> list[Chosen]:
    """Return the actions of one kind, in their order."""
    return [action for action in actions if isinstance(action, kind)]


def objects_made(actions: Iterable[Action], *kinds: ObjectKind) -> Iterator[ClusterObject]:
    """Yield the things of these kinds that actions make."""
    return (thing for action in actions for thing in action.objects(action.makes) if thing.kind in kinds)


def objects_ended(actions: Iterable[Action], *kinds: ObjectKind) -> Iterator[ClusterObject]:
    """Yield the things of these kinds that actions end."""
    return (thing for action in actions for thing in action.objects(action.ends) if thing.kind in kinds)


Several = TypeVar("Several", bound=Sequence[Action])


def fully_shown(actions_of: Mapping[str, Several], shown: frozenset[Action] | None) -> dict[str, Several]:
    """Return those all of whose actions a person was `shown`; all where it is None."""
    return {of: some for of, some in actions_of.items() if shown is None or shown.issuperset(some)}


def qos_severity(qos: str, rules: PolicyRules) -> int:
    """Return how far a QoS limits jobs: 0 as usual, 1 as that of a downscaled account, 2 as that of a pause."""
    name = fold(qos)
    return 2 if name in rules.pausing_qos else int(name in rules.downscaling_qos)


def lowered_limits(
    now: Mapping[str, int], after: Iterable[tuple[str, int]]
) -> dict[str, tuple[int | None, int]]:
    """Return the limits that get less, each with the value now (None: unlimited) and then; -1 is no limit."""
    found: dict[str, tuple[int | None, int]] = {}
    for name, value in after:
        limit = now.get(name, -1)
        if value >= 0 and (limit < 0 or value < limit):
            found[name] = (limit if limit >= 0 else None, value)
    return found


def _changed(snapshot: Snapshot, account: str, **values: Any) -> Snapshot:
    """Return the snapshot with other values of one account, where that stands."""
    standing = snapshot.accounts.get(account)
    if standing is None:
        return snapshot
    return replace(snapshot, accounts={**snapshot.accounts, account: replace(standing, **values)})
