# SPDX-License-Identifier: MIT
"""Default accounts that a removal of partitions put aside, and those that people closed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.actions import only
from agent.core.association_actions import RemovePartition
from agent.core.associations import Association, Associations
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


def planned(
    snapshot: Snapshot,
    why: str = "",
    wanted: frozenset[str] = frozenset({"ann"}),
    known: frozenset[str] | None = None,
) -> ResourcePlan:
    """The plan; `known`: whom Waldur knows at the offering, where all others stay."""
    rules = MembershipRules(
        RULES, LimitRules((CPU,)), no_removal_reason=why, keeps_unmanaged=known is not None
    )
    case = replace(CASE, members=DesiredMembers(wanted=wanted, known=known or frozenset()))
    spec = replace(SPEC, members=tuple(wanted))
    (plan,) = membership.plans([case], {"one": spec}, rules, snapshot)
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


BACK = replace(OURS, default_accounts={"ann": "a_one"})
GONE = replace(OURS, associations=Associations({ROW}))
SITES = cluster(
    {**TREE, "a_sites": "root"}, [("p_proj", "ann"), ("a_sites", "ann")], defaults={"ann": "p_proj"}
)


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (BACK, ["remove member ann from p_proj"]),
        (GONE, ["remove member ann from p_proj"]),
        (
            replace(SITES, put_aside=OURS.put_aside),
            ["move default account of ann from p_proj to a_sites", "remove member ann from p_proj"],
        ),
        (replace(BACK, put_aside=frozenset()), []),
        (replace(GONE, put_aside=frozenset()), []),
    ],
    ids=[
        "its last step failed",
        "who left",
        "who left and has an account of the site's own",
        "by hand",
        "by hand, left",
    ],
)
def test_what_a_removal_left_above_is_ended(seen: Snapshot, wanted: list[str]) -> None:
    is_in = "a_one" in seen.accounts_of("ann")
    assert lines(planned(seen, wanted=frozenset({"ann"} if is_in else ()))) == wanted
    assert (
        lines(planned(seen, "an offering has not reported", wanted=frozenset({"ann"} if is_in else ()))) == []
    )


def test_whom_waldur_does_not_know_is_left_alone_where_that_is_wanted() -> None:
    """Somebody may have made the association with the very same marks."""
    plans = [planned(GONE, wanted=frozenset(), known=known) for known in (frozenset({"ann"}), frozenset())]
    assert [lines(plan) for plan in plans] == [["remove member ann from p_proj"], []]


def test_who_leaves_now_loses_what_was_put_aside_in_a_later_pass() -> None:
    """It is the default account, which goes last."""
    assert "remove member ann from p_proj" not in lines(planned(OURS, wanted=frozenset()))


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
