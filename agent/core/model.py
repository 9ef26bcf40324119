# SPDX-License-Identifier: MIT
"""What Waldur says (orders, resources, members) and what a cluster holds (accounts, associations).

Plain frozen values without behaviour of their own; uuids are 32 hex digits, cluster names are in the
spelling of the cluster. Sources: Waldur's REST API 8.0.5 and `sacctmgr show assoc` of SLURM 22.05.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, StrEnum
from functools import cached_property
from typing import Any, Self, TypeVar

from agent.core.associations import Association, Associations
from agent.core.components import AccountingType as AccountingType
from agent.core.components import Component as Component
from agent.core.errors import BackendUnavailable

Key = TypeVar("Key")
Value = TypeVar("Value")
OneOrMore = str | Sequence[str]


class LenientEnum(StrEnum):
    """An enumeration that newer servers may extend: a word it does not know becomes UNKNOWN."""

    @classmethod
    def _missing_(cls, _value: object) -> Self | None:
        return cls.__members__.get("UNKNOWN")


class OrderState(LenientEnum):
    PENDING_CONSUMER = "pending-consumer"
    PENDING_PROVIDER = "pending-provider"
    PENDING_PROJECT = "pending-project"
    PENDING_START_DATE = "pending-start-date"
    EXECUTING = "executing"
    DONE = "done"
    ERRED = "erred"
    CANCELED = "canceled"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


class OrderType(LenientEnum):
    CREATE = "Create"
    UPDATE = "Update"
    TERMINATE = "Terminate"
    RESTORE = "Restore"
    UNKNOWN = "unknown"


class ResourceState(LenientEnum):
    CREATING = "Creating"
    OK = "OK"
    ERRED = "Erred"
    UPDATING = "Updating"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Order:
    """An order as Waldur lists it."""

    uuid: str
    type: OrderType
    state: OrderState
    resource_uuid: str
    resource_name: str = ""
    project_slug: str = ""
    plan_uuid: str = ""
    # The values exactly as they came, judged by the planner.
    limits: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    created: datetime | None = None
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """An allocation in Waldur."""

    uuid: str
    name: str
    slug: str
    state: ResourceState
    # The name of its account, empty until it is claimed.
    backend_id: str = ""
    project_uuid: str = ""
    project_slug: str = ""
    project_name: str = ""
    customer_uuid: str = ""
    customer_slug: str = ""
    customer_name: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)
    # By component and period, as they came.
    spending_limits: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    plugin_options: Mapping[str, Any] = field(default_factory=dict)
    backend_metadata: Mapping[str, Any] = field(default_factory=dict)
    paused: bool = False
    downscaled: bool = False
    restrict_member_access: bool = False
    # A server of 2024 keeps a second object behind it, with a state of its own.
    has_allocation: bool = False
    error_message: str = ""
    last_sync: datetime | None = None
    created: datetime | None = None
    end_date: datetime | None = None
    offering_uuid: str = ""
    has_api_keys: bool = False


@dataclass(frozen=True, slots=True)
class TeamMember:
    """A person of a resource's project."""

    user_uuid: str
    # The name on the cluster, empty while unknown.
    username: str = ""
    offering_user_state: str = ""
    # As Waldur names it, of several any.
    role: str = field(default="", compare=False)


class Deletion(StrEnum):
    """The states of an offering user on the way out, as Waldur spells them (since 7.7.4)."""

    REQUESTED = "Requested deletion"
    DELETING = "Deleting"
    FAILED = "Error deleting"
    DELETED = "Deleted"


DELETIONS = frozenset(Deletion)


@dataclass(frozen=True, slots=True)
class PosixAccount:
    """What Waldur says of a person's account on hosts: None, or an empty text, where it has no value."""

    uid: int | None = None
    gid: int | None = None
    home: str = ""
    shell: str = ""


