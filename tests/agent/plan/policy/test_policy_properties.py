# SPDX-License-Identifier: MIT
"""What holds for every judgement, whatever a planner came up with."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from agent.core.actions import (
    Action,
    AddMember,
    AllowSubmission,
    BlockMember,
    BlockSubmission,
    CancelJobs,
    CreateAccount,
    CreateQos,
    DeleteAccount,
    DeleteQos,
    Effect,
    MoveAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetQos,
    SetUserLimits,
)
from agent.core.directory_actions import DeactivateUser, DeleteGroup, RemoveFromGroup
from agent.core.model import Part, Snapshot
from agent.core.periodic import LimitType
from agent.core.periodic_actions import SetPeriodicLimits
from agent.core.policy import Budget, Charge, Cost, History, LimitCuts, PolicyMode, PolicyRules
from agent.core.waldur_actions import ClaimAccount, RefreshLastSync
from agent.plan.policy.gate import Decision, EarlierPlans, decide
from agent.plan.policy.rules import PolicyContext, is_empty
from tests.agent.plan.worlds import cluster, shown

pytestmark = pytest.mark.safety

STANDING = {
    "root": None,
    "c_c": "root",
    "p_p": "c_c",
    "a_1": "p_p",
    "a_2": "p_p",
    "a_3": "p_p",
    "theirs": "root",
}
NEW = ("a_new", "p_new")
ACCOUNTS = st.sampled_from([*STANDING, *NEW])
USERS = ("ann", "bob", "eve", "fay", "gus", "root", "svc")
PEOPLE = st.sampled_from(USERS)
LIMITS = st.dictionaries(st.sampled_from(["cpu", "mem"]), st.integers(0, 4), min_size=1)

ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(CreateAccount, account=st.sampled_from(NEW), parent=ACCOUNTS),
    st.builds(MoveAccount, account=ACCOUNTS, before=ACCOUNTS, after=ACCOUNTS),
    st.builds(AddMember, account=ACCOUNTS, user=PEOPLE),
    st.builds(RemoveMember, account=ACCOUNTS, user=PEOPLE),
    st.builds(RemoveMember, account=ACCOUNTS, user=PEOPLE),
    st.builds(MoveDefaultAccount, account=ACCOUNTS, user=PEOPLE, before=ACCOUNTS),
    st.builds(SetLimits, account=ACCOUNTS, after=LIMITS.map(lambda d: tuple(sorted(d.items())))),
    st.builds(SetQos, account=ACCOUNTS, after=st.just(("normal",)), default=st.just("normal")),
    st.builds(CreateQos, account=ACCOUNTS),
    st.builds(DeleteQos, account=ACCOUNTS),
    st.builds(BlockSubmission, account=ACCOUNTS),
    st.builds(AllowSubmission, account=ACCOUNTS),
    st.builds(CancelJobs, account=ACCOUNTS, user=st.sampled_from(["", *USERS])),
    st.builds(DeleteAccount, account=ACCOUNTS, parent=ACCOUNTS),
    st.builds(ClaimAccount, resource=st.just("r"), account=ACCOUNTS),
    st.builds(
        SetUserLimits, account=ACCOUNTS, user=PEOPLE, after=LIMITS.map(lambda d: tuple(sorted(d.items())))
    ),
    st.builds(BlockMember, account=ACCOUNTS, user=PEOPLE),
    st.builds(
        SetPeriodicLimits,
        account=ACCOUNTS,
        limit_type=st.sampled_from(LimitType),
        before=st.just((("cpu", 3),)),
        after=st.integers(0, 4).map(lambda value: (("cpu", value),)),
    ),
    st.builds(RemoveFromGroup, group=ACCOUNTS, user=PEOPLE),
    st.builds(DeleteGroup, group=ACCOUNTS),
    st.builds(DeactivateUser, user=PEOPLE),
    st.builds(RefreshLastSync, resource=st.sampled_from(["r", "s"])),
)


@st.composite
def bundles(draw: st.DrawFn) -> list[Action]:
    """What planners write together: an account made, or emptied, or ended, with all that belongs to it."""
    account = draw(st.sampled_from(["a_1", "a_2", "p_p"]))
    users = draw(st.lists(PEOPLE, unique=True, max_size=5))
    made: list[Action] = [
        CreateAccount(account="p_new", parent="p_p"),
        CreateAccount(account="a_new", parent="p_new"),
        CreateQos(account="a_new"),
        SetQos(account="a_new", after=("a_new",), default="a_new"),
        *(AddMember(account="a_new", user=user) for user in users),
        ClaimAccount(resource="r", account="a_new"),
    ]
    taken: list[Action] = [
        *(
            MoveDefaultAccount(account="a_3", user=user, before=account)
            for user in users
            if draw(st.booleans())
        ),
        *([BlockSubmission(account=account), CancelJobs(account=account)] if draw(st.booleans()) else []),
        *(CancelJobs(account=account, user=user) for user in users if draw(st.booleans())),
        *(RemoveMember(account=account, user=user) for user in users),
        *([DeleteAccount(account=account, parent="p_p")] if draw(st.booleans()) else []),
    ]
    return draw(st.sampled_from([made, taken, taken]))


CHARGES = st.frozensets(st.builds(Charge, st.sampled_from(Cost), ACCOUNTS, PEOPLE | st.just("")), max_size=4)


@dataclass(frozen=True)
class Case:
    actions: list[Action]
    snapshot: Snapshot
    rules: PolicyRules
    context: PolicyContext
    history: History

    def in_mode(self, mode: PolicyMode) -> Case:
        return replace(self, rules=replace(self.rules, mode=mode))

    def judged(self, approved: EarlierPlans = EarlierPlans()) -> Decision:
        return decide(self.actions, self.snapshot, self.rules, approved, self.context, self.history)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = sorted(STANDING)
    members = draw(st.sets(st.tuples(st.sampled_from(names), PEOPLE), max_size=20))
    snapshot = cluster(
        STANDING,
        members,
        defaults={user: account for account, user in sorted(members) if draw(st.booleans())},
        limits={name: draw(LIMITS) for name in names if draw(st.booleans())},
        lacking=draw(st.sets(st.sampled_from(list(Part)), max_size=draw(st.sampled_from([0, 0, 0, 2])))),
    )
    used = {name: draw(LIMITS) for name in names if draw(st.booleans())}
    hours = {cost: draw(st.integers(0, 4)) for cost in Cost}
    rules = PolicyRules(
        budgets={cost: Budget(hour, hour + draw(st.integers(0, 3))) for cost, hour in hours.items()},
        pausing_qos=draw(st.sampled_from([frozenset(), frozenset({"normal"})])),
        mode=draw(st.sampled_from(PolicyMode)),
        max_removed_members=draw(st.integers(0, 6)),
        max_removed_percent=draw(st.integers(0, 100)),
        small_removal=draw(st.integers(0, 3)),
        max_removed_accounts=draw(st.integers(0, 3)),
        limit_cuts=draw(st.sampled_from(LimitCuts)),
        ignore_users=frozenset({"s*"}) if draw(st.booleans()) else frozenset(),
        prefixes=("c_", "p_", "a_") if draw(st.integers(0, 9)) else (),
        protected_accounts=draw(st.sampled_from([frozenset({"root"}), frozenset({"root", "a_new"})])),
    )
    some = st.frozensets(ACCOUNTS, max_size=2)
    rarely = st.sampled_from(["", "", "", "", "for a reason"])
    context = PolicyContext(
        draw(some),
        draw(st.frozensets(st.sampled_from(NEW))),
        draw(some),
        draw(some),
        needs_approval=draw(rarely),
        unrecorded=draw(rarely),
    )
    chosen = [*draw(st.lists(ACTIONS, max_size=6)), *chain(*draw(st.lists(bundles(), max_size=3)))]
    actions = draw(st.permutations(list(dict.fromkeys(chosen))))
    today = draw(CHARGES)
    history = History(draw(st.sampled_from([frozenset(), today])), today | draw(CHARGES), draw(CHARGES))
    return Case(actions, replace(snapshot, used=used), rules, context, history)


PROPERTIES: list[Callable[[Case], None]] = []


def always(check: Callable[[Case], None]) -> Callable[[Case], None]:
    """Have `test_every_judgement` check this, too."""
    PROPERTIES.append(check)
    return check


def stopped(judgement: Decision) -> set[Action]:
    return {r.action for r in judgement.refused} | {a for plan in judgement.held for a in plan.actions}


@always
def every_action_is_allowed_held_or_refused_and_only_one_of_them(case: Case) -> None:
    judgement = case.judged()
    held = {action for plan in judgement.held for action in plan.actions}
    refused = [r.action for r in judgement.refused]
    event("something is held" if held else "nothing is held")
    assert len(judgement.allowed) + len(held) + len(refused) == len(case.actions)
    assert {*judgement.allowed, *held, *refused} == set(case.actions)
    assert list(judgement.allowed) == [a for a in case.actions if a in set(judgement.allowed)]
    assert all(judgement.reason(action) for action in (*held, *refused))
    assert not any(judgement.reason(action) for action in judgement.allowed)


def the_order_of_the_actions_does_not_matter(case: Case, dice: random.Random) -> None:
    mixed = replace(case, actions=dice.sample(case.actions, len(case.actions)))
    one, other = case.judged(), mixed.judged()
    assert set(one.allowed) == set(other.allowed)
    assert [plan.id for plan in one.held] == [plan.id for plan in other.held]


@always
def careful_modes_take_nothing_away(case: Case) -> None:
    for mode in (PolicyMode.UPSERT_ONLY, PolicyMode.CREATE_ONLY):
        nothing_is_taken_away(case.in_mode(mode))


def nothing_is_taken_away(case: Case) -> None:
    for action in case.judged().allowed:
        assert action.effect not in (Effect.REMOVE, Effect.BLOCK)
        # An account that was begun has its limits set, and no member in it.
        is_begun = action.for_account in case.context.making and is_empty(case.snapshot, action.for_account)
        if isinstance(action, SetLimits) and action.account in STANDING and not is_begun:
            limits = case.snapshot.accounts[action.account].limits
            assert all(value >= limits.get(tres, 5) for tres, value in action.after)
        if case.rules.mode is PolicyMode.CREATE_ONLY and isinstance(action, AddMember):
            # Members of an account that is being made join it also where a pass was cut off.
            assert action.account in {*NEW, *case.context.making}


@always
def observe_does_nothing(case: Case) -> None:
    assert case.in_mode(PolicyMode.OBSERVE).judged().allowed == ()


@always
def approvals_allow_more_and_never_less(case: Case) -> None:
    before = case.judged()
    allowed = set(before.allowed)
    for count in range(1, len(before.held) + 1):
        now = case.judged(EarlierPlans(shown(*before.held[:count])))
        assert allowed <= set(now.allowed)
        allowed = set(now.allowed)
    # An account is adopted by a pass, not by its plan.
    foreign = {action for plan in before.held if plan.adopts for action in plan.actions}
    assert {r.action for r in before.refused} | foreign == set(case.actions) - allowed


@always
def what_is_refused_no_approval_releases(case: Case) -> None:
    before = case.judged()
    everything = EarlierPlans(shown(*before.held))
    assert {r.action for r in case.judged(everything).refused} == {r.action for r in before.refused}


@always
def nothing_is_left_half(case: Case) -> None:
    judgement = case.judged()
    gone = stopped(judgement)
    for action in judgement.allowed:
        match action:
            case DeleteAccount():
                assert not [a for a in gone if isinstance(a, RemoveMember) and a.account == action.account]
                children = case.snapshot.children_of(action.account)
                assert not [a for a in gone if isinstance(a, DeleteAccount) and a.account in children]
            case RemoveMember():
                for other in gone:
                    if isinstance(other, MoveDefaultAccount) and other.user == action.user:
                        assert other.before != action.account
                    if isinstance(other, DeleteAccount):
                        assert other.account != action.account
            case CancelJobs():
                served = [
                    a
                    for a in case.actions
                    if isinstance(a, RemoveMember)
                    and a.account == action.account
                    and action.user in ("", a.user)
                ]
                assert not served or set(served) - gone
            case AddMember() | SetQos() | ClaimAccount() | AllowSubmission() if action.account in NEW:
                assert not [a for a in gone if isinstance(a, CreateAccount) and a.account == action.account]


@always
def what_an_order_ends_ends_wholly_or_not_at_all(case: Case) -> None:
    judgement = case.judged()
    gone = stopped(judgement)
    for account in case.context.ending | case.context.making:
        steps = [
            a
            for a in case.actions
            if getattr(a, "account", "") == account
            and not isinstance(a, AddMember | MoveDefaultAccount | ClaimAccount)
        ]
        assert not set(steps) & gone or set(steps) <= gone


@always
def the_brake_holds_whatever_is_too_much(case: Case) -> None:
    """Read off the allowed actions alone, without the planner's own counting."""
    judgement = case.in_mode(PolicyMode.SYNC).judged()
    # What an order ends, and what a person closes on purpose, counts as one account.
    exempt = case.context.ending | case.context.deliberate
    removed: dict[str, int] = {}
    for action in judgement.allowed:
        if isinstance(action, RemoveMember) and action.account not in exempt:
            removed[action.account] = removed.get(action.account, 0) + 1
    assert sum(removed.values()) <= max(case.rules.max_removed_members, 0)
    for account, count in removed.items():
        members = {
            user
            for user in case.snapshot.users_of(account)
            if user != "root" and not (user.startswith("s") and case.rules.ignore_users)
        }
        few = count <= case.rules.small_removal
        assert few or count * 100 <= case.rules.max_removed_percent * len(members)


