# SPDX-License-Identifier: MIT
"""What terminate orders remove, together and alone, and what they must never remove."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.actions import Action, AddMember, ClusterAction, CreateAccount, DeleteAccount
from agent.core.errors import BackendUnavailable
from agent.core.model import AccountingType, Component, OrderState, OrderType, Part, Snapshot
from agent.core.waldur_actions import CompleteOrder, FailOrder
from agent.plan import orders
from agent.plan.allocations import OfferingRules
from agent.plan.orders import OrderCase
from backends.testing.memory import without
from tests.agent.plan.worlds import (
    RULES,
    TREE,
    applied,
    case,
    cluster,
    cluster_actions,
    ending,
    rendered,
)

TWO = {**TREE, "a_two": "p_proj"}
THREE = {**TWO, "a_three": "p_proj"}
DELETE_1, DELETE_2 = "delete account a_one below p_proj", "delete account a_two below p_proj"
DELETE_P = "delete account p_proj below c_cust"
SOFT = replace(RULES, soft_delete=True)
LEFT = {name: parent for name, parent in TREE.items() if name != "a_one"}

TOGETHER: dict[str, tuple[list[OrderCase], OfferingRules, Snapshot, list[str]]] = {
    "one of two": (ending("a_one"), RULES, cluster(TWO), [DELETE_1]),
    "the last one takes the project along": (ending("a_one"), RULES, cluster(TREE), [DELETE_1, DELETE_P]),
    "both at once take it along, once": (
        ending("a_one", "a_two"),
        RULES,
        cluster(TWO),
        [DELETE_1, DELETE_P, DELETE_2],
    ),
    "two of three": (ending("a_one", "a_two"), RULES, cluster(THREE), [DELETE_1, DELETE_2]),
    "the customer stays": (ending("a_one"), RULES, cluster(TREE), [DELETE_1, DELETE_P]),
    "another account in the project keeps it": (
        ending("a_one"),
        RULES,
        cluster({**TREE, "made_by_hand": "p_proj"}),
        [DELETE_1],
    ),
    "users of the project's own account keep it": (
        ending("a_one"),
        RULES,
        cluster(TREE, [("p_proj", "ann")]),
        [DELETE_1],
    ),
    "the project of another slug stays": (
        ending("a_one", project="other"),
        RULES,
        cluster(TREE),
        [DELETE_1],
    ),
    "an account that was moved elsewhere takes its old project along and leaves its new parent": (
        ending("a_one"),
        RULES,
        cluster({**TREE, "a_one": "c_cust"}),
        ["delete account a_one below c_cust", DELETE_P],
    ),
    "a project that is where default accounts go stays": (
        ending("a_one"),
        replace(RULES, default_account="p_proj"),
        cluster(TREE),
        [DELETE_1],
    ),
    "an account that is gone": (ending("a_one"), RULES, cluster({"root": None, "c_cust": "root"}), []),
    "an account that is gone, as a pass that was cut off leaves it, takes the project along": (
        ending("a_one"),
        RULES,
        cluster(LEFT),
        [DELETE_P],
    ),
    "gone, with another account in the project": (
        ending("a_one"),
        RULES,
        cluster({**LEFT, "a_two": "p_proj"}),
        [],
    ),
    "gone, with users of the project's own account": (
        ending("a_one"),
        RULES,
        cluster(LEFT, [("p_proj", "ann")]),
        [],
    ),
    "gone, and the project's account is where defaults go": (
        ending("a_one"),
        replace(RULES, default_account="p_proj"),
        cluster(LEFT),
        [],
    ),
    "gone, and without a prefix the name says nothing": (
        ending("a_one"),
        replace(RULES, names=replace(RULES.names, project_prefix="")),
        cluster({"root": None, "proj": "root"}),
        [],
    ),
    "soft: gone": (ending("a_one"), SOFT, cluster(LEFT), []),
    "gone, and so is the last other one now": (
        ending("a_gone", "a_one"),
        RULES,
        cluster(TREE),
        [DELETE_P, DELETE_1],
    ),
    "a resource without an account": (ending(""), RULES, cluster(TREE), []),
    "the same account twice": (ending("a_one", "A_ONE "), RULES, cluster(TREE), [DELETE_1, DELETE_P]),
    "one is gone already": (ending("a_one", "a_gone"), RULES, cluster(TREE), [DELETE_1, DELETE_P]),
    "members of both, their default is one of them": (
        ending("a_one", "a_two"),
        RULES,
        cluster(TWO, [("a_one", "ann"), ("a_two", "ann")], defaults={"ann": "a_one"}),
        ["remove member ann from a_one", DELETE_1, DELETE_P, "remove member ann from a_two", DELETE_2],
    ),
    "members of both and of a third": (
        ending("a_one", "a_two"),
        RULES,
        cluster(
            {**THREE, "a_three": "p_proj"},
            [("a_one", "ann"), ("a_two", "ann"), ("a_three", "ann")],
            defaults={"ann": "a_two"},
        ),
        [
            "remove member ann from a_one",
            DELETE_1,
            "move default account of ann from a_two to a_three",
            "remove member ann from a_two",
            DELETE_2,
        ],
    ),
    "an account that is refused is a home still": (
        ending("a_one", "p_two"),
        RULES,
        cluster(
            {**TWO, "p_two": "c_cust", "a_x": "p_two"},
            [("a_one", "ann"), ("p_two", "ann")],
            defaults={"ann": "a_one"},
        ),
        ["move default account of ann from a_one to p_two", "remove member ann from a_one", DELETE_1],
    ),
    "soft: members go, limits become zero, the account stays": (
        ending("a_one"),
        SOFT,
        cluster(TREE, [("a_one", "ann")], limits={"a_one": {"cpu": 60}}),
        ["remove member ann from a_one", "set limits a_one cpu=60->0 mem=none->0"],
    ),
    "soft: with jobs": (
        ending("a_one"),
        SOFT,
        cluster(TREE, [("a_one", "ann")], limits={"a_one": {"cpu": 0, "mem": 0}}, jobs={"a_one": 1}),
        ["block submission a_one", "cancel jobs of a_one (1 active)", "remove member ann from a_one"],
    ),
    "soft, and done": (ending("a_one"), SOFT, cluster(TREE, limits={"a_one": {"cpu": 0, "mem": 0}}), []),
    "soft: done, and its jobs are not asked about again": (
        ending("a_one"),
        SOFT,
        without(cluster(TREE, limits={"a_one": {"cpu": 0, "mem": 0}}), Part.JOBS),
        [],
    ),
    "soft: mapped components set their targets to zero": (
        ending("a_one"),
        replace(
            SOFT,
            components=(
                Component("n", "h", AccountingType.LIMIT, "N", targets={"cpu": 60, "gres/gpu": 5, "fpga": 1}),
            ),
        ),
        cluster(TREE),
        ["set limits a_one cpu=none->0 gres/gpu=none->0"],
    ),
}


@pytest.mark.parametrize("what", TOGETHER)
def test_terminations(what: str) -> None:
    cases, rules, snapshot, lines = TOGETHER[what]
    plans = orders.terminations(cases, rules, snapshot)
    assert rendered(cluster_actions(plans)) == lines
    assert [plan.case for plan in plans] == cases


@pytest.mark.parametrize("what", TOGETHER)
def test_after_terminations_the_next_plan_only_completes(what: str) -> None:
    cases, rules, snapshot, _ = TOGETHER[what]
    after = applied(snapshot, cluster_actions(orders.terminations(cases, rules, snapshot)))
    assert cluster_actions(orders.terminations(cases, rules, after)) == []


@pytest.mark.parametrize("what", TOGETHER)
def test_the_order_of_orders_does_not_matter(what: str) -> None:
    cases, rules, snapshot, _ = TOGETHER[what]
    plans = orders.terminations(cases, rules, snapshot)
    turned = orders.terminations(cases[::-1], rules, snapshot)
    assert {p.case.order.uuid: p for p in plans} == {p.case.order.uuid: p for p in turned}
    assert set(cluster_actions(plans)) == set(cluster_actions(turned))


@pytest.mark.parametrize(
    ("state", "first"), [(OrderState.PENDING_PROVIDER, ["approve order order1"]), (OrderState.EXECUTING, [])]
)
def test_an_order_is_approved_first_and_completed_last(state: OrderState, first: list[str]) -> None:
    wanted = case(OrderType.TERMINATE, account="a_one", state=state)
    (plan,) = orders.terminations([wanted], RULES, cluster(TREE))
    assert rendered(plan.actions) == [*first, DELETE_1, DELETE_P, "complete order order1"]
    assert plan.spec is None


GONE = [("a_gone", "account a_gone is not on the cluster"), ("", "the resource names no account")]


@pytest.mark.parametrize(("account", "words"), GONE)
def test_what_is_gone_is_completed_with_a_note(account: str, words: str) -> None:
    (plan,) = orders.terminations(ending(account), RULES, cluster(TREE))
    assert rendered(plan.actions) == ["complete order order0"]
    assert plan.notes == (f"{words}: nothing to remove",)


OTHER_ORDERS: dict[str, tuple[list[Action], list[str]]] = {
    "nothing": ([], ["remove member ann from a_one", DELETE_1, DELETE_P]),
    "an account is made in the project": (
        [CreateAccount(account="a_new", parent="p_proj")],
        ["remove member ann from a_one", DELETE_1],
    ),
    "an account is made elsewhere": (
        [CreateAccount(account="a_new", parent="p_new"), CreateAccount(account="p_new", parent="c_cust")],
        ["remove member ann from a_one", DELETE_1, DELETE_P],
    ),
    "the leaver joins another account": (
        [CreateAccount(account="a_new", parent="root"), AddMember(account="a_new", user="ann")],
        [
            "move default account of ann from a_one to a_new",
            "remove member ann from a_one",
            DELETE_1,
            DELETE_P,
        ],
    ),
    "another user does": (
        [AddMember(account="root", user="bob", partitions=("gpu",))],
        ["remove member ann from a_one", DELETE_1, DELETE_P],
    ),
    "a user joins the project itself": (
        [AddMember(account="p_proj", user="bob")],
        ["remove member ann from a_one", DELETE_1],
    ),
}


@pytest.mark.parametrize("what", OTHER_ORDERS)
def test_what_other_orders_of_the_pass_do_is_taken_into_account(what: str) -> None:
    others, lines = OTHER_ORDERS[what]
    snapshot = cluster(TREE, [("a_one", "ann")], defaults={"ann": "a_one"})
    plans = orders.terminations(ending("a_one"), RULES, snapshot, other_actions=others)
    assert rendered(cluster_actions(plans)) == lines


def test_a_project_that_another_order_of_the_pass_needs_stays() -> None:
    for snapshot in (cluster(TREE), cluster(LEFT)):
        plans = orders.terminations(ending("a_one"), RULES, snapshot, needed={"p_proj"})
        assert DELETE_P not in rendered(cluster_actions(plans))


UNTOUCHABLE: dict[str, tuple[str, OfferingRules, Snapshot, str]] = {
    "accounts below it": (
        "p_proj",
        RULES,
        cluster(TWO),
        "account p_proj has accounts below it (a_one, a_two), so it is no allocation",
    ),
    "accounts below it, soft": ("p_proj", SOFT, cluster(TWO), "has accounts below it"),
    "root": ("root", RULES, cluster({"root": None}), "account root is no allocation"),
    "root, soft": (
        "root",
        SOFT,
        cluster({"root": None}, [("root", "root")]),
        "account root is no allocation",
    ),
    "the site's default account": (
        "home",
        replace(RULES, default_account="home"),
        cluster({**TREE, "home": "root"}, [("home", "ann")]),
        "account home is no allocation",
    ),
    "an account without a parent": (
        "top",
        RULES,
        cluster({**TREE, "top": None}),
        "account top is no allocation",
    ),
}


@pytest.mark.parametrize("what", UNTOUCHABLE)
def test_an_order_never_touches(what: str) -> None:
    account, rules, snapshot, words = UNTOUCHABLE[what]
    (plan,) = orders.terminations(ending(account), rules, snapshot)
    assert cluster_actions([plan]) == []
    fail = plan.actions[-1]
    assert isinstance(fail, FailOrder)
    assert plan.refusal == fail.message
    assert words in fail.message


SHARED = cluster(
    {**TWO, "p_other": "c_cust"},
    [("a_one", "ann"), ("a_one", "bob"), ("p_other", "ann")],
    defaults={"ann": "a_one", "bob": "a_one"},
)


@pytest.mark.parametrize("rules", [RULES, SOFT], ids=["hard", "soft"])
@pytest.mark.parametrize("part", [Part.ACCOUNTS, Part.ASSOCIATIONS])
def test_without_accounts_or_associations_nothing_is_decided(rules: OfferingRules, part: Part) -> None:
    """Neither removed, nor completed as gone, nor failed."""
    with pytest.raises(BackendUnavailable, match=part.value):
        orders.terminations(ending("a_one"), rules, without(SHARED, part))


def test_soft_deletion_waits_for_the_tres_that_it_sets_to_zero() -> None:
    with pytest.raises(BackendUnavailable, match="tres"):
        orders.terminations(ending("a_one"), SOFT, without(SHARED, Part.TRES))


@pytest.mark.parametrize("rules", [RULES, SOFT], ids=["hard", "soft"])
def test_without_default_accounts_the_order_stays_open_and_no_member_is_removed(rules: OfferingRules) -> None:
    (plan,) = orders.terminations(ending("a_one"), rules, without(SHARED, Part.DEFAULT_ACCOUNTS))
    assert [line for line in rendered(plan.actions) if not line.startswith("set limits")] == [
        "block submission a_one"
    ]
    assert plan.notes == ("the default accounts of ann were not read: no member is removed now",)
    assert not any(isinstance(action, CompleteOrder | FailOrder) for action in plan.actions)


def test_a_project_does_not_go_while_one_of_its_allocations_waits() -> None:
    snapshot = without(SHARED, Part.DEFAULT_ACCOUNTS)
    plans = orders.terminations(ending("a_one", "a_two"), RULES, snapshot)
    assert rendered(cluster_actions(plans)) == ["block submission a_one", DELETE_2]


@pytest.mark.parametrize("parts", [(Part.JOBS,), (Part.QOS,), (Part.TRES,), (Part.JOBS, Part.QOS, Part.TRES)])
def test_other_parts_are_not_needed_to_end_an_allocation(parts: tuple[Part, ...]) -> None:
    plans = orders.terminations(ending("a_one"), RULES, without(SHARED, *parts))
    assert any(isinstance(action, DeleteAccount) for action in cluster_actions(plans))
    assert isinstance(plans[0].actions[-1], CompleteOrder)


def test_no_orders_need_nothing() -> None:
    assert orders.terminations([], RULES, Snapshot("test")) == []


REMOVALS_BEGUN: dict[str, Snapshot] = {
    "jobs": cluster(
        TWO, [("a_one", "ann"), ("a_one", "bob"), ("a_two", "ann")], defaults={"ann": "a_one", "bob": "a_one"},
        jobs={"a_one": 2, "a_two": 0}, qos={"a_one": ["a_one"]},
    ),
    "last of the project": cluster(TREE, [("a_one", "ann")], defaults={"ann": "a_one"}, jobs={"a_one": 1}),
}  # fmt: skip


@pytest.mark.parametrize("what", REMOVALS_BEGUN)
def test_a_removal_is_finished_after_a_stop_at_any_step(what: str) -> None:
    """A QoS that was left when its account was gone stays: by then it is unknown whose it was."""
    start = REMOVALS_BEGUN[what]
    cases = ending("a_one")
    steps = cluster_actions(orders.terminations(cases, RULES, start))
    end = applied(start, steps)
    for stop in range(len(steps) + 1):
        done: list[ClusterAction] = steps[:stop]
        half = applied(start, done)
        again = applied(half, cluster_actions(orders.terminations(cases, RULES, half)))
        assert again.associations == end.associations, rendered(done)
        assert again.default_accounts == end.default_accounts, rendered(done)
        assert again.accounts.keys() == end.accounts.keys(), rendered(done)
        assert cluster_actions(orders.terminations(cases, RULES, again)) == []
