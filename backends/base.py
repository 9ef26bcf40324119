# SPDX-License-Identifier: MIT
"""Protocols of a backend. Third parties implement `Backend` and register a `Plugin` (docs/write-a-backend.md).

`observe` returns what it read or raises; it never returns a part as if it were the whole. `apply` returns
one outcome per action and raises only where nothing was tried at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from agent.config.model import Problem
from agent.config.secret import Secret
from agent.core.actions import ClusterAction, ObjectKind, objects_ended
from agent.core.checks import Check
from agent.core.model import AllocationSpec, Component, Health, Part, Snapshot
from agent.core.periodic import DesiredSettings, ObservedSettings
from agent.core.plans import Outcome
from agent.core.usage import Counts, FinalisedUsage, JobUse, Usage, UsageQuery

Hint = TypeVar("Hint")

NAMES = frozenset({Part.QOS, Part.PARTITIONS})
BULK_PARTS = frozenset(
    {Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS, Part.TRES, Part.QOS, Part.USER_LIMITS}
)


@dataclass(frozen=True, slots=True)
class Reread:
    """What is read again of a tree: these accounts with all in them, and the default accounts of these users."""

    # The tree as it was read.
    before: Snapshot
    accounts: frozenset[str]
    users: frozenset[str]
    # Accounts of which those right below are read as well, which others may have made: those that were to end, and the
    # ones above these.
    with_children: frozenset[str] = frozenset()

    @classmethod
    def touched(cls, before: Snapshot, actions: Iterable[ClusterAction]) -> Reread:
        """Return what actions may have changed."""
        some = tuple(actions)
        things = (t for a in some for t in a.objects((*a.makes, *a.needs, *a.ends)))
        accounts = frozenset({*(action.account for action in some), *(thing.account for thing in things)})
        users = frozenset(action.ids().get("user", "") for action in some) - {""}
        deletions = [action for action in some if any(objects_ended([action], ObjectKind.ACCOUNT))]
        around = objects_ended(deletions, ObjectKind.ACCOUNT, ObjectKind.CHILD)
        return cls(before, accounts, users, frozenset(thing.account for thing in around))


@dataclass(frozen=True, slots=True)
class Scope:
    """Parts of the cluster to read whole; and the accounts whose active jobs, or use of limits, to read."""

    parts: frozenset[Part] = BULK_PARTS
    jobs_of: frozenset[str] = frozenset()
    usage_of: frozenset[str] = frozenset()
    # QOS and PARTITIONS where their lists are needed to see whether a name is one of them.
    names: frozenset[Part] = frozenset()
    # Where nothing else of the tree can have changed; a backend may read these parts whole all the same.
    reread: Reread | None = None


class AccountMarks(Protocol):
    """A set of accounts that outlives the process. Each method raises StateError where it cannot be read or written."""

    def __contains__(self, account: str, /) -> bool: ...

    def add(self, account: str, /) -> None: ...

    def discard(self, account: str, /) -> None: ...


def marks_of_this_process(_backend: str, _mark: str) -> AccountMarks:
    """Return a set that ends with its owner, for a backend without a host program."""
    return set()


class ClusterHints(Protocol[Hint]):
    """What was learnt of a cluster, by name; it outlives the process, and may be lost without harm."""

    def read(self) -> Mapping[str, Hint]: ...

    def write(self, news: Mapping[str, Hint], /) -> object: ...


class HintsOfThisProcess(dict[str, Hint]):
    """Hints that end with their owner, for a backend without a host program."""

    read = dict.copy
    write = dict.update


@dataclass(frozen=True, slots=True)
class BackendContext:
    """Values that the host program gives every backend."""

    offering_uuid: str
    # Holds the lock files of writes.
    state_dir: Path
    timezone: str = "UTC"
    # For the locks that agents of this host with another state_dir must see as well, None where there is no such
    # folder.
    lock_dir: Path | None = None
    # It works for orders, whose writes come before those of others.
    is_urgent: bool = False
    # Return the accounts with a mark; the first argument says whose accounts these are, for two offerings may share one
    # accounting system.
    marks: Callable[[str, str], AccountMarks] = marks_of_this_process
    # Return the seconds that the commands of a cluster took lately, by its name.
    costs: Callable[[str], ClusterHints[float]] = lambda _cluster: HintsOfThisProcess()
    # What the programs of clusters show of their trees, by the name of the cluster.
    tree_columns: ClusterHints[str] = field(default_factory=HintsOfThisProcess)
    # The name of the cluster where the settings have none: the one under which it was seen last, or that other
    # offerings give it.
    seen_cluster: str = ""


class Backend(Protocol):
    """Any object that reads one cluster and changes it. It knows nothing of Waldur, orders or Celery."""

    @property
    def cluster(self) -> str:
        """Return the cluster's name, in lower case: by it passes remember what they did there."""
        ...

    @property
    def default_account(self) -> str:
        """Name the account that users' defaults go back to, in the cluster's spelling; no allocation's own."""
        ...

    @property
    def executed(self) -> Counter[str]:
        """Return how many reads and writes were started so far, by kind (`read`, `write`)."""
        ...

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        """Read the cluster as it is now, in a constant number of reads, however many accounts it has.

        `Snapshot.complete` lists only parts that were read whole. `scope.reread` names what changes were about: only
        that need be read again, and it may be ignored as a whole; `Snapshot.merged_into` adds the rest of the tree from
        `scope.reread.before`, and no part is complete that was not before. Where only the jobs of `scope.jobs_of`
        cannot be read, JOBS is not in `complete` and `unread` has the reason: removals wait, all else goes on.
        Raises BackendUnavailable where the cluster does not answer: unknown is never absent. Raises BackendError.
        """
        ...

    def canonical(self, spec: AllocationSpec, snapshot: Snapshot) -> AllocationSpec:
        """Return the desired state in this cluster's spelling: names folded, accounts placed below the root account.

        What the cluster cannot keep is omitted, and `notes` say so. Doing it twice changes nothing. Raises PlanRefused
        where a name or a value can never be used here.
        """
        ...

    def prepare(self) -> None:
        """Check that `apply` can begin on this host, before anything is reported to Waldur. Raises BackendError."""
        ...

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        """Carry the actions out, merged into as few commands as possible, and return one outcome for each.

        What is so already is done, and what is gone already is done. An error in one action stops no other. Raises
        BackendError only where nothing was tried at all.
        """
        ...

    def commands(self, actions: Sequence[ClusterAction]) -> Sequence[str]:
        """Return the commands with which `apply` would change the cluster, as a shell takes them; one may have
        several lines (a here-document). What it only asks before is omitted. Changes nothing; may ask, and so raise
        BackendError.
        """
        ...

    def check(self) -> Health:
        """Return the version, the cluster's name, and what keeps this host from reading and writing it.

        Raises BackendUnavailable where that is unknown now.
        """
        ...


