# SPDX-License-Identifier: MIT
"""A flood of small plans meets the same budgets as one large plan, and a person's deliberate act stays easy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from agent.core.actions import (
    Action,
    AddMember,
    BlockMember,
    BlockSubmission,
    CancelJobs,
    CreateAccount,
    DeleteAccount,
    MoveAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetQos,
    SetUserLimits,
)
from agent.core.association_actions import ResetQosUsage, SetMemberQos
from agent.core.directory_actions import (
    AddToGroup,
    AssignUsername,
    CreateUser,
    DeactivateUser,
    DeleteGroup,
    RemoveFromGroup,
    RenameUser,
    UpdateProfile,
)
from agent.core.host_actions import MakeHome, SetQuota
from agent.core.key_actions import EndKey, IssueKey, PauseKey, ResumeKey
from agent.core.model import Account, Snapshot
from agent.core.periodic import LimitType
from agent.core.periodic_actions import ResetRawUsage, SetFairshare, SetPeriodicLimits
from agent.core.policy import Budget, Charge, Cost, History, PolicyMode, PolicyRules
from agent.core.waldur_actions import ClaimAccount
from agent.plan.policy.gate import Decision, EarlierPlans, WaitingPlan, decide
from agent.plan.policy.rules import PolicyContext, Why
from tests.plan.worlds import cluster, shown, waiting

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


# Floods --------------------------------------------------------------------------------------------


def test_teams_that_are_answered_empty_stop_at_the_budget_whatever_brings_them() -> None:
    world = Site(site(40, 2))
    allowed = [bool(world.run(leave(f"a_{n}", team(f"a_{n}", 2))).allowed) for n in range(40)]
    assert allowed == [True] * 10 + [False] * 30
    (plan,) = world.run(leave("a_39", team("a_39", 2))).held
    assert plan.reason == (
        "1 account would be deleted or emptied at once: a_39, after 10 within the last hour "
        "(max_removed_accounts is 10)"
    )


def test_half_of_each_team_stops_after_fifty_members() -> None:
    world = Site(site(20, 10))
    allowed = [bool(world.run(leave(f"a_{n}", team(f"a_{n}", 10)[:5])).allowed) for n in range(20)]
    assert allowed == [True] * 10 + [False] * 10
    (plan,) = world.run(leave("a_19", team("a_19", 10)[:5])).held
    assert plan.reason == (
        "5 of the 150 members of the cluster would be removed at once, below p_p (5), after 50 within the last hour "
        "(max_removed_members is 50)"
    )


def test_of_three_batches_of_ten_terminations_the_first_is_carried_out() -> None:
    world = Site(site(60, 6))
    decisions = []
    for batch in range(3):
        names = [f"a_{n}" for n in range(batch * 10, batch * 10 + 10)]
        ends = [step for name in names for step in ended(name, team(name, 6))]
        decisions.append(world.run(ends, PolicyContext(ending=frozenset(names))))
    assert [bool(found.allowed) for found in decisions] == [True, False, False]
    assert decisions[0].charges == tuple(sorted(Charge(Cost.ACCOUNTS_EMPTIED, f"a_{n}") for n in range(10)))
    assert "10 accounts would be deleted or emptied at once" in decisions[1].held[0].reason


def test_the_day_has_a_budget_too() -> None:
    world = Site(site(60, 2))
    counts = []
    for hour in range(4):
        for n in range(hour * 10, hour * 10 + 10):
            world.run(leave(f"a_{n}", team(f"a_{n}", 2)))
        counts.append(len({c for c in world.history.day if c.cost is Cost.ACCOUNTS_EMPTIED}))
        world.an_hour_passes()
    assert counts == [10, 20, 25, 25]


def test_members_of_one_account_add_up() -> None:
    world = Site(site(50, 10))
    allowed = [bool(world.run(leave("a_0", [user])).allowed) for user in team("a_0", 10)]
    assert allowed == [True] * 5 + [False] * 5
    (plan,) = world.run(leave("a_0", team("a_0", 10)[5:6])).held
    assert plan.scope == "account a_0"
    assert plan.reason == (
        "1 of the 5 members of a_0 would be removed at once, after 5 within the last hour (max_removed_percent is 50)"
    )


def ended(account: str, users: Iterable[str]) -> list[Action]:
    return [
        *(MoveDefaultAccount(account="p_other", user=user, before=account) for user in users),
        BlockSubmission(account=account),
        CancelJobs(account=account),
        *leave(account, users),
        DeleteAccount(account=account, parent="p_p"),
    ]


FIVE_HUNDRED = [f"a_{n}" for n in range(500)]
FLOODS: dict[str, list[Action]] = {
    "submission blocked": [BlockSubmission(account=name) for name in FIVE_HUNDRED],
    "QoS of a pause": [SetQos(account=name, after=("paused",), default="paused") for name in FIVE_HUNDRED],
    "downscaled": [SetQos(account=name, after=("slow",), default="slow") for name in FIVE_HUNDRED],
    "QoS of a pause for members": [
        SetMemberQos(account=name, user=user, after=("paused",), default="paused")
        for name in FIVE_HUNDRED
        for user in team(name, 6)
    ],
    "shares lowered": [SetFairshare(account=name, before=9, after=1) for name in FIVE_HUNDRED],
    "raw usage reset": [ResetRawUsage(account=name) for name in FIVE_HUNDRED],
    "usage of QoS reset": [ResetQosUsage(account=name) for name in FIVE_HUNDRED],
    "keys ended": [EndKey(key=name, resource="r", account="a_0", client_id=name) for name in FIVE_HUNDRED],
    "keys paused": [PauseKey(key=name, resource="r", account=name, client_id="k") for name in FIVE_HUNDRED],
    "keys replaced": [
        IssueKey(key=name, resource="r", account=name, client_id="k", replaces=True) for name in FIVE_HUNDRED
    ],
    "users made": [
        CreateUser(user=user, uid=5000, gid=5000) for name in FIVE_HUNDRED for user in team(name, 6)
    ],
    "usernames made": [
        AssignUsername(offering_user=user, username="", is_new=True)
        for name in FIVE_HUNDRED
        for user in team(name, 6)
    ],
    "homes made": [
        MakeHome(user=user, path=f"/home/{user}", umask="0077")
        for name in FIVE_HUNDRED
        for user in team(name, 6)
    ],
    "another parent": [MoveAccount(account=name, before="p_p", after="p_other") for name in FIVE_HUNDRED],
    "MaxTRESMins to 0": [
        SetUserLimits(account=name, user=user, after=(("cpu", 0),))
        for name in FIVE_HUNDRED
        for user in team(name, 6)
    ],
    "limits just above what is used": [
        SetLimits(account=name, after=(("cpu", 901),)) for name in FIVE_HUNDRED
    ],
    "periodic limits": [
        SetPeriodicLimits(
            account=name, limit_type=LimitType.GRP_TRES_MINS, before=(("cpu", 1000),), after=(("cpu", 901),)
        )
        for name in FIVE_HUNDRED
    ],
    "jobs cancelled": [CancelJobs(account=name) for name in FIVE_HUNDRED],
    "default account to root": [
        MoveDefaultAccount(account="root", user=user, before=name)
        for name in FIVE_HUNDRED
        for user in team(name, 6)
    ],
    "members blocked": [
        BlockMember(account=name, user=user) for name in FIVE_HUNDRED for user in team(name, 6)[:2]
    ],
    "groups emptied": [
        RemoveFromGroup(group=name, user=user) for name in FIVE_HUNDRED for user in team(name, 6)
    ],
    "groups deleted": [DeleteGroup(group=name) for name in FIVE_HUNDRED],
    "users renamed": [
        RenameUser(before=user, user=f"new_{user}") for name in FIVE_HUNDRED for user in team(name, 1)
    ],
    "shells replaced": [
        UpdateProfile(user=user, changes=(("sn", "x"), ("loginShell", "/bin/false")))
        for name in FIVE_HUNDRED
        for user in team(name, 1)
    ],
    "users deactivated": [DeactivateUser(user=user) for name in FIVE_HUNDRED for user in team(name, 6)],
    "quotas lowered": [
        SetQuota(
            user=user, provider="xfs", place="/home", before=(("bhard", "10g"),), limits=(("bhard", "9999m"),)
        )
        for name in FIVE_HUNDRED
        for user in team(name, 6)
    ],
}


@pytest.mark.parametrize("actions", FLOODS.values(), ids=FLOODS)
def test_what_reaches_all_accounts_at_once_is_held(actions: list[Action]) -> None:
    found = decide(actions, site(500, 6), RULES)
    assert found.allowed == ()
    (plan,) = found.held
    assert plan.actions == tuple(actions)
    assert plan.scope == "cluster test"


@pytest.mark.parametrize("actions", FLOODS.values(), ids=FLOODS)
def test_the_same_one_by_one_stops_at_the_budget(actions: list[Action]) -> None:
    few = {Cost.PEOPLE_MADE: Budget(60, 60), Cost.HOMES_MADE: Budget(60, 60)}
    world = Site(site(500, 6), replace(RULES, budgets={**RULES.budgets, **few}))
    for action in actions[:80]:
        world.run([action])
    for cost in Cost:
        spent = {charge for charge in world.history.hour if charge.cost is cost}
        assert len(spent) <= world.rules.budget(cost).hour
    assert 0 < len(world.history.hour) < 80


def test_an_onboarding_of_a_thousand_people_waits_for_nobody() -> None:
    people = [f"u{number}" for number in range(1000)]
    made: list[Action] = [CreateUser(user=user, uid=5000, gid=5000) for user in people]
    made += [MakeHome(user=user, path=f"/home/{user}", umask="0077") for user in people]
    assert decide(made, site(9, 6), RULES).allowed == tuple(made)


LOSES_NOTHING: dict[str, Action] = {
    "downscaled already": SetQos(account="a_slow", after=("slow", "x"), default="slow"),
    "a pause that ends": SetQos(account="a_paused", after=("slow",), default="slow"),
    "the usual QoS": SetQos(account="a_slow", after=("normal",), default="normal"),
    "a share that grows": SetFairshare(account="a_0", before=5, after=6),
    "a reset that is due": ResetRawUsage(account="a_0", before="2026-01"),
    "the usage of a QoS that nobody has": ResetQosUsage(account="a_new"),
    "a new key": IssueKey(key="k", resource="r", account="a_0", client_id="k"),
    "a key that nobody got": EndKey(key="k", resource="r", account="a_0", client_id="k", is_unused=True),
    "a key that opens again": ResumeKey(key="k", resource="r", account="a_0", client_id="k"),
    "a name that somebody had": AssignUsername(offering_user="u", username="ann"),
    "a member of usual QoS": SetMemberQos(account="a_0", user="a_0_u0", after=("fast",), default="fast"),
}


@pytest.mark.parametrize("action", LOSES_NOTHING.values(), ids=LOSES_NOTHING)
def test_what_takes_nothing_from_anybody_costs_nothing(action: Action) -> None:
    accounts = {f"a_{qos}": Account(f"a_{qos}", "p_p", default_qos=qos) for qos in ("slow", "paused")}
    snapshot = site(1, 1)
    snapshot = replace(snapshot, accounts={**snapshot.accounts, **accounts})
    assert action.charges(snapshot, RULES) == ()


def test_an_exchange_of_all_members_counts_as_emptied() -> None:
    names = FIVE_HUNDRED[:25]
    exchanged = [
        step
        for name in names
        for step in (AddMember(account=name, user="stranger"), *leave(name, team(name, 2)))
    ]
    found = decide(exchanged, site(500, 2), RULES)
    (plan,) = found.held
    assert "25 accounts would be deleted or emptied at once" in plan.reason
    assert set(found.allowed) == {action for action in exchanged if isinstance(action, AddMember)}


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


def test_what_goes_with_a_removal_is_not_charged_beside_it() -> None:
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


def test_what_costs_people_something_is_refused_while_nobody_can_write_it_down() -> None:
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
