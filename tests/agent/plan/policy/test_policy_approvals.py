# SPDX-License-Identifier: MIT
"""What an approval releases, and what goes on to wait while the numbers change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.actions import Action, RemoveMember, SetLimits
from agent.core.model import Snapshot
from agent.core.policy import History
from agent.plan.policy.gate import EarlierPlans, action_key, decide
from agent.plan.policy.rules import PolicyContext
from tests.agent.plan.policy.test_policy import RULES, USERS, ended, held, judged, leave, site
from tests.agent.plan.worlds import cluster, shown, waiting

pytestmark = pytest.mark.safety


def test_an_approved_plan_goes_through_and_another_does_not() -> None:
    actions = leave("a_one", *USERS[:6])
    (plan,) = judged(actions).held
    approved = EarlierPlans(shown(plan), waiting=(waiting(plan),))
    released = decide(actions, site(), RULES, approved)
    assert (released.allowed, released.held, released.released) == (tuple(actions), (), (plan,))
    other = leave("a_two", *USERS[:6])
    judgement = decide([*actions, *other], site(), RULES, approved)
    assert (judgement.allowed, held(judgement)) == (tuple(actions), [("account a_two", set(other))])
    assert "besides this, 6 actions are approved" in judgement.held[0].reason


def test_one_more_leaver_does_not_void_an_approval_and_is_judged_alone() -> None:
    (plan,) = judged(leave("a_one", *USERS[:6])).held
    approved = EarlierPlans(shown(plan))
    more = leave("a_one", *USERS[:7])
    judgement = decide(more, site(), RULES, approved)
    assert (judgement.allowed, judgement.held) == (tuple(more), ())
    assert [charge.user for charge in judgement.charges] == [USERS[6]]
    many = replace(RULES, small_removal=0, max_removed_percent=9)
    (alone,) = decide(more, site(), many, approved).held
    assert alone.actions == tuple(leave("a_one", USERS[6]))
    assert alone.reason.startswith(
        "1 of the 10 members of a_one would be removed at once, besides 6 of whom that is approved"
    )


def test_an_approval_is_for_the_actions_that_were_shown_whatever_the_id() -> None:
    """Two plans of one short id were once found within minutes."""
    (plan,) = judged(leave("a_one", *USERS[:6])).held
    other = leave("a_two", *USERS[:6])
    (forged,) = judged(other).held
    approved = EarlierPlans({forged.id: frozenset(plan.lines)})
    assert decide(other, site(), RULES, approved).allowed == ()


def test_what_is_left_of_an_approved_plan_is_released_and_nothing_more() -> None:
    (plan,) = judged(leave("a_one", *USERS)).held
    begun = EarlierPlans(shown(plan))
    assert decide(leave("a_one", *USERS[:7]), site(), RULES, begun).held == ()
    assert decide([*leave("a_one", *USERS), *leave("a_two", *USERS)], site(), RULES, begun).held != ()


def test_what_is_held_stays_held_where_the_numbers_change() -> None:
    """Four of four leave and four others join: then it is half of the members."""
    few = leave("a_one", *USERS[:6])
    (plan,) = judged(few).held
    earlier = EarlierPlans(waiting=(waiting(plan),))
    left = few[:5]
    assert judged(left).held == ()
    judgement = decide(left, site(), RULES, earlier)
    assert [(each.id, each.actions) for each in judgement.held] == [(plan.id, tuple(left))]


def test_percentages_go_by_who_was_in_before() -> None:
    five = leave("a_one", *USERS[:5])
    assert judged(five).held == ()
    history = History(joined={"a_one": frozenset(USERS[5:8])})
    (plan,) = decide(five, site(), RULES, history=history).held
    assert plan.reason.startswith("5 of the 7 members of a_one would be removed at once")
    # Who joined lately is a member all the same.
    assert decide(leave("a_one", *USERS[5:8]), site(), RULES, history=history).held == ()
    most = History(joined={"a_one": frozenset(USERS[1:])})
    (plan,) = decide(leave("a_one", *USERS[1:]), site(), RULES, history=most).held
    assert "max_removed_percent" in plan.reason


def test_an_exchange_counts_as_emptied_over_passes() -> None:
    accounts = [f"a_{n}" for n in range(11)]
    members = [(name, user) for name in accounts for user in ("ann", "bob", "new1", "new2")]
    snapshot = cluster({"root": None, "p_p": "root", **dict.fromkeys(accounts, "p_p")}, members)
    gone = [step for name in accounts for step in leave(name, "ann", "bob")]
    assert decide(gone, snapshot, RULES).held == ()
    history = History(joined=dict.fromkeys(accounts, frozenset({"new1", "new2"})))
    (plan,) = decide(gone, snapshot, RULES, history=history).held
    assert plan.reason.startswith("11 accounts would be deleted or emptied at once")


def test_one_person_who_leaves_several_accounts_is_one_plan() -> None:
    accounts = [f"a_{n}" for n in range(5)]
    snapshot = cluster(
        {"root": None, "p_p": "root", **dict.fromkeys(accounts, "p_p")}, [(name, "ann") for name in accounts]
    )
    gone = [step for name in accounts for step in leave(name, "ann")]
    (plan,) = decide(gone, snapshot, replace(RULES, small_removal=0)).held
    assert plan.actions == tuple(gone)
    assert plan.scope == "accounts a_0, a_1, a_2, a_3, a_4"


def test_a_plan_that_waits_takes_no_deliberate_act_along() -> None:
    """Twelve terminations wait, one more comes: it is one."""
    names = [f"a_{n}" for n in range(13)]
    snapshot = cluster(
        {"root": None, "p_p": "root", **dict.fromkeys(names, "p_p")}, [(name, "ann") for name in names]
    )
    context = PolicyContext(ending=frozenset(names))
    first = [step for name in names[:12] for step in ended(name, "ann")]
    (plan,) = decide(first, snapshot, RULES, context=context).held
    one = ended("a_12", "ann")
    judgement = decide([*first, *one], snapshot, RULES, EarlierPlans(waiting=(waiting(plan),)), context)
    assert set(judgement.allowed) == set(one)
    assert [each.id for each in judgement.held] == [plan.id]


def test_the_id_is_that_of_the_scope_and_the_actions() -> None:
    def id_of(actions: list[Action], snapshot: Snapshot | None = None) -> str:
        return judged(actions, snapshot).held[0].id

    actions = leave("a_one", *USERS[:6])
    others = [RemoveMember(account="a_one", user=user, reason="another pass") for user in reversed(USERS[:6])]
    assert id_of(actions) == id_of(list(others))
    assert id_of(actions) != id_of(leave("a_one", *USERS[1:7]))
    assert id_of(actions) != id_of(leave("a_one", *USERS[:7]))
    assert len(id_of(actions)) == 64


def test_an_approved_limit_is_lowered_from_where_it_was_and_from_nowhere_else() -> None:
    shown = SetLimits(account="a_one", before=(("cpu", 6000),), after=(("cpu", 60),))
    later = replace(shown, before=(("cpu", 6_000_000),))
    approved = EarlierPlans(approved={"x": frozenset({action_key(shown)})})
    assert approved.approvals([shown]) == {shown: "x"}
    assert approved.approvals([later]) == {}
