# SPDX-License-Identifier: MIT
"""A cluster in memory that keeps SLURM's rules where passes depend on them, and fails when it is told to.

For tests of the layers above the backends; what SLURM really does is tested on the real one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.core.actions import (
    AddMember,
    AllowMember,
    AllowSubmission,
    BlockMember,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    DeleteAccount,
    MoveAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetQos,
    SetUserLimits,
)
from agent.core.errors import BackendError, BackendUnavailable, CommandFailed, JobsStillActive
from agent.core.model import Account, AllocationSpec, Association, Health, Part, Snapshot
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
    def home(self) -> str:
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
        for action in sorted(actions, key=lambda a: isinstance(a, DeleteAccount) and a.account in above):
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
        if isinstance(
            action,
            AddMember
            | RemoveMember
            | MoveDefaultAccount
            | SetUserLimits
            | CancelJobs
            | BlockMember
            | AllowMember,
        ):
            return self._after_people(action)
        state, name = self.state, action.account
        match action:
            case CreateAccount():
                return self._with(state.accounts.get(name) or Account(name, action.parent))
            case MoveAccount():
                return self._with(replace(state.accounts[name], parent=action.after))
            case SetLimits():
                return self._with(_limited(state.accounts[name], dict(action.after)))
            case SetQos():
                changed = replace(
                    state.accounts[name], qos=frozenset(action.after), default_qos=action.default
                )
                return self._with(changed)
            case BlockSubmission() | AllowSubmission():
                limit = 0 if isinstance(action, BlockSubmission) else None
                return self._with(replace(state.accounts[name], submit_limit=limit))
            case DeleteAccount():
                kept = {each: account for each, account in state.accounts.items() if each != name}
                return replace(state, accounts=kept)
            case _:
                raise BackendError(f"no such action here: {action.verb}")

    def _after_people(self, action: ClusterAction) -> Snapshot:
        state, name = self.state, action.account
        match action:
            case AddMember():
                joined = {Association(name, action.user, p) for p in action.partitions or ("",)}
                home = action.default_account or state.default_accounts.get(action.user) or name
                return self._with_members(state.associations | joined, {action.user: home})
            case RemoveMember():
                left = {m for m in state.associations if (m.account, m.user) != (name, action.user)}
                lost = state.default_accounts.get(action.user) == name
                return self._with_members(left, {action.user: ""} if lost else {})
            case BlockMember() | AllowMember():
                pair = {(name, action.user)}
                self.closed = self.closed | pair if isinstance(action, BlockMember) else self.closed - pair
                return state
            case MoveDefaultAccount():
                return self._with_members(state.associations, {action.user: name})
            case SetUserLimits():
                return self._with_user_limits(action)
            case CancelJobs() if self.endless and any(_covers(action, pair) for pair in state.active_users):
                raise JobsStillActive(f"jobs in {name} are still ending")
            case CancelJobs():
                users = {pair: n for pair, n in state.active_users.items() if not _covers(action, pair)}
                return replace(state, active_jobs=_by_account(users), active_users=users)
            case _:
                raise BackendError(f"no such action here: {action.verb}")

    def _with(self, account: Account) -> Snapshot:
        return replace(self.state, accounts={**self.state.accounts, account.name: account})

    def _with_members(self, members: Iterable[Association], homes: Mapping[str, str]) -> Snapshot:
        """Who has an association defaults to one; who loses a default account has none until somebody gives one."""
        defaults = {user: home for user, home in {**self.state.default_accounts, **homes}.items() if home}
        return replace(self.state, associations=frozenset(members), default_accounts=defaults)

    def _with_user_limits(self, action: SetUserLimits) -> Snapshot:
        place = (action.account, action.user)
        values = {**self.state.user_limits.get(place, {}), **dict(action.after)}
        kept = {tres: value for tres, value in values.items() if value >= 0}
        limits = {key: value for key, value in self.state.user_limits.items() if key != place}
        return replace(self.state, user_limits={**limits, **({place: kept} if kept else {})})

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


def _limited(account: Account, limits: Mapping[str, int]) -> Account:
    return replace(account, limits={**account.limits, **limits})


def _covers(action: CancelJobs, pair: tuple[str, str]) -> bool:
    return pair[0] == action.account and action.user in ("", pair[1])


def _by_account(users: Mapping[tuple[str, str], int]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for (account, _), jobs in users.items():
        counted[account] += jobs
    return dict(counted)


def _refused(action: ClusterAction, words: str) -> CommandFailed:
    return CommandFailed([action.verb, action.account], returncode=1, stdout="", stderr=words)
