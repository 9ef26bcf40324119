# SPDX-License-Identifier: MIT
"""What create and restore orders mean, and when an order is refused or has to wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.account_names import NameRules
from agent.core.errors import BackendUnavailable, PlanRefused
from agent.core.model import (
    AllocationSpec,
    OfferingUser,
    OrderState,
    OrderType,
    Part,
    RequestedState,
    Snapshot,
    TeamMember,
)
from agent.core.waldur_actions import ClaimAccount, FailOrder, ReportLimits
from agent.plan import orders
from agent.plan.allocations import OfferingRules
from agent.plan.orders import OrderCase, OrderPlan
from backends.testing.memory import without
from tests.agent.plan.worlds import (
    MAPPED,
    MEM,
    PREPAID,
    RULES,
    STATIC,
    TREE,
    case,
    cluster,
    end_of,
    placed,
    rendered,
)

NOWHERE = Snapshot("test")
CREATE, RESTORE = OrderType.CREATE, OrderType.RESTORE
PENDING, EXECUTING = OrderState.PENDING_PROVIDER, OrderState.EXECUTING


def spec_of(wanted: OrderCase, rules: OfferingRules = RULES, account: str = "a_one") -> AllocationSpec:
    return placed(orders.allocation(wanted, rules, account, NOWHERE))


def created(wanted: OrderCase, snapshot: Snapshot, rules: OfferingRules = RULES) -> OrderPlan:
    return orders.creation(wanted, rules, spec_of(wanted, rules), snapshot)


# The allocation -----------------------------------------------------------------------------------


def test_an_allocation_stands_below_its_project_and_customer() -> None:
    spec = orders.allocation(case(members=("ann",)), RULES, "a_one", NOWHERE)
    hierarchy = [(t.name, t.parent, t.description, t.organization) for t in (*spec.ancestors, spec.account)]
    assert hierarchy == [
        ("c_cust", "", "The customer", "c_cust"),
        ("p_proj", "c_cust", "The project", "p_proj"),
        ("a_one", "p_proj", "Allocation 1", "p_proj"),
    ]
    assert spec.members == ("ann",)


REQUESTED: list[tuple[dict[str, Any], RequestedState]] = [
    ({}, RequestedState()),
    ({"qos": "fast", "partition": "gpu"}, RequestedState(qos="fast", partition="gpu")),
    ({"qos": None, "partition": 5}, RequestedState()),
]


@pytest.mark.parametrize(("attributes", "requested"), REQUESTED)
def test_what_is_requested_are_the_words_of_the_resource(
    attributes: dict[str, Any], requested: RequestedState
) -> None:
    assert (
        orders.allocation(case(resource={"attributes": attributes}), RULES, "a", NOWHERE).requested
        == requested
    )


def test_requested_state_carries_what_the_offering_says() -> None:
    rules = replace(RULES, offering_partitions=("x", "y"), offering_enforces_qos=True)
    requested = orders.allocation(case(), rules, "a", NOWHERE).requested
    assert (requested.offering_partitions, requested.offering_enforces_qos) == (("x", "y"), True)


def test_without_the_slug_of_the_project_there_is_no_place() -> None:
    with pytest.raises(PlanRefused, match="no slug for the project of"):
        orders.allocation(case(resource={"project_slug": ""}), RULES, "a", NOWHERE)


def test_a_customer_without_a_slug_has_no_name_and_the_backend_decides() -> None:
    spec = orders.allocation(case(resource={"customer_slug": ""}), RULES, "a", NOWHERE)
    assert [ancestor.name for ancestor in spec.ancestors] == ["", spec.account.parent]


def test_the_order_may_bring_the_slug_of_the_project() -> None:
    wanted = case(resource={"project_slug": ""}, order={"project_slug": "other"})
    assert orders.allocation(wanted, RULES, "a", NOWHERE).account.parent == "p_other"


ALLOCATION_LIMITS: dict[str, tuple[OrderCase, OfferingRules, dict[str, int]]] = {
    "of the order": (case(order={"limits": {"cpu": 2}}), RULES, {"cpu": 120}),
    "of the order, before those of the resource": (
        case(order={"limits": {"cpu": 2}}, resource={"limits": {"cpu": 3, "mem": 1}}),
        RULES,
        {"cpu": 120},
    ),
    "of the plan, where the order has none": (case(quotas={"cpu": 4}), RULES, {"cpu": 240}),
    "of the resource, where neither has some": (case(resource={"limits": {"cpu": 3}}), RULES, {"cpu": 180}),
    "of a restored resource": (case(RESTORE, resource={"limits": {"cpu": 3}}), RULES, {"cpu": 180}),
    "static": (case(), replace(RULES, components=(STATIC,)), {"cpu": 600}),
    "mapped": (
        case(order={"limits": {"nodes": 2}}),
        replace(RULES, components=(MAPPED,)),
        {"cpu": 1200, "gres/gpu": 10},
    ),
    "prepaid": (
        case(order={"limits": {"cpu": 2}}, resource={"end_date": end_of(2027, 1, 10)}),
        replace(RULES, components=(PREPAID,)),
        {"cpu": 1440},
    ),
    "prepaid without an end": (
        case(order={"limits": {"cpu": 2}}),
        replace(RULES, components=(PREPAID,)),
        {"cpu": 120},
    ),
    "prepaid without a beginning": (
        case(order={"limits": {"cpu": 2}}, resource={"end_date": end_of(2027, 1, 10), "created": None}),
        replace(RULES, components=(PREPAID,)),
        {"cpu": 120},
    ),
}


@pytest.mark.parametrize("what", ALLOCATION_LIMITS)
def test_limits_of_an_allocation(what: str) -> None:
    wanted, rules, limits = ALLOCATION_LIMITS[what]
    assert dict(orders.allocation(wanted, rules, "a", NOWHERE).limits) == limits


# Names and members --------------------------------------------------------------------------------

BY_PROJECT = {"plugin_options": {"account_name_generation_policy": "project_slug"}}
NAMES: list[tuple[dict[str, Any], NameRules, list[str]]] = [
    ({}, NameRules(allocation_prefix="a_"), ["a_slug1"]),
    ({"slug": "Big"}, NameRules(), ["big"]),
    (
        {},
        NameRules(allocation_prefix="a_", check_uniqueness=True, max_attempts=3),
        ["a_slug1", "a_slug1-0", "a_slug1-1"],
    ),
    ({}, NameRules(max_length=3, max_attempts=2), ["slu", "s-0"]),
    (BY_PROJECT, NameRules(allocation_prefix="a_", max_attempts=3), ["a_proj", "a_proj-0", "a_proj-1"]),
    ({**BY_PROJECT, "slug": ""}, NameRules(max_attempts=1), ["proj"]),
    ({"plugin_options": {"account_name_generation_policy": "else"}}, NameRules(), ["slug1"]),
]


@pytest.mark.parametrize(("resource", "rules", "names"), NAMES)
def test_names_to_try(resource: dict[str, Any], rules: NameRules, names: list[str]) -> None:
    assert orders.account_names(case(resource=resource), rules) == names


@pytest.mark.parametrize("resource", [{"slug": ""}, {**BY_PROJECT, "project_slug": ""}])
def test_without_a_slug_there_is_no_name(resource: dict[str, Any]) -> None:
    with pytest.raises(PlanRefused, match="has no slug in Waldur to make an account name of"):
        orders.account_names(case(resource=resource), NameRules(allocation_prefix="a_"))


USERS: list[tuple[list[str], list[tuple[str, str, str]], list[str], tuple[str, ...]]] = [
    (["1", "2"], [("1", "ann", "OK"), ("2", "bob", "")], [], ("ann", "bob")),
    (["1"], [("1", "ann", "OK"), ("2", "bob", "OK")], [], ("ann",)),
    (["1"], [("1", "", "OK")], [], ()),
    (["1"], [("1", "ann", "Creating")], [], ()),
    (["1"], [("1", "ann", "Pending account linking")], [], ()),
    (["1"], [("1", "ann", "OK")], ["robot", "ann"], ("ann", "robot")),
    ([], [("1", "ann", "OK")], ["robot"], ("robot",)),
    (["2", "1"], [("2", "b", "OK"), ("1", "a", "OK")], [], ("a", "b")),
]


@pytest.mark.parametrize(("team", "users", "accounts", "names"), USERS)
def test_members_are_ready_users_of_the_team_and_accounts_without_a_person(
    team: list[str], users: list[tuple[str, str, str]], accounts: list[str], names: tuple[str, ...]
) -> None:
    found = orders.team_of(
        [TeamMember(uuid) for uuid in team],
        [OfferingUser(f"o{person}", person, username, state) for person, username, state in users],
        accounts,
    )
    assert found.members == names


def test_members_without_a_name_are_counted_and_noted() -> None:
    team = orders.team_of(
        [TeamMember(uuid) for uuid in "123"],
        [OfferingUser("o1", "1", "ann", "OK"), OfferingUser("o2", "2", "", "Requested")],
        (),
    )
    assert team == orders.Team(("ann",), nameless=2, people={"ann": "1"})
    spec = spec_of(replace(case(members=team.members), nameless=team.nameless))
    assert spec.notes == ("2 of its team have no username here yet: a membership pass adds them",)


# Creation -----------------------------------------------------------------------------------------

BUILT = [
    "create account c_cust below root",
    "create account p_proj below c_cust",
    "create account a_one below p_proj",
    "set limits a_one cpu=none->120",
    "add member ann to a_one",
]
CLAIM = "claim account a_one for resource resource1"
REPORT = "report limits of resource resource1: cpu=2"
DONE = "complete order order1"
EMPTY = cluster({"root": None})
WHOLE = cluster(TREE, [("a_one", "ann")], limits={"a_one": {"cpu": 120}})
ASKED: dict[str, Any] = {"order": {"limits": {"cpu": 2}}, "members": ("ann",)}

CREATION: dict[str, tuple[OrderCase, Snapshot, list[str]]] = {
    "pending": (case(state=PENDING, **ASKED), EMPTY, ["approve order order1", CLAIM, *BUILT, REPORT, DONE]),
    "executing": (case(**ASKED), EMPTY, [CLAIM, *BUILT, REPORT, DONE]),
    "claimed": (case(account="a_one", **ASKED), EMPTY, [*BUILT, REPORT, DONE]),
    "claimed, as another spelling": (case(account="A_one", **ASKED), EMPTY, [CLAIM, *BUILT, REPORT, DONE]),
    "claimed, and reported": (
        case(account="a_one", resource={"limits": {"cpu": 2}}, **ASKED),
        EMPTY,
        [*BUILT, DONE],
    ),
    "only to be completed": (case(account="a_one", resource={"limits": {"cpu": 2}}, **ASKED), WHOLE, [DONE]),
    "the claim was lost": (case(resource={"limits": {"cpu": 2}}, **ASKED), WHOLE, [CLAIM, DONE]),
    "restore": (
        case(RESTORE, account="a_one", members=("ann",), resource={"limits": {"cpu": 2}}),
        EMPTY,
        [*BUILT, DONE],
    ),
    "restore of what is there": (
        case(RESTORE, account="a_one", members=("ann",), resource={"limits": {"cpu": 2}}),
        WHOLE,
        [DONE],
    ),
    "restore after a soft deletion": (
        case(RESTORE, account="a_one", members=("ann",), resource={"limits": {"cpu": 2}}),
        cluster(TREE, limits={"a_one": {"cpu": 0, "mem": 0}}, blocked=["a_one"]),
        ["allow submission a_one", "set limits a_one cpu=0->120", "add member ann to a_one", DONE],
    ),
    "no members, no limits": (case(account="a_one"), EMPTY, [*BUILT[:3], DONE]),
}


@pytest.mark.parametrize("what", CREATION)
def test_creation(what: str) -> None:
    wanted, snapshot, lines = CREATION[what]
    plan = created(wanted, snapshot)
    assert rendered(plan.actions) == lines
    assert (plan.account, plan.spec, plan.refusal) == ("a_one", spec_of(wanted), "")


def test_static_limits_are_reported_to_waldur_besides_those_asked_for() -> None:
    rules = replace(RULES, components=(STATIC, MEM))
    plan = created(case(account="a_one", order={"limits": {"mem": 1}}), EMPTY, rules)
    assert [a.limits for a in plan.actions if isinstance(a, ReportLimits)] == [(("cpu", 10), ("mem", 1))]


def test_what_was_skipped_is_noted() -> None:
    plan = created(case(order={"limits": {"cpu": 1, "gold": 5}}), EMPTY)
    assert plan.notes == ("gold: no such component in backend_components",)


def test_the_claim_comes_before_the_account() -> None:
    kinds = [type(action) for action in created(case(state=PENDING, **ASKED), EMPTY).actions]
    assert kinds.index(ClaimAccount) == 1


@pytest.mark.parametrize("part", [Part.ACCOUNTS, Part.ASSOCIATIONS])
def test_a_creation_waits_for_what_was_not_read(part: Part) -> None:
    with pytest.raises(BackendUnavailable, match=part.value):
        created(case(**ASKED), without(WHOLE, part))


# Refusal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CREATE, OrderType.UPDATE, RESTORE, OrderType.TERMINATE])
@pytest.mark.parametrize(("state", "approved"), [(PENDING, ["approve order order1"]), (EXECUTING, [])])
def test_a_refused_order_is_approved_and_failed_with_the_reason(
    kind: OrderType, state: OrderState, approved: list[str]
) -> None:
    plan = orders.refusal(case(kind, state=state), PlanRefused("the reason"))
    assert rendered(plan.actions) == [*approved, "fail order order1: the reason"]
    assert plan.refusal == "the reason"
    assert plan.spec is None
    assert isinstance(plan.actions[-1], FailOrder)


@pytest.mark.parametrize("standing", [{}, {"a_one": "p_proj"}], ids=["missing", "standing"])
def test_no_order_makes_the_sites_default_account_its_allocation(standing: dict[str, str]) -> None:
    snapshot = cluster({"root": None, "c_cust": "root", "p_proj": "c_cust", **standing})
    with pytest.raises(PlanRefused, match="account a_one is no allocation"):
        created(case(account="a_one"), snapshot, replace(RULES, default_account="a_one"))