@dataclass(frozen=True, slots=True)
class OfferingUser:
    """A person's account at the offering. Names and e-mail are empty where the person or the provider does not expose
    them.
    """

    uuid: str
    user_uuid: str
    # The name on the cluster, empty until it is made.
    username: str
    state: str = ""
    is_restricted: bool = False
    # The person's login in Waldur (a CUID in federations).
    waldur_username: str = ""
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    # What an account that is OK waits for, empty where it is in use or the server does not report it (before 8.1).
    runtime_state: str = ""
    # None where the server does not report it.
    posix: PosixAccount | None = None
    # The name that the site's directory still has, where a renaming has not happened yet; None where it is unknown
    # which one that is.
    directory_name: str | None = ""
    # Those that may be the directory's where that is unknown.
    possible_names: frozenset[str] = frozenset()
    # Waldur's name is that of another user there.
    is_name_taken: bool = False

    @property
    def key(self) -> str:
        """Return what the user is found by: the own uuid, or the person's where that is not reported."""
        return self.uuid or self.user_uuid

    @property
    def cluster_name(self) -> str:
        """Return the name on the cluster: where the directory has another one than Waldur, that, if it is known."""
        return self.directory_name or self.username

    @property
    def is_on_the_way_out(self) -> bool:
        """Return whether Waldur wants the account deleted, or has it so already."""
        return self.state in DELETIONS

    @property
    def may_only_stay(self) -> bool:
        """Return whether the user joins nothing and, while in a team, leaves nothing."""
        return self.is_restricted or self.is_on_the_way_out or self.is_name_taken

    @property
    def may_use(self) -> bool:
        """Return whether the account is ready for use. Servers of 2024 have no states: a name is enough there."""
        return bool(self.username) and self.state in ("OK", "") and not self.is_restricted


@dataclass(frozen=True, slots=True)
class KeyCommand:
    """What Waldur wants done with a key of a resource."""

    uuid: str
    resource_uuid: str
    state: str
    # `create`, `rotate`, `pause`, `resume`, `update`, `delete`.
    action: str
    # Its name on the cluster, empty until it is made.
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class OfferingFacts:
    """What Waldur itself says of an offering."""

    uuid: str
    name: str = ""
    state: str = ""
    backend_id: str = ""
    customer_uuid: str = ""
    customer_name: str = ""
    components: tuple[WaldurComponent, ...] = ()
    partitions: tuple[str, ...] = ()
    # Those it offers at all.
    qos: tuple[str, ...] = ()
    # Of partitions that do not take them all.
    partition_qos: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plugin_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def billing_types(self) -> dict[str, str]:
        """Return how each component is billed, by its type: `usage`, `limit`, `fixed`, `one`."""
        return {c.type: str(c.fields.get("billing_type") or "") for c in self.components}


@dataclass(frozen=True, slots=True)
class WaldurComponent:
    """A component as the offering has it in Waldur."""

    uuid: str
    type: str
    # The raw values by API name.
    fields: Mapping[str, Any] = field(default_factory=dict)


class Part(Enum):
    """A part of the cluster's state that one read brings; a planner removes nothing from a part not read."""

    ACCOUNTS = "accounts"
    ASSOCIATIONS = "associations"
    DEFAULT_ACCOUNTS = "default accounts"
    TRES = "tres"
    JOBS = "jobs"
    QOS = "QoS"
    USER_LIMITS = "limits of users"
    USAGE = "usage against limits"
    PARTITIONS = "partitions"


TREE_PARTS = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS, Part.USER_LIMITS})


@dataclass(frozen=True, slots=True)
class Account:
    """An account that has an association on our cluster."""

    name: str
    parent: str | None
    # By name, in the cluster's units (SLURM: GrpTRESMins by TRES, in TRES-minutes, megabyte-minutes of memory).
    limits: Mapping[str, int] = field(default_factory=dict)
    # Its own and its own default, empty where it has those of the account above.
    qos: frozenset[str] = frozenset()
    default_qos: str = ""
    # Jobs that it takes (GrpSubmitJobs), None when unset.
    submit_limit: int | None = None
    # What the limits can be lowered to, where that is not nothing.
    least: Mapping[str, int] = field(default_factory=dict)
    # What people should know about it.
    remarks: tuple[str, ...] = ()
    # Its limits are those of the QoS that was made for it.
    limits_on_qos: bool = False


