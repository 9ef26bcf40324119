# SPDX-License-Identifier: MIT
"""A person's deliberate act stays easy; what was spent before counts; every kind of action meets the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.actions import (
    Action,
    AddMember,
    BlockMember,
    BlockSubmission,
    CancelJobs,
    CreateAccount,
    MoveAccount,
    MoveDefaultAccount,
    SetLimits,
    SetQos,
)
from agent.core.directory_actions import (
    AddToGroup,
    DeactivateUser,
    DeleteGroup,
    RemoveFromGroup,
    RenameUser,
    UpdateProfile,
)
from agent.core.host_actions import MakeHome, SetQuota
from agent.core.periodic import LimitType
from agent.core.periodic_actions import ResetRawUsage, SetFairshare, SetPeriodicLimits
from agent.core.policy import Budget, Charge, Cost, History, PolicyMode, PolicyRules
from agent.core.waldur_actions import ClaimAccount
from agent.plan.policy.gate import EarlierPlans, decide
from agent.plan.policy.rules import PolicyContext, Why
from tests.agent.plan.policy.budgeted_site import FIVE_HUNDRED, RULES, Site, ended, leave, site, team
from tests.agent.plan.worlds import shown, waiting

pytestmark = [pytest.mark.safety, pytest.mark.floods]

# Deliberate acts -----------------------------------------------------------------------------------


def test_a_pause_of_a_few_allocations_needs_no_second_word() -> None:
    pauses: list[Action] = [BlockSubmission(account=f"a_{n}") for n in range(20)]
    assert decide(pauses, site(500, 6), RULES).allowed == tuple(pauses)


def test_restricted_access_to_one_allocation_needs_no_second_word_and_to_all_of_them_does() -> None:
    snapshot = site(500, 6)
    one = leave("a_0", team("a_0", 6))
    context = PolicyContext(deliberate=frozenset(FIVE_HUNDRED))
    found = decide(one, snapshot, RULES, context=context)
    assert found.allowed == tuple(one)
    assert found.charges == (Charge(Cost.ACCOUNTS_EMPTIED, "a_0"),)
    assert decide(one, snapshot, RULES).allowed == ()
    every = [step for name in FIVE_HUNDRED for step in leave(name, team(name, 6))]
    assert decide(every, snapshot, RULES, context=context).allowed == ()


def test_the_end_of_a_project_needs_no_second_word() -> None:
    names = [f"a_{n}" for n in range(8)]
    ends = [step for name in names for step in ended(name, team(name, 6))]
    found = decide(ends, site(500, 6), RULES, context=PolicyContext(ending=frozenset(names)))
    assert found.allowed == tuple(ends)
    assert {charge.cost for charge in found.charges} == {Cost.ACCOUNTS_EMPTIED}


def test_what_goes_with_a_removal_is_not_charged_in_addition() -> None:
    user = "a_0_u0"
    steps: list[Action] = [
        MoveDefaultAccount(account="a_1", user=user, before="a_0"),
        BlockMember(account="a_0", user=user),
        CancelJobs(account="a_0", user=user),
        *leave("a_0", [user]),
    ]
    found = decide([AddMember(account="a_1", user=user), *steps], site(9, 6), RULES)
    assert found.charges == (Charge(Cost.MEMBERS_REMOVED, "a_0", user),)


def test_the_making_of_accounts_costs_nothing() -> None:
    names = [f"a_new{n}" for n in range(500)]
    made = [
        step
        for name in names
        for step in (
            CreateAccount(account=name, parent="p_p"),
            SetLimits(account=name, after=(("cpu", 5),)),
            SetQos(account=name, after=("paused",), default="paused"),
            AddMember(account=name, user="ann"),
        )
    ]
    context = PolicyContext(making=frozenset(names), unrecorded="the disk is full")
    found = decide(made, site(1, 1), RULES, context=context)
    assert (found.allowed, found.charges) == (tuple(made), ())


def test_names_and_addresses_of_people_follow_waldur_for_free() -> None:
    profiles: list[Action] = [
        UpdateProfile(user=f"u{n}", changes=(("sn", "Miller"), ("mail", "m@x.org"))) for n in range(500)
    ]
    found = decide(profiles, site(1, 1), RULES)
    assert (found.allowed, found.charges) == (tuple(profiles), ())


def test_a_few_people_are_renamed_without_a_second_word() -> None:
    names: list[Action] = [RenameUser(before=f"u{n}", user=f"v{n}") for n in range(5)]
    found = decide(names, site(500, 6), RULES)
    assert found.allowed == tuple(names)
    assert set(found.charges) == {
        charge
        for n in range(5)
        for charge in (Charge(Cost.MEMBERS_REMOVED, "", f"v{n}"), Charge(Cost.PEOPLE_RENAMED, "", f"u{n}"))
    }


@pytest.mark.parametrize("members", [0, 6], ids=["no cluster was read", "a large cluster"])
def test_people_who_are_renamed_one_by_one_meet_the_budget_and_no_percentage(members: int) -> None:
    world = Site(site(500, members))
    allowed = [bool(world.run([RenameUser(before=f"u{n}", user=f"v{n}")]).allowed) for n in range(8)]
    assert allowed == [True] * 5 + [False] * 3
    (plan,) = world.run([RenameUser(before="u7", user="v7")]).held
    assert (
        plan.reason
        == "the username of 1 user would change at once: u7, after 5 within the last hour (people_renamed is 5 an hour)"
    )


def test_jobs_that_are_not_there_and_a_door_that_is_closed_already_cost_nothing() -> None:
    actions: list[Action] = [CancelJobs(account="a_0", jobs=0), BlockSubmission(account="a_0")]
    snapshot = site(1, 1)
    closed = replace(snapshot.accounts["a_0"], submit_limit=0)
    snapshot = replace(snapshot, accounts={**snapshot.accounts, "a_0": closed})
    assert decide(actions, snapshot, RULES).charges == ()


# History -------------------------------------------------------------------------------------------


def test_the_same_charge_again_costs_nothing() -> None:
    """A removal that failed is tried in every pass."""
    world = Site(site(40, 2))
    steps = [step for n in range(10) for step in leave(f"a_{n}", team(f"a_{n}", 2))]
    first = world.run(steps)
    world.snapshot = site(40, 2)
    assert world.run(steps).allowed == first.allowed == tuple(steps)
    both = [*leave("a_0", team("a_0", 2)), *leave("a_20", team("a_20", 2))]
    assert world.run(both).allowed == tuple(both[:2])


def test_what_was_approved_counts_against_no_budget_then_and_later() -> None:
    world = Site(site(60, 2))
    names = [f"a_{n}" for n in range(12)]
    steps = [step for name in names for step in leave(name, team(name, 2))]
    (plan,) = world.run(steps).held
    found = world.run(steps, approved=shown(plan))
    assert (found.allowed, found.charges) == (tuple(steps), ())
    assert {c for c in found.approved_charges[plan.id] if c.cost is Cost.ACCOUNTS_EMPTIED} == {
        Charge(Cost.ACCOUNTS_EMPTIED, name) for name in names
    }
    groups: list[Action] = [DeleteGroup(group=name) for name in names]
    assert world.run(groups).allowed == tuple(groups)
    more = [step for n in range(20, 30) for step in leave(f"a_{n}", team(f"a_{n}", 2))]
    assert world.run(more).allowed == tuple(more)


def test_a_plan_held_for_its_history_waits_for_a_person_and_not_for_the_clock() -> None:
    world = Site(site(60, 2))
    world.run([step for n in range(10) for step in leave(f"a_{n}", team(f"a_{n}", 2))])
    late = leave("a_20", team("a_20", 2))
    (plan,) = world.run(late).held
    world.waiting = (waiting(plan),)
    world.history = History()
    other = leave("a_30", team("a_30", 2))
    again = world.run([*late, *other])
    assert (again.allowed, [held.id for held in again.held]) == (tuple(other), [plan.id])
    approved = world.run(late, approved=shown(plan))
    assert (approved.allowed, approved.charges) == (tuple(late), ())
    assert world.run([]).held == ()


def test_a_larger_plan_for_the_same_account_takes_the_place_of_the_one_that_waits() -> None:
    world = Site(site(9, 10))
    world.run(leave("a_0", team("a_0", 10)[:5]))
    (plan,) = world.run(leave("a_0", team("a_0", 10)[5:6])).held
    world.waiting = (waiting(plan),)
    (larger,) = world.run(leave("a_0", team("a_0", 10)[5:8])).held
    assert larger.id != plan.id


def test_many_accounts_that_wait_for_a_person_are_no_second_plan() -> None:
    world = Site(site(60, 10))
    world.run(leave("a_0", team("a_0", 10)[:5]))
    steps = leave("a_0", team("a_0", 10)[5:6])
    steps += [step for n in range(1, 8) for step in leave(f"a_{n}", team(f"a_{n}", 10)[:6])]
    (plan,) = world.run(steps).held
    world.waiting = (waiting(plan),)
    again = world.run(steps)
    assert (again.allowed, [held.id for held in again.held]) == ((), [plan.id])
    assert world.run(steps, approved=shown(plan)).allowed == tuple(steps)


# A person must look at all of it, or nothing can be written down ------------------------------------------


def test_what_is_rebuilt_waits_as_one_plan_until_it_is_approved() -> None:
    made: list[Action] = [
        CreateAccount(account="a_new", parent="p_p"),
        AddMember(account="a_new", user="ann"),
        AddMember(account="a_0", user="bob"),
    ]
    claim = ClaimAccount(resource="r", account="a_0")
    context = PolicyContext(needs_approval="the cluster was lost")
    found = decide([*made, claim], site(1, 1), RULES, context=context)
    (plan,) = found.held
    assert (plan.reason, plan.actions, found.allowed) == ("the cluster was lost", tuple(made), (claim,))
    approved = EarlierPlans(approved=shown(plan))
    assert decide([*made, claim], site(1, 1), RULES, approved, context).allowed == (*made, claim)


def test_what_costs_people_something_is_refused_while_it_cannot_be_recorded() -> None:
    costly = [*leave("a_0", ["a_0_u0"]), BlockSubmission(account="a_1")]
    free: list[Action] = [
        AddMember(account="a_0", user="ann"),
        SetLimits(account="a_1", after=(("cpu", 2000),)),
    ]
    context = PolicyContext(unrecorded="the disk is full")
    found = decide([*costly, *free], site(9, 6), RULES, context=context)
    assert found.allowed == tuple(free)
    assert {(r.why, r.sentence) for r in found.refused} == {(Why.UNRECORDED, "the disk is full")}


# Limits below what is used ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit_type", "waits"), [(LimitType.GRP_TRES_MINS, True), (LimitType.GRP_TRES, False)]
)
def test_a_periodic_limit_below_what_is_used_waits_like_any_other(limit_type: LimitType, waits: bool) -> None:
    cut = SetPeriodicLimits(
        account="a_0", limit_type=limit_type, before=(("cpu", 1000),), after=(("cpu", 800),)
    )
    found = decide([cut], site(9, 6), RULES)
    assert bool(found.held) is waits
    if waits:
        assert "cpu from 1000 to 800, 900 are used" in found.held[0].reason


# The rules hold for the directory, the head node and periodic settings as well ------------------------------

GIVEN: list[Action] = [
    AddToGroup(group="a_0", user="ann"),
    MakeHome(user="ann", path="/home/ann", umask="0077"),
    SetFairshare(account="a_0", before=5, after=6),
    SetPeriodicLimits(
        account="a_0", limit_type=LimitType.GRP_TRES, before=(("cpu", 5),), after=(("cpu", 6),)
    ),
    ResetRawUsage(account="a_0"),
]
TAKEN: list[Action] = [
    RemoveFromGroup(group="a_0", user="ann"),
    DeleteGroup(group="a_1"),
    DeactivateUser(user="ann"),
    SetQuota(user="ann", provider="xfs", place="/home", before=(("bhard", "2g"),), limits=(("bhard", "1g"),)),
    SetFairshare(account="a_1", before=5, after=4),
    SetPeriodicLimits(
        account="a_1", limit_type=LimitType.GRP_TRES, before=(("cpu", 5),), after=(("cpu", 4),)
    ),
]


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (RULES, [*GIVEN, *TAKEN]),
        (replace(RULES, mode=PolicyMode.UPSERT_ONLY), GIVEN),
        (replace(RULES, mode=PolicyMode.CREATE_ONLY), GIVEN[:2]),
        (replace(RULES, mode=PolicyMode.OBSERVE), []),
        (replace(RULES, paused=True), []),
        (replace(RULES, protected_users=frozenset({"ann"})), [*GIVEN[2:], TAKEN[1], *TAKEN[4:]]),
        (replace(RULES, ignore_users=frozenset({"a*"})), [*GIVEN[2:], TAKEN[1], *TAKEN[4:]]),
        (replace(RULES, protected_accounts=frozenset({"a_0"})), [GIVEN[1], *TAKEN[1:]]),
        (replace(RULES, prefixes=()), [*GIVEN[:2], *TAKEN[:4]]),
    ],
    ids=[
        "sync",
        "upsert-only",
        "create-only",
        "observe",
        "paused",
        "protected",
        "ignored",
        "account",
        "not ours",
    ],
)
def test_groups_homes_and_periodic_settings_keep_the_rules(rules: PolicyRules, allowed: list[Action]) -> None:
    assert decide([*GIVEN, *TAKEN], site(2, 2), rules).allowed == tuple(allowed)


def test_a_site_writes_its_own_budgets() -> None:
    moves: list[Action] = [MoveAccount(account=f"a_{n}", before="p_p", after="p_other") for n in range(3)]
    rules = replace(RULES, budgets={**RULES.budgets, Cost.ACCOUNTS_MOVED: Budget(2, 2)})
    (plan,) = decide(moves, site(9, 6), rules).held
    assert plan.reason == "3 accounts would be moved at once: a_0, a_1, a_2 (accounts_moved is 2 an hour)"
