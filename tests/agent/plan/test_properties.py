# SPDX-License-Identifier: MIT
"""What holds for every plan on every cluster: it leads to its goal, from anywhere, and harms no other user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from agent.core.actions import (
    AddMember,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    DeleteAccount,
    DeleteQos,
    MoveDefaultAccount,
    RemoveMember,
)
from agent.core.associations import Association
from agent.core.errors import BackendUnavailable, PlanRefused
from agent.core.model import (
    OrderState,
    OrderType,
    OwnQos,
    Part,
    Snapshot,
)
from agent.core.plans import Plan
from agent.core.waldur_actions import CompleteOrder, FailOrder
from agent.plan import orders
from agent.plan.allocations import OfferingRules
from agent.plan.orders import OrderCase, OrderPlan
from backends.testing.memory import without
from tests.agent.plan.worlds import RULES, applied, case, cluster, cluster_actions, placed

SOFT = replace(RULES, soft_delete=True)
CUSTOMERS, PROJECTS = ("c_cust", "c_b"), ("p_proj", "p_b")
ALLOCATIONS = ("a_one", "a_two", "a_three", "a_four")
USERS = ("ann", "bob", "eve", "root")
LIMITS = st.dictionaries(st.sampled_from(["cpu", "mem"]), st.integers(0, 3), max_size=2)


@st.composite
def clusters(draw: st.DrawFn, *, known_jobs: bool = False) -> Snapshot:
    """Any small cluster: half-made trees, accounts in the wrong place, jobs, QoS, users without a default."""
    parents: dict[str, str | None] = {"root": None}
    hierarchy = [
        *((name, ("root",)) for name in CUSTOMERS),
        *((name, ("root", *CUSTOMERS)) for name in PROJECTS),
    ]
    for name, above in [*hierarchy, *((name, ("root", *PROJECTS, "a_one")) for name in ALLOCATIONS)]:
        possible = [parent for parent in above if parent in parents]
        parent = draw(st.none() | st.sampled_from(possible))
        if parent:
            parents[name] = parent
    members = draw(st.sets(st.tuples(st.sampled_from(sorted(parents)), st.sampled_from(USERS)), max_size=8))
    homes = {user: sorted(account for account, who in members if who == user) for user in USERS}
    chosen = {user: draw(st.none() | st.sampled_from(several)) for user, several in homes.items() if several}
    defaults = {user: account for user, account in chosen.items() if account}
    asked = sorted(parents) if known_jobs else draw(st.lists(st.sampled_from(sorted(parents)), unique=True))
    return cluster(
        parents,
        members,
        defaults=defaults,
        limits={name: draw(LIMITS) for name in parents},
        jobs={name: draw(st.integers(0, 2)) for name in asked},
        blocked=draw(st.sets(st.sampled_from(sorted(parents)), max_size=2)),
        qos={
            name: [name]
            for name in draw(st.sets(st.sampled_from(sorted(parents)), max_size=2))
            if name != "root"
        },
    )


@dataclass(frozen=True, repr=False)
class Wanted:
    """The orders of one pass, as the run layer hands them to the planner."""

    cases: tuple[OrderCase, ...]
    rules: OfferingRules
    own_qos: bool

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """How hypothesis shows a counterexample."""
        printer.text(repr(self))

    def __repr__(self) -> str:
        listed = (
            f"{c.order.type} {c.resource.backend_id} in {c.resource.project_slug} {dict(c.order.limits)} {c.members}"
            for c in self.cases
        )
        rules = f"soft={self.rules.soft_delete} default_account={self.rules.default_account} own_qos={self.own_qos}"
        return f"<{'; '.join(listed)} | {rules}>"

    def plans(self, snapshot: Snapshot) -> list[OrderPlan]:
        made = [self._made(c, snapshot) for c in self.cases if c.order.type is OrderType.CREATE]
        others = [action for plan in made for action in plan.actions]
        endings = [c for c in self.cases if c.order.type is OrderType.TERMINATE]
        needed = {ancestor.name for plan in made if plan.spec for ancestor in plan.spec.ancestors}
        ended = orders.terminations(endings, self.rules, snapshot, other_actions=others, needed=needed)
        return [*made, *ended]

    def actions(self, snapshot: Snapshot) -> list[ClusterAction]:
        return cluster_actions(self.plans(snapshot))

    def _made(self, wanted: OrderCase, snapshot: Snapshot) -> OrderPlan:
        name = wanted.resource.backend_id
        spec = placed(orders.allocation(wanted, self.rules, name, snapshot))
        spec = replace(spec, own_qos=OwnQos(name) if self.own_qos else None)
        try:
            return orders.creation(wanted, self.rules, spec, snapshot)
        except PlanRefused as refused:  # an account with others below it is no allocation
            return orders.refusal(wanted, refused)


@st.composite
def passes(draw: st.DrawFn, *, kinds: tuple[OrderType, ...]) -> Wanted:
    """A pass: no account is made and removed in the same one, nor is one made below it."""
    names = [*ALLOCATIONS, "a_gone", *(("p_b",) if kinds == ENDING else ())]
    accounts = draw(st.lists(st.sampled_from(names), unique=True, max_size=4))
    cases = []
    for number, account in enumerate(accounts):
        kind = draw(st.sampled_from(kinds))
        facts: dict[str, Any] = {
            "members": draw(st.lists(st.sampled_from(USERS), unique=True)),
            "order": {"limits": draw(LIMITS)},
            "state": draw(st.sampled_from([OrderState.EXECUTING, OrderState.PENDING_PROVIDER])),
            "resource": {"project_slug": draw(st.sampled_from(["proj", "b"])), "customer_slug": "cust"},
        }
        cases.append(case(kind, number=number, account=account, **facts))
    rules = draw(st.sampled_from([RULES, SOFT, replace(RULES, default_account="a_two")]))
    return Wanted(tuple(cases), rules, draw(st.booleans()))


CREATING, ENDING = (OrderType.CREATE,), (OrderType.TERMINATE,)
BOTH = CREATING + ENDING
PARTS = st.sets(st.sampled_from(list(Part)), min_size=1)
Check = Callable[[Snapshot, "Wanted"], None]
PROPERTIES: dict[tuple[OrderType, ...], list[Check]] = {CREATING: [], ENDING: [], BOTH: []}


def of(kinds: tuple[OrderType, ...]) -> Callable[[Check], Check]:
    """Have the test of passes with these kinds of orders check this, too."""

    def add(check: Check) -> Check:
        PROPERTIES[kinds].append(check)
        return check

    return add


@of(CREATING)
def after_a_creation_nothing_is_left_to_do(snapshot: Snapshot, wanted: Wanted) -> None:
    after = applied(snapshot, wanted.actions(snapshot))
    assert wanted.actions(after) == []
    for plan in wanted.plans(after):
        if plan.refusal:
            continue
        assert plan.spec is not None
        name = plan.spec.account.name
        assert after.users_of(name) >= set(plan.spec.members)
        assert {**after.accounts[name].limits, **plan.spec.limits} == after.accounts[name].limits
        assert after.accounts[name].submit_limit is None


@of(ENDING)
def after_terminations_nothing_is_left_to_do(snapshot: Snapshot, wanted: Wanted) -> None:
    after = applied(snapshot, wanted.actions(snapshot))
    refused = [plan for plan in wanted.plans(snapshot) if plan.refusal]
    assert refused or wanted.actions(after) == []
    # An account that was refused for the accounts below it may be free when these have gone.
    assert wanted.actions(_end_state(snapshot, wanted)) == []


@of(BOTH)
def a_second_plan_from_the_same_values_is_the_same(snapshot: Snapshot, wanted: Wanted) -> None:
    assert wanted.plans(snapshot) == wanted.plans(snapshot)


def the_order_of_inputs_does_not_matter(snapshot: Snapshot, wanted: Wanted, data: st.DataObject) -> None:
    cases = tuple(
        replace(c, members=tuple(data.draw(st.permutations(c.members))))
        for c in data.draw(st.permutations(wanted.cases))
    )
    turned = replace(snapshot, accounts=dict(data.draw(st.permutations(list(snapshot.accounts.items())))))
    here, there = wanted.plans(snapshot), replace(wanted, cases=cases).plans(turned)
    by_order = {plan.case.order.uuid: set(plan.actions) for plan in here}
    assert by_order == {plan.case.order.uuid: set(plan.actions) for plan in there}


@given(
    snapshot=clusters(known_jobs=True),
    wanted=passes(kinds=BOTH),
    picked=st.lists(st.integers(0, 99), unique=True),
)
@example(
    snapshot=cluster({"root": None}),
    wanted=Wanted(
        (case(account="a_two", members=["ann"]),), replace(RULES, default_account="a_two"), own_qos=False
    ),
    picked=[0, 1, 2],
).via("the site's default account was made, and the order was refused before its member joined")
def test_a_pass_that_was_cut_off_anywhere_is_continued(
    snapshot: Snapshot, wanted: Wanted, picked: list[int]
) -> None:
    """Any part of the steps may have failed. Only an empty project, and a QoS without its account, may be left over.

    `picked`: numbers of the steps that did not fail.
    """
    steps = wanted.actions(snapshot)
    end = _end_state(snapshot, wanted)
    done = [steps[number % len(steps)] for number in picked] if steps else []
    again = _end_state(applied(snapshot, _possible(done, steps)), wanted)
    assert again.associations == end.associations
    assert again.default_accounts.keys() == end.default_accounts.keys()
    assert again.accounts.keys() - {*PROJECTS, *CUSTOMERS} == end.accounts.keys() - {*PROJECTS, *CUSTOMERS}
    for name in (again.accounts.keys() & end.accounts.keys()) - {*PROJECTS, *CUSTOMERS}:
        assert again.accounts[name].limits == end.accounts[name].limits


def _possible(done: list[ClusterAction], steps: list[ClusterAction]) -> list[ClusterAction]:
    """No member is removed from a default account that could not be moved: the backend stops there."""
    kept = {(a.before, a.user) for a in steps if isinstance(a, MoveDefaultAccount) and a not in done}
    staying = {account for account, _ in kept}
    return [
        action
        for action in done
        if not (isinstance(action, RemoveMember) and action.account in staying)
        and not (isinstance(action, DeleteAccount) and action.account in staying)
    ]


def _end_state(snapshot: Snapshot, wanted: Wanted) -> Snapshot:
    for _ in range(1 + len(wanted.cases)):
        snapshot = applied(snapshot, wanted.actions(snapshot))
    assert wanted.actions(snapshot) == []
    return snapshot


def unknown_is_never_absent(snapshot: Snapshot, wanted: Wanted, parts: set[Part]) -> None:
    """No removal from a part that was not read, no order completed or failed for what was not seen."""
    try:
        plans = wanted.plans(without(snapshot, *parts))
    except BackendUnavailable:
        assert parts & {Part.ACCOUNTS, Part.ASSOCIATIONS, Part.TRES}
        return
    if wanted.cases:
        assert not parts & {Part.ACCOUNTS, Part.ASSOCIATIONS}
    known = {plan.case.order.uuid: plan for plan in wanted.plans(snapshot)}
    for plan in plans:
        assert set(map(type, plan.actions)) & {FailOrder} == set(
            map(type, known[plan.case.order.uuid].actions)
        ) & {FailOrder}
        _check_removals(plan, known[plan.case.order.uuid], snapshot, parts)
    after = applied(snapshot, cluster_actions(plans))
    for user in USERS:
        if snapshot.default_accounts.get(user) and after.accounts_of(user):
            assert after.default_accounts.get(user) in after.accounts_of(user)


def _check_removals(plan: OrderPlan, known: OrderPlan, snapshot: Snapshot, parts: set[Part]) -> None:
    """`parts`: what was not read. `known`: the plan as it is where all was."""
    removals = RemoveMember | DeleteAccount | DeleteQos
    assert set(_of(plan, removals)) <= set(_of(known, removals))
    if Part.QOS in parts:
        assert not _of(plan, DeleteQos)
    leavers = _of(plan, RemoveMember)
    if leavers and Part.JOBS in parts:
        assert plan.account in {action.account for action in _of(plan, CancelJobs)}
    if Part.DEFAULT_ACCOUNTS in parts:
        assert all(snapshot.accounts_of(action.user) == {action.account} for action in leavers)
    complete, deleted = _of(plan, CompleteOrder), _of(plan, DeleteAccount)
    assert complete or not deleted
    if complete and _of(known, DeleteAccount):
        assert deleted


def _of(plan: OrderPlan, kind: Any) -> list[Any]:
    """The actions of a class, or of one of several."""
    return [action for action in plan.actions if isinstance(action, kind)]


@of(ENDING)
def terminations_harm_no_other_user(snapshot: Snapshot, wanted: Wanted) -> None:
    ended = {c.resource.backend_id for c in wanted.cases}
    plans = wanted.plans(snapshot)
    actions = cluster_actions(plans)
    after = applied(snapshot, actions)
    gone = snapshot.accounts.keys() - after.accounts.keys()
    assert gone <= ended | set(PROJECTS)
    assert "root" not in gone
    for name in gone:
        assert snapshot.children_of(name) <= gone
        assert not snapshot.users_of(name) or name in ended
        assert name != wanted.rules.default_account
    assert {a for a in snapshot.associations if a.account not in ended} <= after.associations
    for user, home in snapshot.default_accounts.items():
        left = after.accounts_of(user)
        assert after.default_accounts.get(user, "") in (left or {""})
        if home in left:
            assert after.default_accounts[user] == home
    for name in after.accounts.keys() - ended:
        assert after.accounts[name] == snapshot.accounts[name]


@of(CREATING)
def creations_remove_nothing_and_touch_their_own_account_only(snapshot: Snapshot, wanted: Wanted) -> None:
    after = applied(snapshot, wanted.actions(snapshot))
    own = {c.resource.backend_id for c in wanted.cases}
    assert snapshot.associations <= after.associations
    assert snapshot.default_accounts.items() <= after.default_accounts.items()
    assert snapshot.qos <= after.qos
    for name, account in snapshot.accounts.items():
        assert after.accounts[name].parent == account.parent
        assert after.accounts[name].qos >= account.qos
        assert name in own or after.accounts[name] == account


@of(BOTH)
def parents_are_made_before_children_and_removed_after_them(snapshot: Snapshot, wanted: Wanted) -> None:
    made: set[str] = set()
    removed: set[str] = set()
    for plan in wanted.plans(snapshot):
        for action in Plan.of(plan.actions).cluster_actions():
            if isinstance(action, CreateAccount):
                assert action.parent in snapshot.accounts or action.parent in made
                made.add(action.account)
            if isinstance(action, AddMember):
                assert action.account in snapshot.accounts or action.account in made
            if isinstance(action, DeleteAccount):
                removed.add(action.account)
            if isinstance(action, RemoveMember):
                assert action.account not in removed


@given(snapshot=clusters(), wanted=passes(kinds=CREATING))
def test_every_creation(snapshot: Snapshot, wanted: Wanted) -> None:
    for check in PROPERTIES[CREATING]:
        check(snapshot, wanted)


@given(snapshot=clusters(), wanted=passes(kinds=ENDING))
def test_every_termination(snapshot: Snapshot, wanted: Wanted) -> None:
    for check in PROPERTIES[ENDING]:
        check(snapshot, wanted)


@given(snapshot=clusters(), wanted=passes(kinds=BOTH), parts=PARTS, data=st.data())
def test_every_pass(snapshot: Snapshot, wanted: Wanted, parts: set[Part], data: st.DataObject) -> None:
    for check in PROPERTIES[BOTH]:
        check(snapshot, wanted)
    unknown_is_never_absent(snapshot, wanted, parts)
    the_order_of_inputs_does_not_matter(snapshot, wanted, data)


def test_the_clusters_of_the_properties_hold_what_they_should() -> None:
    sample = cluster({"root": None, "a": "root"}, [("a", "ann")], defaults={"ann": "a"})
    assert sample.associations == {Association("a", "ann")}
    assert applied(sample, []) == sample