@runtime_checkable
class Paced(Protocol):
    """A backend that estimates how long changes will take; found by `isinstance`."""

    def expected_s(self, actions: Sequence[ClusterAction]) -> float:
        """Return about how many seconds `apply` will be at work, without waiting for others. Changes nothing."""
        ...


@runtime_checkable
class UsageReader(Protocol):
    """A backend that reads what was used; found by `isinstance`."""

    def usage(self, query: UsageQuery) -> Usage:
        """Read one month of all accounts, in one command however many they are. Raises BackendError: an answer that is
        broken anywhere is none.
        """
        ...

    def usage_command(self, query: UsageQuery, account: str) -> str:
        """Return the command, as a shell takes it, by which a person can check the month of one account."""
        ...


class UsageCount(Protocol):
    """One report's count of several months, the newest first."""

    @property
    def finalised(self) -> FinalisedUsage | None:
        """Return what the next count needs; the same object as before where nothing of it changed."""
        ...

    def usage(self, query: UsageQuery) -> Usage:
        """Return the same as `UsageReader.usage`, from fewer jobs where that is certain. Raises BackendError."""
        ...


@runtime_checkable
class UsageCounter(UsageReader, Protocol):
    """A backend that need not read every job of a month in every report; found by `isinstance`."""

    def count(self, finalised: FinalisedUsage | None, now: datetime, *, may_be_large: bool) -> UsageCount:
        """Begin the count of one report. `finalised`: what the last one left. `may_be_large`: whether a month may be
        too large to read it all each time, where no count has been made yet.
        """
        ...


