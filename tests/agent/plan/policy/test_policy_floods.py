# SPDX-License-Identifier: MIT
"""A flood of small plans meets the same budgets as one large plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.actions import (
    Action,
    AddMember,
    BlockMember,
    BlockSubmission,
    CancelJobs,
    MoveAccount,
    MoveDefaultAccount,
    SetLimits,
    SetQos,
    SetUserLimits,
)
from agent.core.association_actions import ResetQosUsage, SetMemberQos
from agent.core.directory_actions import (
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
from agent.core.model import Account
from agent.core.periodic import LimitType
from agent.core.periodic_actions import ResetRawUsage, SetFairshare, SetPeriodicLimits
from agent.core.policy import Budget, Charge, Cost
from agent.plan.policy.gate import decide
from agent.plan.policy.rules import PolicyContext
from tests.agent.plan.policy.budgeted_site import FIVE_HUNDRED, RULES, Site, ended, leave, site, team

pytestmark = [pytest.mark.safety, pytest.mark.floods]

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


def test_an_onboarding_of_a_thousand_people_waits_for_no_person() -> None:
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
    "the usage of a QoS that no account has": ResetQosUsage(account="a_new"),
    "a new key": IssueKey(key="k", resource="r", account="a_0", client_id="k"),
    "a key that no user got": EndKey(key="k", resource="r", account="a_0", client_id="k", is_unused=True),
    "a key that opens again": ResumeKey(key="k", resource="r", account="a_0", client_id="k"),
    "a name that a user had": AssignUsername(offering_user="u", username="ann"),
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
