# SPDX-License-Identifier: MIT
"""A cluster in memory, and a backend that works on it by what the actions declare of themselves.

It takes SLURM's settings and spelling, and refuses what SLURM refuses where passes depend on it. It fails on
request. What SLURM really does is tested on the real one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent.core.actions import (
    ClusterAction,
    ClusterObject,
    DeleteAccount,
    DeleteQos,
    Effect,
    ObjectKind,
    RemoveMember,
    SetLimits,
    SetQos,
    Target,
)
from agent.core.errors import (
    BackendUnavailable,
    CommandFailed,
    JobsStillActive,
    NotEmpty,
    SiteAgentError,
)
from agent.core.model import Account, AllocationSpec, Health, Part, Snapshot
from agent.core.plans import Outcome
from agent.core.usage import AccountUsage, Counts, Usage, UsageQuery
from backends.base import Scope
from backends.failure_propagation import FailurePropagation
from backends.hierarchy import in_order
from backends.slurm.allowed_names import checked
from backends.slurm.canonical import canonical
from backends.slurm.schema import SlurmSettings, parse

CLUSTER = "memory"
TRES = frozenset({"cpu", "mem", "gres/gpu"})
PARTS = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS, Part.TRES, Part.USER_LIMITS})
EMPTY: Mapping[Part, Mapping[str, Any]] = {
    Part.ACCOUNTS: {"accounts": {}},
    Part.ASSOCIATIONS: {"associations": frozenset(), "member_qos": {}},
    Part.DEFAULT_ACCOUNTS: {"default_accounts": {}},
    Part.TRES: {"tres": frozenset()},
    Part.JOBS: {"active_jobs": {}, "active_users": {}},
    Part.QOS: {"qos": frozenset(), "made_qos": frozenset(), "foreign_qos": frozenset()},
    Part.PARTITIONS: {"partitions": frozenset()},
    Part.USER_LIMITS: {"user_limits": {}},
    Part.USAGE: {"used": {}},
}


def without(snapshot: Snapshot, *parts: Part) -> Snapshot:
    """Return the same cluster, read without these parts: a backend leaves their fields empty."""
    for part in parts:
        snapshot = replace(snapshot, **EMPTY[part])
    return replace(snapshot, complete=snapshot.complete - set(parts))


def slurm_settings(**settings: object) -> SlurmSettings:
    """Return SLURM's settings from `backend_settings` of a configuration; no default accounts are managed."""
    parsed = parse({"default_account_policy": "none", **settings}, "test").settings
    assert isinstance(parsed, SlurmSettings)
    return parsed


def empty_cluster() -> Snapshot:
    """Return a cluster with its root account and three QoS."""
    return Snapshot(
        CLUSTER,
        accounts={"root": Account("root", None)},
        tres=TRES,
        qos=frozenset({"normal", "slow", "stop"}),
        complete=PARTS,
    )


@dataclass
class MemoryCluster:
    """What the cluster holds."""

    # What is complete in it are the parts that can be read at all, apart from jobs, use and QoS.
    state: Snapshot = field(default_factory=empty_cluster)
    # Account and user of those who may not submit jobs.
    blocked_members: frozenset[tuple[str, str]] = frozenset()
    # What users had counted by month (`2024-03`), account and user.
    counted: dict[str, dict[str, dict[str, Counts]]] = field(default_factory=dict)
    # Cancelling them does not help.
    jobs_never_end: bool = False

    def carry_out(self, action: ClusterAction) -> None:
        """Change the cluster as the action says. Raises BackendError or PlanRefused where SLURM would refuse it."""
        checked("account", action.account)
        if user := action.ids().get("user"):
            checked("user", user)
        if action.effect is not Effect.REMOVE and action.target is not Target.CLUSTER:
            self._need(action)
        if self.jobs_never_end:
            running = [
                ClusterObject(ObjectKind.JOBS, account, user) for account, user in self.state.active_users
            ]
            if any(ended.covers(jobs) for ended in action.objects(action.ends) for jobs in running):
                raise JobsStillActive(f"jobs in {action.account} are still ending")
        self._check_values(action)
        for thing in (*action.objects(action.ends), *action.objects(action.makes)):
            if thing.kind is ObjectKind.SUBMISSION and thing.of:
                pair = frozenset({(thing.account, thing.of)})
                is_open = thing in action.objects(action.makes)
                self.blocked_members = self.blocked_members - pair if is_open else self.blocked_members | pair
        self.state = action.applied_to(self.state)

    def _need(self, action: ClusterAction) -> None:
        for thing in action.objects(action.needs):
            if thing.kind is ObjectKind.ACCOUNT and thing.account not in self.state.accounts:
                raise refused(action, f"no account {thing.account}")
            if thing.kind is ObjectKind.MEMBER and thing.of not in self.state.users_of(thing.account):
                raise refused(action, f"{thing.of} has no association with {thing.account}")

    def _check_values(self, action: ClusterAction) -> None:
        state, name = self.state, action.account
        match action:
            case RemoveMember(user=user):
                named = sum(jobs for (account, _), jobs in state.active_users.items() if account == name)
                anybodys = state.active_jobs.get(name, 0) - named
                if state.active_users.get((name, user), 0) + max(anybodys, 0):
                    raise JobsStillActive(f"account {name}: Job(s) active")
            case DeleteAccount() if below := sorted(state.children_of(name) | state.users_of(name)):
                raise NotEmpty(f"account {name} is not empty: {', '.join(below)}")
            case SetLimits() if unknown := sorted(set(dict(action.after)) - state.tres):
                raise refused(action, f"unknown TRES {', '.join(unknown)}")
            case SetQos() if not {*action.after, action.default} <= state.qos:
                raise refused(action, "no such QoS")
            case DeleteQos() if any(account.default_qos == name for account in state.accounts.values()):
                raise refused(action, "it is the default QoS of an account")