@runtime_checkable
class LateUsage(UsageReader, Protocol):
    """A backend whose usage knows a job's end some time after it; found by `isinstance`."""

    @property
    def ends_known_after_s(self) -> float:
        """Return how long after jobs were cancelled their last usage can be read."""
        ...


@runtime_checkable
class ChargeReader(UsageReader, Protocol):
    """A backend whose usage is what its accounting charged, whatever `query.source` says; found by `isinstance`."""

    @property
    def charged(self) -> str:
        """Say in words what is counted."""
        ...


@runtime_checkable
class JobReader(Protocol):
    """A backend that reads single jobs, to explain figures; found by `isinstance`."""

    def job_uses(self, query: UsageQuery, ids: Sequence[str]) -> Sequence[JobUse]:
        """Return what these jobs count in the month now, each run of a requeued job on its own, as in `Usage.live`;
        one that is not named is known no more. Raises BackendError.
        """
        ...


@runtime_checkable
class UsageCheck(Protocol):
    """A backend that can count a month a second time, from other records; found by `isinstance`."""

    def rolled_up(self, query: UsageQuery) -> Usage:
        """Read what was given (AllocTRES, whatever `query.source` is) in a closed month, as the cluster's own summary
        has it. It is exact when the month has been summed up, and may be short before; no records at all say nothing.
        Raises BackendError, also where this month cannot be asked for without harm.
        """
        ...


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A key as it was issued."""

    # Names it on the cluster.
    client_id: str
    # Given to Waldur, and kept nowhere.
    secret: Secret


class KeyKeeper(Protocol):
    """Makes and ends keys of resources. A key is known by its account and `client_id`; the secret is in no error, no
    log and no command line. Keys of an account that is blocked or gone must open nothing.
    """

    def issue(self, account: str, client_id: str) -> MadeKey:
        """Make a key of this name, or a new secret for the one that is there; it is resumed with that. The backend may
        give it another name. Raises BackendError, and then no new secret is of use.
        """
        ...

    def set_paused(self, account: str, client_id: str, paused: bool) -> None:
        """Make a key worth nothing for a while, or of use again. Raises BackendError."""
        ...

    def end(self, account: str, client_id: str) -> None:
        """Make a key invalid permanently; one that is gone is ended. Raises BackendError."""
        ...

    def usage(self, query: UsageQuery) -> Mapping[str, Mapping[str, Counts]]:
        """Read one month of all keys, by account and `client_id`, counted as limits are. For a key that is omitted,
        what was reported to Waldur stays. Raises BackendError.
        """
        ...


@runtime_checkable
class KeyPower(Protocol):
    """A backend that makes keys of resources; found by `isinstance`."""

    @property
    def keys(self) -> KeyKeeper: ...


@runtime_checkable
class ClusterChecks(Protocol):
    """A backend that checks more of its cluster than `check` does; found by `isinstance`."""

    def checks(self) -> Mapping[str, Callable[[], Check | datetime]]:
        """Return looks by name. Each returns what it found, or what the cluster's clock shows; raises BackendError."""
        ...


@runtime_checkable
class Forewarning(Protocol):
    """A backend that knows what will stop it soon; found by `isinstance`."""

    def warnings(self) -> Sequence[str]:
        """Return, from what the last reads brought, what a person must do in time. Asks for nothing."""
        ...


class PeriodicKeeper(Protocol):
    """Keeps what a periodic usage policy sets on single accounts."""

    def cannot(self, asked: DesiredSettings, observed: ObservedSettings) -> str:
        """Return a sentence on what of these settings cannot be kept here, where the account has those observed; empty
        where all can. Raises BackendError.
        """
        ...

    def state(self, account: str) -> ObservedSettings | None:
        """Read what the account has of its own; None where it is not on the cluster. Raises BackendError."""
        ...

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        """Carry out in their order; after one that failed nothing more is tried, and has no outcome."""
        ...