@always
def nothing_is_removed_from_an_incomplete_picture(case: Case) -> None:
    if {Part.ACCOUNTS, Part.ASSOCIATIONS} <= case.snapshot.complete:
        return
    taken = (RemoveMember, DeleteAccount, DeleteQos, CancelJobs)
    assert not [action for action in case.judged().allowed if isinstance(action, taken)]


@always
def what_is_allowed_overdraws_no_budget(case: Case) -> None:
    decision = case.judged()
    event("it costs something" if decision.charges else "it costs nothing")
    assert not case.history.approved & {*decision.charges}
    for cost in Cost:
        budget = case.rules.budget(cost)
        charges = {charge for charge in decision.charges if charge.cost is cost}
        for spent, most in ((case.history.hour, budget.hour), (case.history.day, budget.day)):
            before = {charge for charge in spent if charge.cost is cost}
            assert charges <= before or len(charges | before) <= most


def no_sequence_of_smaller_plans_gets_more_than_the_budgets(case: Case, data: st.DataObject) -> None:
    """Each plan is decided with the charges of those before it; the state of the cluster stays the worst, as it was."""
    history = History()
    left = case.actions
    while left:
        size = data.draw(st.integers(1, len(left)))
        part, left = left[:size], left[size:]
        decision = replace(case, actions=part, history=history).judged()
        history = History(history.hour | {*decision.charges}, history.day | {*decision.charges})
        for cost in Cost:
            budget = case.rules.budget(cost)
            assert len({charge for charge in history.hour if charge.cost is cost}) <= budget.hour
            assert len({charge for charge in history.day if charge.cost is cost}) <= budget.day
        if data.draw(st.booleans()):
            history = History(frozenset(), history.day)


@always
def charges_are_those_that_the_actions_declare(case: Case) -> None:
    """Or the end of an account, which all its members' leaving is."""
    declared = {cost for action in case.actions for cost in action.costs} | {Cost.ACCOUNTS_EMPTIED}
    decision = case.judged()
    assert {charge.cost for charge in decision.charges} <= declared


@given(cases(), st.randoms(use_true_random=False), st.data())
def test_every_judgement(case: Case, dice: random.Random, data: st.DataObject) -> None:
    """All properties of each case: to draw it takes ten times as long as to judge it."""
    for check in PROPERTIES:
        check(case)
    the_order_of_the_actions_does_not_matter(case, dice)
    no_sequence_of_smaller_plans_gets_more_than_the_budgets(case, data)