class MemoryBackend:
    """A complete backend on a cluster in memory, which several backends may share."""

    def __init__(
        self,
        settings: SlurmSettings | None = None,
        state: Snapshot | None = None,
        *,
        on: MemoryCluster | None = None,
    ) -> None:
        self.settings = settings or slurm_settings()
        self.memory = on or MemoryCluster(state or empty_cluster())
        self.cluster = CLUSTER
        self.executed: Counter[str] = Counter()
        # Asked before each call (`observe`, `apply`, `usage`) and each action; true: nothing answers, and what follows
        # in the same batch is not tried.
        self.outage: Callable[[str], bool] = lambda _: False
        # Actions that the cluster says no to.
        self.refuses: Callable[[ClusterAction], bool] = lambda _: False
        # What was done, in its order.
        self.applied: list[ClusterAction] = []
        # The months of usage that were asked for.
        self.queries: list[UsageQuery] = []

    @property
    def state(self) -> Snapshot:
        """All that the cluster holds, read or not."""
        return self.memory.state

    @state.setter
    def state(self, state: Snapshot) -> None:
        self.memory.state = state

    @property
    def default_account(self) -> str:
        return self.settings.default_account

    def must_work(self, call: str) -> None:
        """Raises BackendUnavailable in an outage."""
        if self.outage(call):
            raise BackendUnavailable("the accounting database does not answer")

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        self.must_work("observe")
        self.executed["read"] += 1
        state = self.state
        read = state.complete & (scope.parts | scope.names)
        if self.settings.own_qos:
            read |= scope.parts & {Part.QOS}
        if self.settings.qos_enforcement_enabled:
            read |= scope.names & {Part.QOS}
        jobs = {account: state.active_jobs.get(account, 0) for account in scope.jobs_of}
        users = {place: number for place, number in state.active_users.items() if place[0] in scope.jobs_of}
        used = {account: state.used.get(account, {}) for account in scope.usage_of}
        seen = without(replace(state, cluster=self.cluster), *(set(Part) - read))
        read |= ({Part.JOBS} if scope.jobs_of else set()) | ({Part.USAGE} if scope.usage_of else set())
        return replace(seen, active_jobs=jobs, active_users=users, used=used, complete=frozenset(read))

    def canonical(self, spec: AllocationSpec, snapshot: Snapshot) -> AllocationSpec:
        return canonical(self.settings, spec, snapshot)

    def prepare(self) -> None:
        return None

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        """Carry the actions out in the order of their phases: accounts are made after those above them, and go after
        those below them.
        """
        outcomes: list[Outcome] = []
        failures = FailurePropagation()
        for action in in_order(
            actions, {name: account.parent for name, account in self.state.accounts.items()}
        ):
            outcomes.append(Outcome(action, failures.error_for(action) or self._carried_out(action)))
            failures.note(outcomes[-1])
        return outcomes

    def _carried_out(self, action: ClusterAction) -> SiteAgentError | None:
        try:
            self.must_work("apply")
            self.executed["write"] += 1
            if self.refuses(action):
                raise refused(action, "no")
            self.memory.carry_out(action)
        except SiteAgentError as error:
            return error
        self.applied.append(action)
        return None

    def commands(self, actions: Sequence[ClusterAction]) -> Sequence[str]:
        return [action.render() for action in actions]

    def check(self) -> Health:
        self.must_work("check")
        named = {key: getattr(self.settings, key) for key in ("root_account", "default_account")}
        missing = [
            f"{key} {name!r} has no account on cluster {self.cluster}: create it first"
            for key, name in named.items()
            if name not in self.state.accounts
        ]
        return Health("1.0", self.cluster, tuple(missing))

    def usage(self, query: UsageQuery) -> Usage:
        self.queries.append(query)
        self.must_work("usage")
        self.executed["read"] += 1
        accounts = self.memory.counted.get(str(query.month), {})
        found = {account: AccountUsage(_summed(users.values()), users) for account, users in accounts.items()}
        return Usage(query, found, records=sum(map(len, accounts.values())))

    def usage_command(self, query: UsageQuery, account: str) -> str:
        return f"count {account} {query.month}"


def refused(action: ClusterAction, words: str) -> CommandFailed:
    """Return the error of a command that said no in these words."""
    return CommandFailed([action.verb, action.account], returncode=1, stdout="", stderr=words)


def _summed(users: Iterable[Counts]) -> Counts:
    counted: Counter[str] = Counter()
    for counts in users:
        counted.update(counts)
    return counted