@runtime_checkable
class PeriodicPower(Protocol):
    """A backend that takes periodic limits; found by `isinstance`."""

    @property
    def periodic(self) -> PeriodicKeeper: ...


@dataclass(frozen=True, slots=True)
class Parsed:
    """A plugin's own settings."""

    # None when a problem is an error.
    settings: Any
    # One with `stopped_modes` stops these modes only.
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """What a person is told about a kind of cluster, in its own words."""

    product: str = "cluster"
    # The name of a limit of accounts, before that of what is limited, what it is counted in, and that of jobs.
    limit: str = "limit"
    unit: str = "units of the cluster"
    submit_limit: str = "limit of submitted jobs"
    # What can be limited, as the cluster calls it, and the option by which a job names its account.
    limited: str = "limits"
    account_option: str = "--account="
    # What to do where it does not answer, and where it keeps no limit of what a component counts.
    away: str = "check that the cluster answers on this host, and backend_settings"
    unknown_limit: str = "correct the component, or make the cluster keep such a limit"


@runtime_checkable
class Advising(Protocol):
    """A plugin that has words of its own for a person; found by `isinstance`."""

    @property
    def advice(self) -> Advice: ...


class Plugin(Protocol):
    """Object that an entry point of the group `waldur_site_cluster.backends` names."""

    @property
    def settings(self) -> type:
        """Return the frozen dataclass whose fields declare the keys of `backend_settings` that this backend reads."""
        ...

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        """Check `backend_settings` (found at `path` of the configuration) and make the backend's settings."""
        ...

    def missing(self, settings: Any) -> str:
        """Return a sentence when a program that this backend runs is not on this host; empty when all are there."""
        ...

    def connect(self, settings: Any, context: BackendContext) -> Backend: ...


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """A cluster that a program of this host leads to."""

    name: str
    # The program, for messages.
    program: str
    # What `backend_settings` need for it.
    settings: Mapping[str, Any]
    # The units of `backend_components` that it can count; empty where it does not say.
    components: frozenset[str] = frozenset()


@runtime_checkable
class FindsClusters(Protocol):
    """A plugin that can say which clusters this host leads to, for `init`; found by `isinstance`."""

    def found_clusters(self) -> Sequence[FoundCluster]:
        """Return the clusters; empty where none of its programs is on this host. Raises BackendError where one is, and
        does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class KnownComponents:
    """Components that a backend can keep, as it counts them."""

    components: Mapping[str, Component]
    # They say what is skipped or counted otherwise.
    problems: tuple[Problem, ...] = ()


@runtime_checkable
class ComponentRules(Protocol):
    """A plugin that does not know whatever components a site thinks of; found by `isinstance`."""

    def known_components(self, configured: Mapping[str, Component], path: str) -> KnownComponents:
        """Return those of `backend_components` (found at `path` of the configuration) that it knows."""
        ...


@runtime_checkable
class HasComponentKeys(Protocol):
    """A plugin with keys of its own in `backend_components`; found by `isinstance`."""

    @property
    def component_keys(self) -> type:
        """Return the frozen dataclass whose fields declare them. `Component.extras` has what is written."""
        ...


@runtime_checkable
class UserHomes(Protocol):
    """A plugin whose members log in on the head node, and so need a home there; found by `isinstance`."""

    @property
    def homes_on_head_node(self) -> bool: ...

    @property
    def homes_unasked(self) -> bool:
        """Return whether homes are made where the offering's file does not say whether to."""
        ...


@runtime_checkable
class KeysWithoutEffect(Protocol):
    """A plugin that cannot serve some of the keys that all backends share; found by `isinstance`."""

    @property
    def keys_without_effect(self) -> Mapping[str, str]:
        """Return these keys of `backend_settings`, each with half a sentence why: "it has no effect: ..."."""
        ...
