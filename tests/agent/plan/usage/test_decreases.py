# SPDX-License-Identifier: MIT
"""Usage that would get less waits, with all that belongs to it, until a person has looked."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.actions import Action
from agent.core.model import Snapshot
from agent.core.policy import PolicyMode, PolicyRules, UsageDecreases
from agent.core.usage_actions import Amounts, ReportUsage, ReportUserUsage
from agent.plan.policy.gate import EarlierPlans, decide, held_decreases
from tests.agent.plan.worlds import shown

pytestmark = pytest.mark.safety

RULES = PolicyRules()
NOTHING = Snapshot("memory")


def totals(
    before: dict[str, str | None],
    after: dict[str, str],
    *,
    resource: str = "r",
    month: str = "2026-11",
    why: str = "",
) -> ReportUsage:
    return ReportUsage(
        resource=resource, account=f"a_{resource}", month=month, before=_pairs(before), after=_pairs(after), reason=why
    )  # fmt: skip


def shares(
    before: dict[str, str | None], after: dict[str, str], *, component: str = "cpu", resource: str = "r"
) -> ReportUserUsage:
    return ReportUserUsage(
        resource=resource, account=f"a_{resource}", month="2026-11", component=component,
        before=_pairs(before), after=_pairs(after),
    )  # fmt: skip


def _pairs(amounts: dict[str, str] | dict[str, str | None]) -> Amounts:
    return tuple(amounts.items())


CASES: dict[str, tuple[list[Action], list[str]]] = {
    "more": ([totals({"cpu": "1.00"}, {"cpu": "1.01"})], []),
    "as much, written otherwise": ([totals({"cpu": "10"}, {"cpu": "10.00"})], []),
    "the first figure": ([totals({"cpu": None}, {"cpu": "0.00"}), totals({}, {"mem": "0.00"}, resource="s")], []),
    "a hundredth less": (
        [totals({"cpu": "1.00", "mem": "1.00"}, {"cpu": "0.99", "mem": "7.00"})],
        ["usage of a_r in 2026-11 would get less: cpu from 1.00 to 0.99"],
    ),
    "text would say otherwise": ([totals({"cpu": "9.00"}, {"cpu": "10.00"})], []),
    "a user alone": (
        [
            totals({"cpu": "3.00"}, {"cpu": "4.00"}),
            shares({"ann": "2.00", "bob": "1.00"}, {"ann": "0.00", "bob": "4.00"}),
        ],
        ["usage of a_r in 2026-11 would get less: cpu of ann from 2.00 to 0.00"],
    ),
    "with the reason": (
        [totals({"cpu": "2.00"}, {"cpu": "0.00"}, why="job 7 is gone")],
        ["usage of a_r in 2026-11 would get less: cpu from 2.00 to 0.00; job 7 is gone"],
    ),
    "each resource and month by itself": (
        [
            totals({"cpu": "2.00"}, {"cpu": "1.00"}, month="2026-10"),
            totals({"cpu": "2.00"}, {"cpu": "1.00"}),
            totals({"cpu": "5.00"}, {"cpu": "4.00"}, resource="s"),
            totals({"cpu": "5.00"}, {"cpu": "6.00"}, resource="t"),
        ],
        [
            "usage of a_r in 2026-10 would get less: cpu from 2.00 to 1.00",
            "usage of a_r in 2026-11 would get less: cpu from 2.00 to 1.00",
            "usage of a_s in 2026-11 would get less: cpu from 5.00 to 4.00",
        ],
    ),
    "many of them are counted": (
        [shares({f"u{n}": "1.00" for n in range(8)}, {f"u{n}": "0.00" for n in range(8)})],
        ["usage of a_r in 2026-11 would get less: "
         + ", ".join(f"cpu of u{n} from 1.00 to 0.00" for n in range(5)) + " and 3 more"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("actions", "sentences"), CASES.values(), ids=CASES)
def test_what_gets_less(actions: list[Action], sentences: list[str]) -> None:
    assert [found.reason for found in held_decreases(actions, RULES)] == sentences


def test_where_users_alone_get_less_the_total_is_reported() -> None:
    """One user's hundredth must not keep what others used from being billed."""
    actions, _ = CASES["a user alone"]
    mem = shares({"ann": "1.00"}, {"ann": "2.00"}, component="mem")
    judgement = decide([*actions, mem], NOTHING, RULES)
    assert judgement.allowed == (actions[0], mem)
    assert judgement.held[0].actions == (actions[1],)


def test_all_that_is_reported_of_the_resource_in_the_month_waits() -> None:
    actions, _ = CASES["a hundredth less"]
    other = totals({"cpu": "1.00"}, {"cpu": "2.00"}, resource="other")
    judgement = decide([*actions, other], NOTHING, RULES)
    assert judgement.allowed == (other,)
    (plan,) = judgement.held
    assert set(plan.actions) == set(actions)
    assert plan.scope == "account a_r, 2026-11"
    assert f"`approve {plan.short_id}` releases it" in judgement.reason(actions[0])


