# SPDX-License-Identifier: MIT
"""Default accounts that a removal of partitions put aside, and those that people closed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.actions import only
from agent.core.association_actions import RemovePartition
from agent.core.associations import Association
from agent.core.members import DesiredMembers
from agent.core.model import AccountSpec, AllocationSpec, Resource, ResourceState, Snapshot
from agent.plan import existing_accounts, membership
from agent.plan.membership import MembershipRules, ResourceCase, ResourcePlan
from agent.plan.shared_limits import LimitRules
from tests.agent.plan.worlds import CPU, RULES, TREE, cluster

pytestmark = pytest.mark.safety

ROW = Association("p_proj", "ann")
CASE = ResourceCase(
    Resource("one", "One", "one", ResourceState.OK, backend_id="a_one"),
    DesiredMembers(wanted=frozenset({"ann"})),
)
SPEC = AllocationSpec(
    AccountSpec("a_one", "p_proj"),
    ancestors=(AccountSpec("c_cust", "root"), AccountSpec("p_proj", "c_cust")),
    members=("ann",),
)
CLOSED = replace(
    cluster(TREE, [("p_proj", "ann"), ("a_one", "ann")], defaults={"ann": "p_proj"}), closed=frozenset({ROW})
)


def planned(snapshot: Snapshot, why: str = "") -> ResourcePlan:
    rules = MembershipRules(RULES, LimitRules((CPU,)), no_removal_reason=why)
    (plan,) = membership.plans([CASE], {"one": SPEC}, rules, snapshot)
    return plan


def lines(plan: ResourcePlan) -> list[str]:
    return [action.line() for action in plan.cluster_actions()]


OURS = replace(CLOSED, put_aside=CLOSED.closed)


def test_what_a_removal_put_aside_comes_back() -> None:
    plan = planned(OURS)
    assert lines(plan) == [
        "move default account of ann from p_proj to a_one",
        "remove member ann from p_proj",
    ]
    assert plan.notes == ()


IN_THE_TOP = cluster(TREE, [("root", "ann"), ("a_one", "ann")], defaults={"ann": "root"})
TOP = frozenset({Association("root", "ann")})
DOUBTFUL = {
    "closed by hand": CLOSED,
    "with one more association in it": replace(
        OURS, associations=OURS.associations | {Association("p_proj", "ann", "gpu")}
    ),
    "in an account that the gate protects": replace(IN_THE_TOP, closed=TOP, put_aside=TOP),
}


@pytest.mark.parametrize("what", DOUBTFUL)
def test_a_closed_default_account_that_may_be_somebody_elses_stays_and_is_noted(what: str) -> None:
    plan = planned(DOUBTFUL[what])
    assert lines(plan) == []
    (note,) = plan.notes
    assert note.startswith("ann (1 in all) keep as default an account above a_one")


def test_where_no_member_is_removed_it_waits_and_is_noted() -> None:
    plan = planned(OURS, "an offering has not reported")
    assert lines(plan) == []
    (note,) = plan.notes
    assert note.startswith("the default account of ann stays p_proj for now")
    assert note.endswith("an offering has not reported")


def test_a_partition_goes_by_accounts_of_waldur_alone() -> None:
    rows = [Association("a_one", "ann", name) for name in ("gpu", "main")]
    seen = replace(cluster(TREE, defaults={"ann": "a_one"}), associations=frozenset(rows))
    actions = existing_accounts.associations(replace(SPEC, partitions=("main",)), seen, "")
    (removal,) = only(RemovePartition, actions)
    assert (removal.partition, removal.is_default, removal.aside) == ("gpu", True, ("p_proj", "c_cust"))
