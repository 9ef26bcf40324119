# SPDX-License-Identifier: MIT
"""A cluster in memory that keeps SLURM's rules where orders depend on them, and fails when it is told to.

For tests of the layers above the backends; what SLURM really does is tested on the real one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from agent.core.actions import (
    AddMember,
    AllowSubmission,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    DeleteAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
)
from agent.core.errors import BackendError, BackendUnavailable, CommandFailed
from agent.core.model import Account, AllocationSpec, Association, Health, Part, Snapshot
from agent.core.plans import Outcome
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
    """`outage` is asked before each call (`observe`, `apply`) and each action; true makes it fail from there on."""

    settings: SlurmSettings = field(default_factory=slurm_settings)
    state: Snapshot = field(
        default_factory=lambda: Snapshot(
            "memory",
            accounts={"root": Account("root", None)},
            tres=TRES,
            complete=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS, Part.TRES}),
        )
    )
    outage: Callable[[str], bool] = lambda _: False
    applied: list[ClusterAction] = field(default_factory=list)
    executed: Counter[str] = field(default_factory=Counter)
    cluster: str = "memory"

    @property
    def home(self) -> str:
        return self.settings.default_account

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        self._must_work("observe")
        self.executed["read"] += 1
        jobs = {account: self.state.active_jobs.get(account, 0) for account in scope.jobs_of}
        complete = (self.state.complete & scope.parts) | ({Part.JOBS} if scope.jobs_of else set())
        return replace(self.state, active_jobs=jobs, complete=frozenset(complete))

    def canonical(self, spec: AllocationSpec, snapshot: Snapshot) -> AllocationSpec:
        return canonical(self.settings, spec, snapshot)

    def commands(self, actions: Sequence[ClusterAction]) -> Sequence[str]:
        return [action.render() for action in actions]

    def check(self) -> Health:
        return Health(cluster=self.cluster)

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        outcomes = []
        for action in actions:
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
        state = self.state
        accounts, members = dict(state.accounts), set(state.associations)
        match action:
            case CreateAccount():
                self._needs(action.parent)
                accounts.setdefault(action.account, Account(action.account, action.parent))
            case SetLimits():
                self._needs(action.account)
                standing = accounts[action.account]
                accounts[action.account] = replace(standing, limits={**standing.limits, **dict(action.after)})
            case AddMember():
                self._needs(action.account)
                members |= {Association(action.account, action.user, p) for p in action.partitions or ("",)}
            case RemoveMember():
                members = {m for m in members if (m.account, m.user) != (action.account, action.user)}
            case DeleteAccount():
                if state.children_of(action.account) or state.users_of(action.account):
                    raise CommandFailed(
                        ["remove", action.account], returncode=1, stdout="", stderr="not empty"
                    )
                accounts.pop(action.account, None)
            case CancelJobs():
                return replace(state, active_jobs={})
            case MoveDefaultAccount():
                return replace(
                    state, default_accounts={**state.default_accounts, action.user: action.account}
                )
            case BlockSubmission() | AllowSubmission():
                limit = 0 if isinstance(action, BlockSubmission) else None
                accounts[action.account] = replace(accounts[action.account], submit_limit=limit)
            case _:
                raise BackendError(f"no such action here: {action.verb}")
        return replace(state, accounts=accounts, associations=frozenset(members))

    def _needs(self, account: str) -> None:
        if account not in self.state.accounts:
            raise CommandFailed(["account", account], returncode=1, stdout="", stderr=f"no account {account}")
