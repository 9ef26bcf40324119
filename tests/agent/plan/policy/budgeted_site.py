# SPDX-License-Identifier: MIT
"""A cluster on which one plan after the other is decided and carried out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agent.core.actions import (
    Action,
    BlockSubmission,
    CancelJobs,
    DeleteAccount,
    MoveDefaultAccount,
    RemoveMember,
)
from agent.core.model import Snapshot
from agent.core.policy import History, PolicyRules
from agent.plan.policy.gate import Decision, EarlierPlans, WaitingPlan, decide
from agent.plan.policy.rules import PolicyContext
from tests.agent.plan.worlds import cluster

NONE_APPROVED: Mapping[str, frozenset[str]] = {}
RULES = PolicyRules(
    prefixes=("c_", "p_", "a_"), pausing_qos=frozenset({"paused"}), downscaling_qos=frozenset({"slow"})
)


def site(accounts: int, members: int) -> Snapshot:
    """Accounts a_0 to a_N below one project, each with its own members, and limits that are well used."""
    names = [f"a_{n}" for n in range(accounts)]
    snapshot = cluster(
        {"root": None, "p_p": "root", "p_other": "root", **dict.fromkeys(names, "p_p")},
        [(name, user) for name in names for user in team(name, members)],
        limits={name: {"cpu": 1000} for name in names},
    )
    return replace(snapshot, used={name: {"cpu": 900} for name in names}, qos=snapshot.qos.union(names))


def team(account: str, members: int) -> list[str]:
    return [f"{account}_u{n}" for n in range(members)]


def leave(account: str, users: Iterable[str]) -> list[Action]:
    return [RemoveMember(account=account, user=user) for user in users]


def without(snapshot: Snapshot, actions: Sequence[Action]) -> Snapshot:
    gone = {(a.account, a.user) for a in actions if isinstance(a, RemoveMember)}
    if not gone:
        return snapshot
    kept = {a for a in snapshot.associations if (a.account, a.user) not in gone}
    return replace(snapshot, associations=frozenset(kept))


class Site:
    """A cluster on which one plan after the other is carried out, all within an hour or each on another one."""

    def __init__(self, snapshot: Snapshot, rules: PolicyRules = RULES) -> None:
        self.snapshot = snapshot
        self.rules = rules
        self.history = History()
        self.waiting: tuple[WaitingPlan, ...] = ()

    def run(
        self,
        actions: Sequence[Action],
        context: PolicyContext = PolicyContext(),
        approved: Mapping[str, frozenset[str]] = NONE_APPROVED,
    ) -> Decision:
        earlier = EarlierPlans(approved, waiting=self.waiting)
        found = decide(actions, self.snapshot, self.rules, earlier, context, self.history)
        self.snapshot = without(self.snapshot, found.allowed)
        self.history = self.history.with_costs(found.charges, found.approved_charges.values())
        return found

    def an_hour_passes(self) -> None:
        self.history = replace(self.history, hour=frozenset())


def ended(account: str, users: Iterable[str]) -> list[Action]:
    return [
        *(MoveDefaultAccount(account="p_other", user=user, before=account) for user in users),
        BlockSubmission(account=account),
        CancelJobs(account=account),
        *leave(account, users),
        DeleteAccount(account=account, parent="p_p"),
    ]


FIVE_HUNDRED = [f"a_{n}" for n in range(500)]
