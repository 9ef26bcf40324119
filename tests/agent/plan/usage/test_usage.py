# SPDX-License-Identifier: MIT
"""Usage planned case by case: what is reported, what waits, what is left to a person."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from agent.core.model import AccountingType, Component, Resource, ResourceState
from agent.core.usage import AccountUsage, Usage, UsageQuery, UsageRecord
from agent.core.usage_actions import ReportUsage
from agent.plan.usage import planning as planner
from agent.plan.usage.planning import Ledger
from tests.agent.plan.usage.reported_usage import (
    ANN,
    CPU,
    GPU,
    HOUR,
    MONTH,
    ONE,
    RULES,
    Holding,
    component,
    lines,
    plan,
    resource,
    used,
)

CASES: dict[str, tuple[list[Resource], Usage, Holding, dict[str, Any], list[str]]] = {
    "the first time": (
        ONE, ANN, Holding(), {},
        ["usage of a in 2026-11: cpu 2.00, gres/gpu 0.00", "usage of users of a in 2026-11, cpu: ann 2.00"],
    ),
    "only what changed": (
        ONE, used(a={"ann": {"cpu": 2}, "bob": {"cpu": 1}}),
        Holding().total("r", "cpu", "2").total("r", "gres/gpu", "0.00").share("r", "cpu", "ann", "2.0"), {},
        ["usage of a in 2026-11: cpu 2 -> 3.00", "usage of users of a in 2026-11, cpu: bob 1.00"],
    ),
    "the same": (
        ONE, ANN, Holding().total("r", "cpu", "2.00").total("r", "gres/gpu", "0").share("r", "cpu", "ann", "2"),
        {}, [],
    ),
    "all components where the server forgets the others": (
        ONE, ANN, Holding().total("r", "cpu", "1").total("r", "gres/gpu", "0"), {"in_full": True, "with_users": False},
        ["usage of a in 2026-11: cpu 1 -> 2.00, gres/gpu 0 -> 0.00"],
    ),
    "a known account without jobs is zero": (
        ONE, used(b={"bob": {"cpu": 1}}), Holding(), {}, ["usage of a in 2026-11: cpu 0.00, gres/gpu 0.00"],
    ),
    "and so are those who had something before": (
        ONE, used(b={"bob": {"cpu": 1}}), Holding().total("r", "cpu", "5").share("r", "cpu", "ann", "5"), {},
        ["usage of a in 2026-11: cpu 5 -> 0.00, gres/gpu 0.00", "usage of users of a in 2026-11, cpu: ann 5 -> 0.00"],
    ),
    "in a past month nothing needs no zero": (
        ONE, used(b={"bob": {"cpu": 1}}), Holding(), {"with_zeros": False}, [],
    ),
    "in a past month what was something is zero": (
        ONE, used(b={"bob": {"cpu": 1}}), Holding().total("r", "cpu", "5"), {"with_zeros": False},
        ["usage of a in 2026-11: cpu 5 -> 0.00"],
    ),
    "an unknown account is never zero": (
        [resource("r", "gone")], ANN, Holding().total("r", "cpu", "5"), {},
        ["gone: account gone is not on the cluster: nothing is known of its usage"],
    ),
    "an account that is gone since used what it used": (
        [resource("r", "gone")], used(gone={"ann": {"cpu": 1}}), Holding(), {"with_users": False},
        ["usage of gone in 2026-11: cpu 1.00, gres/gpu 0.00"],
    ),
    "the spelling of a name in Waldur does not matter": (
        [resource("r", "A")], ANN, Holding(), {"with_users": False},
        ["usage of a in 2026-11: cpu 2.00, gres/gpu 0.00"],
    ),
    "users are spelled as in Waldur": (
        ONE, used(a={"ann": {"cpu": 2}, "bob": {"cpu": 1}}),
        Holding().total("r", "cpu", "3").total("r", "gres/gpu", "0").share("r", "cpu", "Bob", "0.5"),
        {"names": {"ann": "Ann", "bob": "bob"}},
        ["usage of users of a in 2026-11, cpu: Ann 2.00, Bob 0.5 -> 1.00"],
    ),
    "one who is spelled in two ways counts once": (
        ONE, used(a={"Ann": {"cpu": 2}, "ann": {"cpu": 1}}), Holding(), {"names": {"ann": "ann"}},
        ["usage of a in 2026-11: cpu 3.00, gres/gpu 0.00", "usage of users of a in 2026-11, cpu: ann 3.00"],
    ),
    "who has no name has a part in the total only": (
        ONE, used(a={"": {"cpu": 2}, "bob": {"cpu": 1}}), Holding(), {},
        ["usage of a in 2026-11: cpu 3.00, gres/gpu 0.00", "usage of users of a in 2026-11, cpu: bob 1.00"],
    ),
    "who has too little to be reported is not named": (
        ONE, used(a={"ann": {"cpu": 2}, "bob": {"cpu": 0.001}}), Holding(), {},
        ["usage of a in 2026-11: cpu 2.00, gres/gpu 0.00", "usage of users of a in 2026-11, cpu: ann 2.00"],
    ),
    "a figure of Waldur's that is none": (
        ONE, ANN, Holding().total("r", "cpu", None).total("r", "gres/gpu", "0"), {},
        ["a: what Waldur holds of cpu is no number: it is not known whether it would get less"],
    ),
    "a share in Waldur that is no number": (
        ONE, ANN, Holding().total("r", "cpu", "2.00").total("r", "gres/gpu", "0").share("r", "cpu", "bob", None), {},
        ["a: what Waldur holds of cpu is no number: it is not known whether it would get less"],
    ),
    "two resources claim one account": (
        [resource("r", "a"), resource("s", "A")], ANN, Holding(), {},
        2
        * [
            "a: account a is named by several resources: resource r (r), resource s (s); its usage is reported for none"
        ],
    ),
    "an erred resource takes none": (
        [resource("r", "a", ResourceState.ERRED)], ANN, Holding(), {},
        ["a: Waldur takes no usage of a resource that is Erred"],
    ),
    "one that is updated or ended does": (
        [resource("r", "a", ResourceState.UPDATING), resource("s", "b", ResourceState.TERMINATING)],
        used(a={"ann": {"cpu": 1}}, b={"bob": {"cpu": 1}}), Holding(), {"with_users": False, "with_zeros": False},
        ["usage of a in 2026-11: cpu 1.00", "usage of b in 2026-11: cpu 1.00"],
    ),
    "a resource without a name has no account": ([resource("r", "")], ANN, Holding(), {}, []),
    "more than Waldur counts": (
        ONE, used(a={"ann": {"cpu": 1e18, "gres_gpu": 1}}), Holding(), {},
        ["a: usage of cpu is more than Waldur counts: check unit_factor"],
    ),
    "as much as Waldur counts": (
        ONE, Usage(UsageQuery(MONTH), {"a": AccountUsage({"cpu": (10**18 - 1) * HOUR})}, 1), Holding(),
        {"with_zeros": False}, [f"usage of a in 2026-11: cpu {10**18 - 1}.00"],
    ),
    "jobs of accounts that no resource names are passed over": (
        ONE, used(a={"ann": {"cpu": 1}}, elsewhere={"zoe": {"cpu": 9}}), Holding(),
        {"with_users": False, "with_zeros": False}, ["usage of a in 2026-11: cpu 1.00"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("resources", "usage", "held", "rules", "expected"), CASES.values(), ids=CASES)
def test_what_is_reported(
    resources: list[Resource], usage: Usage, held: Holding, rules: dict[str, Any], expected: list[str]
) -> None:
    assert lines(plan(resources, usage, held, **rules)) == expected


def test_an_answer_without_any_job_says_nothing_of_anybody() -> None:
    held = Holding().total("r", "cpu", "5").share("r", "cpu", "ann", "5")
    assert plan(ONE, Usage(UsageQuery(MONTH)), held) == []


def test_several_records_of_one_component_are_left_to_a_person() -> None:
    """Waldur of 2024 has one for each period of a plan: which one counts?"""
    records = [UsageRecord(uuid, "r", "cpu", Decimal(1)) for uuid in ("x", "y")]
    (found,) = planner.plan_month(ONE, ANN, Ledger.of(records), RULES)
    assert found.skipped == "Waldur holds several records of cpu for one month: none is changed"
    assert found.needs_person
    assert found.actions == ()


def test_a_component_that_gets_less_is_omitted_where_the_site_wants_the_others() -> None:
    held = Holding().total("r", "cpu", "5").share("r", "cpu", "ann", "5").total("r", "gres/gpu", "1")
    usage = used(a={"ann": {"cpu": 2, "gres_gpu": 3}})
    (found,) = plan(ONE, usage, held, omits_lower=True)
    assert found.totals and found.totals.components == ("gres/gpu",)
    assert [share.component for share in found.shares] == ["gres/gpu"]
    assert found.omitted == "usage of a in 2026-11 would get less: cpu from 5 to 2.00"
    for rules in ({"omits_lower": False}, {"omits_lower": True, "in_full": True}):
        (whole,) = plan(ONE, usage, held, **rules)
        assert whole.totals and set(whole.totals.components) == {"cpu", "gres/gpu"} and not whole.omitted


def test_where_all_components_get_less_nothing_is_omitted() -> None:
    held = Holding().total("r", "cpu", "5").total("r", "gres/gpu", "9")
    (found,) = plan(ONE, ANN, held, omits_lower=True)
    assert found.totals and any(found.totals.decreases()) and not found.omitted


def test_what_is_omitted_when_the_rest_is_in_step_is_not_mentioned() -> None:
    held = Holding().total("r", "cpu", "5").total("r", "gres/gpu", "0")
    (found,) = plan(ONE, ANN, held, omits_lower=True)
    assert found.omitted and found.actions == ()


@pytest.mark.parametrize("case", ["two resources claim one account", "more than Waldur counts"])
def test_what_does_not_mend_itself_needs_a_person(case: str) -> None:
    resources, usage, held, rules, _ = CASES[case]
    assert all(each.needs_person for each in plan(resources, usage, held, **rules))


@pytest.mark.parametrize("case", ["an unknown account is never zero", "an erred resource takes none"])
def test_what_mends_itself_waits(case: str) -> None:
    resources, usage, held, rules, _ = CASES[case]
    assert not any(each.needs_person for each in plan(resources, usage, held, **rules))


def test_components_are_reported_in_the_units_of_each() -> None:
    mapped = Component("nodes", "h", AccountingType.USAGE, "nodes", targets={"cpu": 120.0, "gres/gpu": 60.0})
    found = plan(ONE, used(a={"ann": {"cpu": 4, "gres_gpu": 1}}), components=(CPU, mapped), with_users=False)
    assert lines(found) == ["usage of a in 2026-11: cpu 2.00, nodes 2.00"]


def test_what_waldur_takes_usage_of() -> None:
    components = [component(name) for name in ("cpu", "mem", "setup", "extra", "nowhere")]
    billing = {"cpu": "usage", "mem": "limit", "setup": "one", "extra": "fixed"}
    taken, missing = planner.accountable(components, billing)
    assert [c.name for c in taken] == ["cpu", "mem"]
    assert missing == ("nowhere",)


def test_what_the_cluster_does_not_track() -> None:
    components = [CPU, GPU, component("hours", 1, cpu=60, node=60)]
    lacking = {"gres/gpu": "gres/gpu", "hours": "node"}
    assert planner.untracked(components, [], frozenset({"cpu"})) == lacking
    assert planner.untracked(components, [], frozenset({"cpu", "gres/gpu", "node"})) == {}
    counted = used(a={"ann": {"cpu": 1}}, b={"bob": {"gres_gpu": 1}})
    assert planner.untracked(components, [counted]) == {"hours": "node"}


def test_an_action_names_its_resource_month_and_figures() -> None:
    (found,) = plan(ONE, ANN, Holding().total("r", "cpu", "1.5"), with_users=False)
    assert found.totals == ReportUsage(resource="r", account="a", month="2026-11", after=())
    assert found.totals.before == (("cpu", "1.5"), ("gres/gpu", None))
    assert found.totals.after == (("cpu", "2.00"), ("gres/gpu", "0.00"))


def test_a_tres_of_two_components_is_reported_once_and_so_are_the_shares_of_users() -> None:
    """The reference reports all of it for each of them."""
    node, gpu = (
        replace(c, accounting_type=AccountingType.LIMIT)
        for c in (component("node", gres_gpu=120), component("gres/gpu"))
    )
    node = replace(node, targets={"gres/gpu": 120})
    rules = replace(RULES, components=(node,), configured=(node, gpu))
    usage = used(a={"u1": {"gres_gpu": 30}, "u2": {"gres_gpu": 60}})
    (plan,) = planner.plan_month(
        [replace(resource("1", "a"), limits={"node": 10, "gres/gpu": 40})], usage, Ledger(), rules
    )
    # A third of 90 hours is the nodes', at two hours each.
    assert plan.totals is not None
    assert plan.totals.after == (("node", "15.00"),)
    assert [share.after for share in plan.shares] == [(("u1", "5.00"), ("u2", "10.00"))]


def test_components_that_share_a_tres_are_omitted_together() -> None:
    """Their parts change with their limits: what one has less the other has more, and would be billed twice."""
    node, gpu = (
        replace(component(name), accounting_type=AccountingType.LIMIT, targets={"gres/gpu": 60})
        for name in ("node", "gpu")
    )
    before = [replace(resource("r", "a"), limits={"node": 10, "gpu": 10})]
    after = [replace(resource("r", "a"), limits={"node": 30, "gpu": 10})]
    usage = used(a={"ann": {"gres_gpu": 100, "cpu": 7}})
    rules = {"components": (CPU, node, gpu), "omits_lower": True, "with_users": False}
    (first,) = plan(before, usage, **rules)
    assert first.totals and dict(first.totals.after) == {"cpu": "7.00", "node": "50.00", "gpu": "50.00"}
    held = Holding().total("r", "cpu", "6").total("r", "node", "50").total("r", "gpu", "50")
    (second,) = plan(after, usage, held, **rules)
    assert second.totals and dict(second.totals.after) == {"cpu": "7.00"}
    assert second.omitted == (
        "usage of a in 2026-11 would get less: gpu from 50 to 25.00; node is omitted with it, "
        "for it shares what was used"
    )