def test_a_site_may_allow_it() -> None:
    actions, _ = CASES["a hundredth less"]
    rules = PolicyRules(usage_decreases=UsageDecreases.ALLOW)
    assert decide(actions, NOTHING, rules).allowed == tuple(actions)


def test_the_approval_lets_go_what_it_was_given_for_while_other_figures_grow() -> None:
    """A plan keeps its id as long as the same names get less; jobs go on while it waits."""
    held = decide([totals({"cpu": "2.00", "mem": "1.00"}, {"cpu": "1.00"})], NOTHING, RULES).held[0]
    approved = EarlierPlans(approved=shown(held), figures={held.id: held.figures})
    grown = totals({"cpu": "2.00", "mem": "1.00"}, {"cpu": "1.50", "mem": "3.00"})
    assert decide([grown], NOTHING, RULES, approved).allowed == (grown,)
    assert decide([grown], NOTHING, RULES, approved).released[0].id == held.id


@pytest.mark.parametrize(
    "other",
    [
        totals({"cpu": "2.00", "mem": "1.00"}, {"cpu": "1.00", "mem": "0.00"}),
        totals({"cpu": "2.00"}, {"cpu": "1.00"}, month="2026-10"),
        totals({"cpu": "2.00"}, {"cpu": "1.00"}, resource="s"),
        shares({"ann": "2.00"}, {"ann": "1.00"}),
    ],
    ids=["one more component", "another month", "another resource", "users"],
)
def test_the_approval_is_for_nothing_else(other: Action) -> None:
    held = decide([totals({"cpu": "2.00", "mem": "1.00"}, {"cpu": "1.00"})], NOTHING, RULES).held[0]
    approved = EarlierPlans(shown(held), figures={held.id: held.figures})
    judgement = decide([other], NOTHING, RULES, approved)
    assert judgement.allowed == ()
    assert judgement.held[0].id != held.id


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (PolicyRules(mode=PolicyMode.OBSERVE), "mode observe"),
        (PolicyRules(paused=True, paused_why="by ann"), "paused by ann"),
    ],
)
def test_a_pause_reports_nothing(rules: PolicyRules, words: str) -> None:
    action = totals({"cpu": "1.00"}, {"cpu": "2.00"})
    judgement = decide([action], NOTHING, rules)
    assert judgement.allowed == ()
    assert words in judgement.reason(action)


@pytest.mark.parametrize("mode", [PolicyMode.UPSERT_ONLY, PolicyMode.CREATE_ONLY])
def test_modes_that_guard_the_cluster_do_not_keep_waldur_in_the_dark(mode: PolicyMode) -> None:
    action = totals({"cpu": "1.00"}, {"cpu": "2.00"})
    assert decide([action], NOTHING, PolicyRules(mode=mode)).allowed == (action,)


AMOUNT = st.integers(0, 1000).map(lambda cents: f"{Decimal(cents) / 100:.2f}")
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "mem"]), st.tuples(st.none() | AMOUNT, AMOUNT), min_size=1)


@given(figures=st.dictionaries(st.sampled_from("rstu"), AMOUNTS))
def test_every_decrease_is_held_and_nothing_else(
    figures: dict[str, dict[str, tuple[str | None, str]]],
) -> None:
    actions = [
        totals({n: b for n, (b, _) in of.items()}, {n: a for n, (_, a) in of.items()}, resource=resource)
        for resource, of in figures.items()
    ]
    judgement = decide(actions, NOTHING, RULES)
    assert all(any(action.decreases()) for plan in judgement.held for action in plan.actions)
    assert not any(any(action.decreases()) for action in judgement.allowed)
    assert len(judgement.allowed) + sum(len(plan.actions) for plan in judgement.held) == len(actions)
    assert len({plan.id for plan in judgement.held}) == len(judgement.held)


@pytest.mark.parametrize(
    ("counted", "waits"), [("1.00", False), ("1.50", False), ("0.99", True), ("0.00", True)]
)
def test_the_approval_is_for_no_smaller_figures_than_were_shown(counted: str, waits: bool) -> None:
    held = decide([totals({"cpu": "2.00"}, {"cpu": "1.00"})], NOTHING, RULES).held[0]
    approved = EarlierPlans(shown(held), figures={held.id: held.figures})
    judgement = decide([totals({"cpu": "2.00"}, {"cpu": counted})], NOTHING, RULES, approved)
    assert bool(judgement.held) is waits
    assert all(plan.id == held.id for plan in judgement.held)
