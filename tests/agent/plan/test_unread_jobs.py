# SPDX-License-Identifier: MIT
"""Jobs that could not be read: what needs them waits with the reason, and all else goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.actions import Action, AddMember, CreateAccount, SetLimits
from agent.core.model import Part, Snapshot
from agent.core.policy import PolicyRules
from agent.plan import accounts, existing_accounts
from agent.plan.policy.gate import Decision, decide
from agent.plan.policy.rules import PolicyContext, Why
from backends.testing.memory import without
from tests.agent.plan.worlds import cluster

pytestmark = pytest.mark.safety

RULES = PolicyRules(prefixes=("c_", "p_", "a_"), max_removed_members=50)
PARENTS = {"root": None, "c_c": "root", "p_p": "c_c", "a_one": "p_p", "a_two": "p_p", "a_empty": "p_p"}
MEMBERS = [("a_one", "ann"), ("a_one", "bob"), ("a_two", "ann"), ("a_two", "carl")]
WHY = "slurmctld does not answer: Connection refused"
SENTENCE = f"which jobs still run is not known, so no member is removed and nothing ends now: {WHY}"
ADDS: list[Action] = [
    CreateAccount(account="a_new", parent="p_p", description="d", organization="o"),
    AddMember(account="a_new", user="dora"),
    SetLimits(account="a_two", before=(("cpu", 1),), after=(("cpu", 2),)),
]


def seen(*, silent: bool) -> Snapshot:
    known = without(
        cluster(PARENTS, MEMBERS, defaults={"ann": "a_one"}, limits={"a_two": {"cpu": 1}}), Part.JOBS
    )
    return replace(known, unread={Part.JOBS: WHY} if silent else {})


def decided(actions: list[Action], snapshot: Snapshot, *ending: str) -> Decision:
    return decide([*ADDS, *actions], snapshot, RULES, context=PolicyContext(ending=frozenset(ending)))


@pytest.mark.parametrize("account", ["a_one", "a_empty"])
def test_an_end_waits_whole_and_what_adds_goes_on(account: str) -> None:
    """An account without members as well: the jobs of a user who has left it may run."""
    snapshot = seen(silent=True)
    removal = accounts.removal(account, snapshot, default_account="root", reason="order")
    decision = decided([*removal], snapshot, account)
    assert decision.allowed == tuple(ADDS)
    assert {each.action for each in decision.refused} == set(removal)
    assert all(each.why is Why.INCOMPLETE and SENTENCE in each.sentence for each in decision.refused)
    assert not decision.held and not decision.charges


def test_who_leaves_waits_with_the_move_of_the_default_account() -> None:
    snapshot = seen(silent=True)
    leaving = existing_accounts.departures(
        {"a_one": {"ann"}}, snapshot, default_account="root", reasons={"a_one": "left"}
    )["a_one"]
    decision = decided([*leaving], snapshot)
    assert decision.allowed == tuple(ADDS)
    assert {each.action for each in decision.refused} == set(leaving)


def test_on_a_host_that_can_read_no_jobs_sacctmgr_decides() -> None:
    snapshot = seen(silent=False)
    removal = accounts.removal("a_one", snapshot, default_account="root", reason="order")
    assert decided([*removal], snapshot, "a_one").allowed == (*ADDS, *removal)
