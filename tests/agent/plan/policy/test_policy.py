# SPDX-License-Identifier: MIT
"""What the policy lets through, holds and refuses, case by case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from agent.core.actions import (
    Action,
    AddMember,
    AllowSubmission,
    BlockSubmission,
    CancelJobs,
    CreateAccount,
    DeleteAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetQos,
    SetUserLimits,
)
from agent.core.model import Part, Snapshot
from agent.core.policy import LimitCuts, PolicyMode, PolicyRules
from agent.core.waldur_actions import ApproveOrder, ClaimAccount, ReportMetadata
from agent.plan.policy.gate import Decision, decide
from agent.plan.policy.rules import PolicyContext, Why
from backends.testing.memory import without
from tests.agent.plan.worlds import cluster

pytestmark = pytest.mark.safety

RULES = PolicyRules(prefixes=("c_", "p_", "a_"))
USERS = [f"u{n}" for n in range(10)]


def site(**options: Any) -> Snapshot:
    """Accounts a_one and a_two with ten members each, a_pair with two, below one project."""
    members = [(account, user) for account in ("a_one", "a_two") for user in USERS]
    parents = {"root": None, "c_c": "root", "p_p": "c_c", "a_one": "p_p", "a_two": "p_p", "a_pair": "p_p"}
    return cluster(parents, [*members, ("a_pair", "ann"), ("a_pair", "bob")], **options)


def leave(account: str, *users: str) -> list[Action]:
    return [RemoveMember(account=account, user=user) for user in users]


def ended(account: str, *users: str) -> list[Action]:
    return [
        BlockSubmission(account=account),
        CancelJobs(account=account),
        *leave(account, *users),
        DeleteAccount(account=account, parent="p_p"),
    ]


def held(judgement: Decision) -> list[tuple[str, set[Action]]]:
    return [(plan.scope, set(plan.actions)) for plan in judgement.held]


def refused(judgement: Decision) -> dict[Action, Why]:
    return {r.action: r.why for r in judgement.refused}


def judged(actions: Iterable[Action], snapshot: Snapshot | None = None, **changes: Any) -> Decision:
    return decide(actions, snapshot or site(), replace(RULES, **changes))


# The brake -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "is_held"),
    [
        (leave("a_pair", "ann"), False),
        (leave("a_pair", "ann", "bob"), False),
        (leave("a_one", *USERS[:5]), False),
        (leave("a_one", *USERS[:6]), True),
    ],
    ids=["one of two", "two of two", "five of ten", "six of ten"],
)
def test_more_than_half_of_an_account_is_held_unless_few_leave(actions: list[Action], is_held: bool) -> None:
    judgement = judged(actions)
    assert held(judgement) == ([("account a_one", set(actions))] if is_held else [])
    assert judgement.allowed == (() if is_held else tuple(actions))


def test_a_held_account_leaves_the_others_and_its_own_joins_alone() -> None:
    joins: list[Action] = [AddMember(account="a_one", user="new"), AddMember(account="a_two", user="new")]
    others = leave("a_two", "u1")
    judgement = judged([*leave("a_one", *USERS[:9]), *joins, *others])
    assert judgement.allowed == (*joins, *others)
    assert "9 of the 10 members of a_one" in judgement.held[0].reason
    assert "max_removed_percent is 50" in judgement.held[0].reason


def test_what_serves_a_held_removal_waits_with_it() -> None:
    actions = [
        MoveDefaultAccount(account="a_two", user="u1", before="a_one"),
        BlockSubmission(account="a_one"),
        CancelJobs(account="a_one"),
        CancelJobs(account="a_one", user="u2"),
        *leave("a_one", *USERS[:6]),
    ]
    judgement = judged(actions)
    assert judgement.allowed == ()
    assert held(judgement) == [("account a_one", set(actions))]


def test_a_block_that_serves_no_removal_goes_through() -> None:
    """A paused resource is blocked; that its members leave as well is another matter."""
    block: Action = BlockSubmission(account="a_one")
    assert judged([block, *leave("a_one", *USERS[:6])]).allowed == (block,)


def test_too_many_from_all_accounts_together_hold_the_cluster() -> None:
    actions = [*leave("a_one", *USERS[:4]), *leave("a_two", *USERS[:4]), *leave("a_pair", "ann")]
    judgement = judged(actions, max_removed_members=8)
    assert held(judgement) == [("cluster test", set(actions))]
    assert "9 of the 22 members of the cluster" in judgement.held[0].reason


def test_an_account_held_for_itself_does_not_hold_the_others() -> None:
    many, few = leave("a_one", *USERS[:6]), leave("a_two", *USERS[:4])
    judgement = judged([*many, *few], max_removed_members=5)
    assert held(judgement) == [("account a_one", set(many))]
    assert judgement.allowed == tuple(few)


def test_too_many_accounts_that_orders_end_are_held_together_and_the_project_with_them() -> None:
    ends = [*ended("a_one", *USERS), *ended("a_two", *USERS)]
    project = DeleteAccount(account="p_p", parent="c_c")
    snapshot = cluster(
        {"root": None, "c_c": "root", "p_p": "c_c", "a_one": "p_p", "a_two": "p_p"},
        [(account, user) for account in ("a_one", "a_two") for user in USERS],
    )
    grounds = PolicyContext(ending=frozenset({"a_one", "a_two"}))
    assert decide([*ends, project], snapshot, RULES, context=grounds).held == ()
    judgement = decide([*ends, project], snapshot, replace(RULES, max_removed_accounts=1), context=grounds)
    assert held(judgement) == [("cluster test", {*ends, project})]
    assert "2 accounts would be deleted or emptied at once: a_one, a_two" in judgement.held[0].reason


def test_members_of_an_account_that_no_order_ends_count() -> None:
    """A deletion without an order is a removal of all its members."""
    actions = ended("a_one", *USERS)
    assert held(judged(actions)) == [("account a_one", set(actions))]


def test_teams_emptied_all_over_the_cluster_are_one_plan() -> None:
    names = [f"a_{n}" for n in range(12)]
    snapshot = cluster({"root": None, **dict.fromkeys(names, "root")}, [(name, "ann") for name in names])
    actions = [action for name in names for action in leave(name, "ann")]
    judgement = judged(actions, snapshot, max_removed_percent=100)
    assert held(judgement) == [("cluster test", set(actions))]
    assert "a_0, a_1, a_10, a_11, a_2 and 7 more" in judgement.held[0].reason


def test_partitions_do_not_make_members_count_twice() -> None:
    base = cluster({"root": None, "a_x": "root"}, [("a_x", f"u{n}") for n in range(4)])
    twice = {replace(a, partition=p) for a in base.associations for p in ("gpu", "cpu")}
    snapshot = replace(base, associations=frozenset(twice))
    assert "3 of the 4 members" in judged(leave("a_x", "u0", "u1", "u2"), snapshot).held[0].reason


# Modes ---------------------------------------------------------------------------------------------

NEW: list[Action] = [
    CreateAccount(account="a_new", parent="p_p"),
    SetLimits(account="a_new", after=(("cpu", 5),)),
    AddMember(account="a_new", user="u1"),
    ClaimAccount(resource="r", account="a_new"),
]
CHANGES: list[Action] = [
    AddMember(account="a_one", user="new"),
    AllowSubmission(account="a_one"),
    SetLimits(account="a_two", before=(("cpu", 5),), after=(("cpu", 6),)),
]
TAKEN: list[Action] = [
    RemoveMember(account="a_one", user="u1"),
    BlockSubmission(account="a_two"),
    CancelJobs(account="a_pair", user="ann"),
    SetLimits(account="a_one", before=(("cpu", 5),), after=(("cpu", 4),)),
    SetUserLimits(account="a_one", user="u2", after=(("cpu", 4),)),
    SetQos(account="a_two", after=("paused",), default="paused"),
]


@pytest.mark.parametrize(
    ("mode", "allowed"),
    [
        (PolicyMode.SYNC, [*NEW, *CHANGES, *TAKEN]),
        (PolicyMode.UPSERT_ONLY, [*NEW, *CHANGES]),
        (PolicyMode.CREATE_ONLY, NEW),
        (PolicyMode.OBSERVE, []),
    ],
)
def test_modes(mode: PolicyMode, allowed: list[Action]) -> None:
    snapshot = replace(site(limits={"a_one": {"cpu": 5}, "a_two": {"cpu": 5}}), used={"a_one": {"cpu": 0}})
    actions = [*NEW, *CHANGES, *TAKEN]
    judgement = judged(actions, snapshot, mode=mode, pausing_qos=frozenset({"paused"}))
    assert judgement.allowed == tuple(allowed)
    assert set(refused(judgement).values()) == ({Why.MODE} if len(allowed) < len(actions) else set())


def test_a_pause_stops_waldurs_side_too() -> None:
    actions: list[Action] = [*NEW, ApproveOrder(order="o"), ReportMetadata(resource="r", metadata="{}")]
    judgement = judged(actions, paused=True, paused_why="by ann")
    assert set(refused(judgement).values()) == {Why.PAUSED}
    assert judgement.reason(actions[0]) == "the offering is paused by ann"
    assert (judgement.allowed, judgement.held) == ((), ())


def test_an_order_that_makes_an_account_is_done_whole_or_not_at_all() -> None:
    """Its other steps are held with one that is held; people who join are not."""
    cut = SetLimits(account="a_one", after=(("cpu", 5),))
    qos, join = SetQos(account="a_one", after=("high",), default=""), AddMember(account="a_one", user="new")
    used = replace(site(limits={"a_one": {"cpu": 60}}), used={"a_one": {"cpu": 50}})
    assert decide([cut, qos, join], used, RULES).allowed == (qos, join)
    making = PolicyContext(making=frozenset({"a_one"}))
    assert decide([cut, qos, join], used, RULES, context=making).allowed == (join,)


def test_a_half_made_account_of_an_order_is_finished_in_create_only() -> None:
    limit = SetLimits(account="a_one", after=(("cpu", 5),))
    join = AddMember(account="a_one", user="new")
    begun = cluster({"root": None, "p_p": "root", "a_one": "p_p"})
    rules = replace(RULES, mode=PolicyMode.CREATE_ONLY)
    assert decide([limit, join], begun, rules).allowed == ()
    making = PolicyContext(making=frozenset({"a_one"}))
    assert decide([limit, join], begun, rules, context=making).allowed == (limit, join)
    # With people in it, it is no account that is being made, whatever the order says; more may join.
    assert decide([limit, join], site(), rules, context=making).allowed == (join,)


def test_what_an_order_says_that_it_makes_costs_what_it_costs_those_who_are_in_it() -> None:
    cut = SetLimits(account="a_one", after=(("cpu", 5),))
    making = PolicyContext(making=frozenset({"a_one", "p_p"}))
    used = replace(site(limits={"a_one": {"cpu": 60}}), used={"a_one": {"cpu": 50}})
    (plan,) = decide([cut], used, RULES, context=making).held
    assert "cpu from 60 to 5, 50 are used" in plan.reason
    unused = replace(used, used={"a_one": {"cpu": 1}})
    assert decide([cut], unused, RULES, context=making).charges != ()
    # An account of a project has no member in it, and people below it.
    above = SetLimits(account="p_p", after=(("cpu", 5),))
    assert decide([above], site(), RULES, context=making).allowed == (), "what is used there is unknown"


# Whose it is ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("account", "prefixes", "named", "why"),
    [
        ("a_one", ("a_",), (), None),
        ("theirs", ("a_",), (), Why.OWNERSHIP),
        ("theirs", ("",), (), Why.OWNERSHIP),
        ("theirs", (), ("theirs",), "held"),
        ("root", ("r",), ("root",), Why.PROTECTED),
        ("a_ignored", ("a_",), ("a_ignored",), Why.IGNORED),
    ],
)
def test_accounts_are_changed_only_where_they_are_ours(
    account: str, prefixes: tuple[str, ...], named: tuple[str, ...], why: Why | str | None
) -> None:
    snapshot = cluster({"root": None, account: "root"} if account != "root" else {"root": None})
    rules = replace(RULES, prefixes=prefixes, ignore_accounts=frozenset({"*_ign*"}))
    action = AddMember(account=account, user="u1")
    judgement = decide([action], snapshot, rules, context=PolicyContext(named=frozenset(named)))
    assert refused(judgement) == ({action: why} if isinstance(why, Why) else {})
    assert [plan.scope for plan in judgement.held] == ([f"account {account}"] if why == "held" else [])


@pytest.mark.parametrize(("user", "why"), [("root", Why.PROTECTED), ("svc-1", Why.IGNORED), ("ann", None)])
def test_users_who_are_not_ours_are_neither_added_nor_removed(user: str, why: Why | None) -> None:
    actions = [RemoveMember(account="a_pair", user=user), AddMember(account="a_one", user=user)]
    judgement = judged(actions, ignore_users=frozenset({"svc-*"}))
    assert refused(judgement) == (dict.fromkeys(actions, why) if why else {})


def test_an_ordered_end_takes_everybody_along_a_deletion_of_ours_stops_at_a_protected_user() -> None:
    snapshot = cluster({"root": None, "a_x": "root"}, [("a_x", "root"), ("a_x", "ann")])
    actions = ended("a_x", "root", "ann")
    assert decide(
        actions, snapshot, RULES, context=PolicyContext(ending=frozenset({"a_x"}))
    ).allowed == tuple(actions)
    assert decide(actions, snapshot, RULES).allowed == ()


def test_members_of_an_account_that_may_not_be_made_are_refused_with_it() -> None:
    actions: list[Action] = [
        CreateAccount(account="a_new", parent="p_p"),
        CreateAccount(account="a_below", parent="a_new"),
        AddMember(account="a_below", user="u1"),
        SetQos(account="a_new", after=("normal",), default="normal"),
        MoveDefaultAccount(account="a_below", user="u1", before="a_one"),
    ]
    judgement = judged(actions, protected_accounts=frozenset({"a_new"}))
    assert set(refused(judgement).values()) == {Why.PROTECTED}
    assert judgement.allowed == ()
    assert "goes with: create account a_new below p_p" in judgement.reason(actions[2])


def test_who_cannot_leave_one_account_keeps_the_default_account_too() -> None:
    snapshot = site(defaults={"u1": "a_two"})
    actions = [*leave("a_one", *USERS[:6]), *leave("a_two", "u1")]
    assert judged(actions, snapshot).allowed == ()


# Limits --------------------------------------------------------------------------------------------

CUT = SetLimits(account="a_one", before=(("cpu", 100), ("mem", 9)), after=(("cpu", 50), ("mem", 10)))


@pytest.mark.parametrize(
    ("used", "says"),
    [
        ({"a_one": {"cpu": 60, "mem": 0}}, "cpu from 100 to 50, 60 are used"),
        ({"a_one": {"mem": 0}}, "cpu from 100 to 50, what is used is not known"),
        ({}, "what is used is not known"),
        ({"a_one": {"cpu": 50}}, ""),
    ],
)
def test_a_cut_below_what_is_used_or_unknown_is_held(used: dict[str, dict[str, int]], says: str) -> None:
    snapshot = replace(site(limits={"a_one": {"cpu": 100, "mem": 9}}), used=used)
    judgement = judged([CUT], snapshot)
    assert held(judgement) == ([("account a_one", {CUT})] if says else [])
    assert says in "".join(plan.reason for plan in judgement.held)
    freely = judged([CUT], snapshot, limit_cuts=LimitCuts.ALLOW)
    assert freely.allowed == (CUT,)
    (note,) = freely.notes
    assert note.startswith(f"lowers limits of {CUT.account} (in the cluster's units): ")
    assert note.endswith(" are used") or "is not known" in note


def test_use_that_was_not_read_counts_as_unknown() -> None:
    limits = {"a_one": {"cpu": 100, "mem": 9}}
    snapshot = replace(site(limits=limits), used={"a_one": {"cpu": 0}})
    assert judged([CUT], snapshot).held == ()
    assert judged([CUT], without(snapshot, Part.USAGE)).held != ()


def test_a_first_limit_is_a_cut_from_unlimited() -> None:
    snapshot = replace(site(), used={"a_one": {"cpu": 60, "mem": 0}})
    assert "cpu from unlimited to 50, 60 are used" in judged([CUT], snapshot).held[0].reason


# What was not read -----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS, Part.USAGE])
def test_nothing_is_taken_away_on_half_a_picture(part: Part) -> None:
    snapshot = without(site(limits={"a_one": {"cpu": 100}, "a_two": {"cpu": 100}}), part)
    actions: list[Action] = [
        *leave("a_one", "u1"),
        *leave("a_two", "u1"),
        MoveDefaultAccount(account="a_pair", user="u1", before="a_one"),
        DeleteAccount(account="a_pair", parent="p_p"),
        CUT,
    ]
    allowed = judged(actions, snapshot).allowed
    assert CUT not in allowed
    if part in (Part.ACCOUNTS, Part.ASSOCIATIONS):
        assert not any(isinstance(action, RemoveMember | DeleteAccount) for action in allowed)
    if part is Part.DEFAULT_ACCOUNTS:
        assert not any(isinstance(action, RemoveMember | MoveDefaultAccount) for action in allowed)