@dataclass(frozen=True, slots=True)
class MemberQos:
    """The QoS that one association has of its own, and its default."""

    names: frozenset[str] = frozenset()
    default: str = ""


@dataclass(frozen=True)
class Snapshot:
    """What the cluster held at one moment."""

    cluster: str
    accounts: Mapping[str, Account] = field(default_factory=dict)
    associations: Set[Association] = frozenset()
    default_accounts: Mapping[str, str] = field(default_factory=dict)
    tres: frozenset[str] = frozenset()
    # Jobs by account, and by (account, user), of the accounts that were asked about (part JOBS).
    active_jobs: Mapping[str, int] = field(default_factory=dict)
    active_users: Mapping[tuple[str, str], int] = field(default_factory=dict)
    qos: frozenset[str] = frozenset()
    # Those of `qos` that say themselves that they were made for the account of their name, and those made for that of
    # another cluster: all clusters of a slurmdbd share their QoS.
    made_qos: frozenset[str] = frozenset()
    foreign_qos: frozenset[str] = frozenset()
    # Limits of made QoS that shall hold none (part QOS).
    qos_limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # Of associations that have their own QoS (part ASSOCIATIONS).
    member_qos: Mapping[Association, MemberQos] = field(default_factory=dict)
    # Those that take no jobs (SLURM: GrpSubmitJobs=0 of a user's association; part ASSOCIATIONS).
    closed: frozenset[Association] = frozenset()
    # Of these, the ones that have all marks of a default account that was put aside (SLURM: MaxSubmitJobs=0 and
    # fairshare=parent as well). Empty where the marks were not read.
    put_aside: frozenset[Association] = frozenset()
    # Asked for where a plan names some (part PARTITIONS).
    partitions: frozenset[str] = frozenset()
    # Limits of single users (SLURM: MaxTRESMins) by (account, user), where there are any (part USER_LIMITS, which a
    # cluster that keeps none never has).
    user_limits: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)
    # What counts against the limits of the accounts asked about (part USAGE).
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # The parts that were read whole.
    complete: frozenset[Part] = frozenset()
    # Parts that come from elsewhere than the accounting database and could not be read now, with the reason; what needs
    # one waits.
    unread: Mapping[Part, str] = field(default_factory=dict)

    def require(self, *parts: Part) -> None:
        """Raise BackendUnavailable where one of these parts was not read whole: unknown is never absent."""
        unread = ", ".join(part.value for part in parts if part not in self.complete)
        if unread:
            raise BackendUnavailable(
                f"cluster {self.cluster}: {unread} could not be read, nothing is decided now"
            )

    def with_usage(self, seen: Snapshot) -> Snapshot:
        """Return this snapshot with the jobs and the use of limits of the accounts that another look was about."""
        return replace(
            self,
            active_jobs={**self.active_jobs, **seen.active_jobs},
            active_users={**self.active_users, **seen.active_users},
            used={**self.used, **seen.used},
            complete=self.complete | (seen.complete & {Part.JOBS, Part.USAGE}),
            unread={**self.unread, **seen.unread},
        )

    def with_tree(self, seen: Snapshot) -> Snapshot:
        """Return this snapshot of a part of the tree with the accounts and associations of a look at all of it."""
        return replace(
            self,
            accounts={**self.accounts, **seen.accounts},
            associations=self.associations | seen.associations,
            complete=self.complete | (seen.complete & {Part.ACCOUNTS, Part.ASSOCIATIONS}),
        )

    def with_names(self, seen: Snapshot) -> Snapshot:
        """Return this snapshot with the lists of QoS and partitions that another look has brought."""
        found = seen.complete & {Part.QOS, Part.PARTITIONS}
        changes: dict[str, Any] = {}
        if Part.QOS in found:
            changes |= {"qos": seen.qos, "made_qos": seen.made_qos, "foreign_qos": seen.foreign_qos}
            changes |= {"qos_limits": seen.qos_limits}
        if Part.PARTITIONS in found:
            changes |= {"partitions": seen.partitions}
        return replace(self, complete=self.complete | found, **changes)

    def merged_into(self, before: Snapshot, accounts: Set[str], users: Set[str]) -> Snapshot:
        """Return this look, which was about these accounts with all that is in them and the default accounts of these
        users, with the rest of the tree as it was before. What the look did not find is gone.
        """
        tree = self.complete & before.complete & TREE_PARTS
        return replace(
            self,
            accounts=_instead(before.accounts, self.accounts, lambda name: name in accounts),
            associations=before._rows.with_accounts(self._rows, accounts),
            user_limits=_instead(before.user_limits, self.user_limits, lambda at: at[0] in accounts),
            member_qos=_instead(before.member_qos, self.member_qos, lambda row: row.account in accounts),
            closed=self.closed | {row for row in before.closed if row.account not in accounts},
            put_aside=self.put_aside | {row for row in before.put_aside if row.account not in accounts},
            default_accounts=_instead(
                before.default_accounts, self.default_accounts, lambda name: name in users
            ),
            complete=self.complete - TREE_PARTS | tree,
        )

    def has_own_qos(self, account: str) -> bool:
        """Return whether the QoS of an account's name was made for it: it says so, or no other account can use it."""
        if account not in self.qos or account in self.foreign_qos:
            return False
        is_ours = account in self.accounts and self.users_of_qos(account) <= {account}
        return account in self.made_qos or is_ours

    def users_of_qos(self, qos: str) -> frozenset[str]:
        """Return the accounts that have this QoS of their own, or with a member who has."""
        return self._of_qos.get(qos, frozenset())

    def rows_of(self, account: str, user: str) -> frozenset[Association]:
        """Return the associations of a user in an account."""
        return self._rows.rows_of(account, user)

    def users_of(self, account: str) -> frozenset[str]:
        return self._rows.users_of(account)

    def members(self) -> Iterator[tuple[str, str]]:
        """Yield each account with each of its users once, on however many partitions."""
        return self._rows.members()

    def accounts_of(self, user: str) -> frozenset[str]:
        return _values(self._accounts_by_user.get(user, ()))

    def children_of(self, account: str) -> frozenset[str]:
        return _values(self._children.get(account, ()))

    def above(self, account: str) -> list[str]:
        """Return the accounts above an account, the nearest first."""
        found: list[str] = []
        while (place := self.accounts.get(account)) and place.parent and place.parent not in found:
            account = place.parent
            found.append(account)
        return found

    def qos_of(self, account: str) -> frozenset[str]:
        """Return the QoS that an account has, its own or those of the nearest account above it that has any."""
        found = self._nearest(account, lambda a: bool(a.qos))
        return found.qos if found else frozenset()

    def default_qos_of(self, account: str) -> str:
        """Return the default QoS that counts for an account, empty where neither it nor an account above it has one."""
        found = self._nearest(account, lambda a: bool(a.default_qos))
        return found.default_qos if found else ""

    def refuses_jobs(self, account: str) -> bool:
        """Return whether no user can submit in an account: it, or one above it, takes no jobs (GrpSubmitJobs=0)."""
        return self._nearest(account, lambda a: a.submit_limit == 0) is not None

    def _nearest(self, account: str, has: Callable[[Account], bool]) -> Account | None:
        """Return the account or the first above it for which `has` holds. Rows that contradict each other may lead in a
        circle: no way is longer than there are accounts.
        """
        place = self.accounts.get(account)
        for _ in self.accounts:
            if place is None or has(place):
                return place
            place = self.accounts.get(place.parent or "")
        return None

    @cached_property
    def _rows(self) -> Associations:
        found = self.associations
        return found if isinstance(found, Associations) else Associations(found)

    @cached_property
    def _of_qos(self) -> Mapping[str, frozenset[str]]:
        of_accounts = ((qos, a.name) for a in self.accounts.values() for qos in {a.default_qos, *a.qos})
        of_members = (
            (qos, row.account) for row, own in self.member_qos.items() for qos in {own.default, *own.names}
        )
        return _grouped((qos, account) for qos, account in (*of_accounts, *of_members) if qos)

    @cached_property
    def _accounts_by_user(self) -> Mapping[str, OneOrMore]:
        return _listed((user, account) for account, user in self.members())

    @cached_property
    def _children(self) -> Mapping[str, OneOrMore]:
        return _listed((a.parent, a.name) for a in self.accounts.values() if a.parent)


