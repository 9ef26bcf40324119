# SPDX-License-Identifier: MIT
"""A cluster in memory that keeps SLURM's rules where passes depend on them, and fails when it is told to.

For tests of the layers above the backends; what SLURM really does is tested on the real one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from agent.core.actions import (
    CancelJobs,
    ClusterAction,
    CreateAccount,
    DeleteAccount,
    Kind,
    MoveDefaultAccount,
    Phase,
    RemoveMember,
    SetQos,
    Thing,
)
from agent.core.errors import BackendError, BackendUnavailable, CommandFailed, JobsStillActive
from agent.core.model import Account, AllocationSpec, Health, Part, Snapshot
from agent.core.plans import Outcome
from agent.core.usage import AccountUsage, Counts, Usage, UsageQuery
from backends.base import Scope
from backends.slurm.canonical import canonical
from backends.slurm.schema import SlurmSettings, parse

TRES = frozenset({"cpu", "mem", "gres/gpu"})


def slurm_settings(**settings: object) -> SlurmSettings:
    parsed = parse({"default_account_policy": "none", **settings}, "test").settings
    assert isinstance(parsed, SlurmSettings)
    return parsed


@dataclass
class MemoryBackend:
    """`outage` is asked before each call (`observe`, `apply`, `usage`) and action; true makes it fail from there on.

    `refuses`: actions that SLURM says no to. `endless`: jobs do not end when they are cancelled. `spent`: what users
    had counted by month (`2024-03`), account and user; `queries`: the months that were asked for.
    """

    settings: SlurmSettings = field(default_factory=slurm_settings)
    state: Snapshot = field(
        default_factory=lambda: Snapshot(
            "memory",
            accounts={"root": Account("root", None)},
            tres=TRES,
            complete=frozenset(
                {Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS, Part.TRES, Part.USER_LIMITS}
            ),
        )
    )
    outage: Callable[[str], bool] = lambda _: False
    refuses: Callable[[ClusterAction], bool] = lambda _: False
    endless: bool = False
    closed: frozenset[tuple[str, str]] = frozenset()
    qos: frozenset[str] = frozenset({"normal", "slow", "stop"})
    applied: list[ClusterAction] = field(default_factory=list)
    executed: Counter[str] = field(default_factory=Counter)
    cluster: str = "memory"
    spent: dict[str, dict[str, dict[str, Counts]]] = field(default_factory=dict)
    queries: list[UsageQuery] = field(default_factory=list)

    @property
    def default_account(self) -> str:
        return self.settings.default_account

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        self._must_work("observe")
        self.executed["read"] += 1
        used = {account: self.state.used.get(account, {}) for account in scope.usage_of}
        jobs = {account: self.state.active_jobs.get(account, 0) for account in scope.jobs_of}
        complete = (self.state.complete & scope.parts) | ({Part.JOBS} if scope.jobs_of else set())
        complete |= {Part.USAGE} if scope.usage_of else set()
        return replace(self.state, active_jobs=jobs, used=used, complete=frozenset(complete))

    def usage(self, query: UsageQuery) -> Usage:
        self.queries.append(query)
        self._must_work("usage")
        self.executed["read"] += 1
        accounts = self.spent.get(str(query.month), {})
        found = {account: AccountUsage(_summed(users.values()), users) for account, users in accounts.items()}
        return Usage(query, found, records=sum(map(len, accounts.values())))

    def usage_command(self, query: UsageQuery, account: str) -> str:
        return f"count {account} {query.month}"

    def canonical(self, spec: AllocationSpec, snapshot: Snapshot) -> AllocationSpec:
        return canonical(self.settings, spec, snapshot)

    def commands(self, actions: Sequence[ClusterAction]) -> Sequence[str]:
        return [action.render() for action in actions]

    def check(self) -> Health:
        return Health(cluster=self.cluster)

    def prepare(self) -> None:
        return None

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        """In their order, but for accounts above others: like SLURM's grammar, these go after all below them."""
        outcomes = []
        above = {account.parent for account in self.state.accounts.values()}
        for action in sorted(actions, key=lambda a: a.phase is Phase.DELETE and a.account in above):
            try:
                self._must_work("apply")
                self.state = self._after(action)
                self.applied.append(action)
                outcomes.append(Outcome(action))
            except BackendError as error:
                outcomes.append(Outcome(action, error))
        return outcomes

    def _must_work(self, call: str) -> None:
        if self.outage(call):
            raise BackendUnavailable("the accounting database does not answer")

    def _after(self, action: ClusterAction) -> Snapshot:
        self._needs(action)
        if self.endless and self._covers_jobs(action):
            raise JobsStillActive(f"jobs in {action.account} are still ending")
        for thing in (*action.things(action.ends), *action.things(action.makes)):
            if thing.kind is Kind.SUBMISSION and thing.of:
                pair = frozenset({(thing.account, thing.of)})
                is_open = thing in action.things(action.makes)
                self.closed = self.closed - pair if is_open else self.closed | pair
        return action.applied_to(self.state)

    def _covers_jobs(self, action: ClusterAction) -> bool:
        running = [Thing(Kind.JOBS, account, user) for account, user in self.state.active_users]
        return any(ended.covers(jobs) for ended in action.things(action.ends) for jobs in running)

    def _needs(self, action: ClusterAction) -> None:
        """What SLURM would refuse."""
        state, name = self.state, action.account
        if self.refuses(action):
            raise _refused(action, "no")
        parent = action.parent if isinstance(action, CreateAccount) else name
        if parent not in state.accounts and not isinstance(action, DeleteAccount | CancelJobs):
            raise _refused(action, f"no account {parent}")
        if isinstance(action, DeleteAccount) and (state.children_of(name) or state.users_of(name)):
            raise _refused(action, "not empty")
        if isinstance(action, RemoveMember) and state.active_users.get((name, action.user)):
            raise JobsStillActive(f"account {name}: Job(s) active")
        if isinstance(action, MoveDefaultAccount) and action.user not in state.users_of(name):
            raise _refused(action, "these users are not associated")
        if isinstance(action, SetQos) and not set(action.after) <= self.qos:
            raise _refused(action, "no such QoS")


def _summed(users: Iterable[Counts]) -> Counts:
    counted: Counter[str] = Counter()
    for counts in users:
        counted.update(counts)
    return counted


def _refused(action: ClusterAction, words: str) -> CommandFailed:
    return CommandFailed([action.verb, action.account], returncode=1, stdout="", stderr=words)