def _instead(
    before: Mapping[Key, Value], now: Mapping[Key, Value], is_meant: Callable[[Key], bool]
) -> dict[Key, Value]:
    """Return what was before, with what is now of the keys that are meant."""
    kept = {key: value for key, value in before.items() if not is_meant(key)}
    return kept | {key: value for key, value in now.items() if is_meant(key)}


def _grouped(pairs: Iterable[tuple[Key, Value]]) -> Mapping[Key, frozenset[Value]]:
    groups: dict[Key, set[Value]] = defaultdict(set)
    for key, value in pairs:
        groups[key].add(value)
    return {key: frozenset(values) for key, values in groups.items()}


def _listed(pairs: Iterable[tuple[str, str]]) -> Mapping[str, OneOrMore]:
    """Group values by key, in a tenth of the memory that sets take: of users there are tens of thousands, most of them
    in one account. A value may be listed twice.
    """
    groups: dict[str, str | list[str]] = {}
    for key, value in pairs:
        known = groups.setdefault(key, value)
        if isinstance(known, list):
            known.append(value)
        elif known is not value:
            groups[key] = [known, value]
    return groups


def _values(found: OneOrMore) -> frozenset[str]:
    return frozenset((found,) if isinstance(found, str) else found)


@dataclass(frozen=True, slots=True)
class AccountSpec:
    """An account that must stand below its parent; description and organization are for people."""

    name: str
    parent: str
    description: str = ""
    organization: str = ""


@dataclass(frozen=True, slots=True)
class RequestedState:
    """What Waldur requests for the associations and the state of an allocation. The backend's settings decide which of
    it counts.
    """

    # QoS and partition are the customer's words, of any value; the others are what the offering has.
    qos: str = ""
    partition: str = ""
    offering_partitions: tuple[str, ...] = ()
    offering_qos: tuple[str, ...] = ()
    partition_qos: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    offering_enforces_qos: bool = False
    paused: bool = False
    downscaled: bool = False


@dataclass(frozen=True, slots=True)
class StateSpec:
    """How an account shows its state."""

    # What it shall have alone, its default too; empty to leave that.
    qos: tuple[str, ...] = ()
    default_qos: str = ""
    # Change the QoS only where the account has one of these, empty for always.
    only_from: frozenset[str] = frozenset()
    # Whether new jobs are taken, None to leave that.
    submission: bool | None = None
    # It is reported to Waldur in any case.
    is_always_reported: bool = False
    # It is not reported.
    is_unclear: bool = False


@dataclass(frozen=True, slots=True)
class OwnQos:
    """A QoS made for one account and named like it."""

    name: str
    flags: str = ""
    # In the backend's spelling.
    limits: tuple[tuple[str, str], ...] = ()
    additional: tuple[str, ...] = ()
    # Those that Waldur gives the account are the QoS's, too.
    holds_limits: bool = False


@dataclass(frozen=True, slots=True)
class AllocationSpec:
    """All that one allocation needs on a cluster: its account, the accounts above it, limits and members."""

    account: AccountSpec
    ancestors: tuple[AccountSpec, ...] = ()
    # By name in the cluster's units.
    limits: Mapping[str, int] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    # From it and its settings the backend's `canonical` fills in all that follows, except notes.
    requested: RequestedState = field(default_factory=RequestedState)
    # Of its members.
    default_account: str = ""
    # Partitions and QoS of its associations.
    partitions: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    default_qos: str = ""
    own_qos: OwnQos | None = None
    state: StateSpec = field(default_factory=StateSpec)
    # Sentences on what the order names and may not have, and does not get.
    not_offered: tuple[str, ...] = ()
    # Why no association can be made now, where the site has to correct something first.
    unplaced: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Health:
    """What `check` found."""

    version: str = ""
    cluster: str = ""
    # They stop the backend.
    problems: tuple[str, ...] = ()
    # They do not stop it.
    warnings: tuple[str, ...] = ()
    # Releases of the cluster's programs, what of them is used, and what newer ones would bring; empty where unknown.
    release: str = ""
