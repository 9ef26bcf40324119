# SPDX-License-Identifier: MIT
"""Actions: one stable line each, the same through JSON, equal when they mean the same."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.actions import (
    Action,
    AddMember,
    AllowSubmission,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    DeleteAccount,
    DeleteQos,
    RemoveMember,
    SetLimits,
    SetQos,
)
from agent.core.directory_actions import (
    DirectoryAction,
)
from agent.core.errors import BackendError
from agent.core.host_actions import (
    HostAction,
)
from agent.core.key_actions import (
    KeyAction,
)
from agent.core.plans import Outcome, Plan, action_from_json
from agent.core.usage_actions import ReportUsage, ReportUserUsage
from agent.core.waldur_actions import (
    CompleteOrder,
    ReportLimits,
    WaldurAction,
)
from tests.agent.core.every_action import ALL_KINDS, RENDERED, kinds


def test_the_table_has_every_kind() -> None:
    assert {type(action) for action, _ in RENDERED} == set(ALL_KINDS)


@pytest.mark.parametrize(
    ("action", "line"), RENDERED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_an_action_is_one_stable_line_with_its_reason_in_brackets(action: Action, line: str) -> None:
    assert action.render() == line
    assert dataclasses.replace(action, reason="order x").render() == f"{line}  (order x)"


def test_an_action_belongs_to_one_place() -> None:
    places = (ClusterAction, WaldurAction, DirectoryAction, HostAction, KeyAction)
    assert all(sum(issubclass(kind, place) for place in places) == 1 for kind in ALL_KINDS)
    assert all("account" in {f.name for f in dataclasses.fields(k)} for k in kinds(ClusterAction))


NAMES = st.text(max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
PAIRS = st.lists(st.tuples(NAMES, SCALARS), max_size=3).map(tuple)


def any_action() -> st.SearchStrategy[Action]:
    amounts = st.lists(st.tuples(NAMES, st.none() | st.text(max_size=5)), max_size=3).map(tuple)
    special: dict[type[Action], dict[str, st.SearchStrategy[Any]]] = {
        ReportLimits: {"limits": PAIRS},
        ReportUsage: {"before": amounts, "after": amounts},
        ReportUserUsage: {"before": amounts, "after": amounts},
    }
    return st.one_of(*(st.builds(kind, **special.get(kind, {})) for kind in ALL_KINDS))


@given(action=any_action())
def test_an_action_survives_json_whole_with_its_reason(action: Action) -> None:
    read = action_from_json(json.loads(json.dumps(action.as_json())))
    assert dataclasses.asdict(read) == dataclasses.asdict(action)
    assert type(read) is type(action)
    assert hash(read) == hash(action)
    assert read.render() == action.render()


@given(actions=st.lists(any_action(), max_size=5))
def test_a_plan_survives_json_in_its_order(actions: list[Action]) -> None:
    plan = Plan.of(actions)
    assert Plan.from_json(plan.to_json()) == plan
    assert [record["text"] for record in json.loads(plan.to_json())] == [a.render() for a in plan]


@given(action=any_action(), reason=st.text())
def test_equality_and_hash_ignore_the_reason(action: Action, reason: str) -> None:
    other = dataclasses.replace(action, reason=reason)
    assert other == action
    assert hash(other) == hash(action)


ALIKE: list[tuple[Action, Action]] = [
    (
        SetLimits(account="a", before=(("cpu", 1),), after=(("cpu", 2),)),
        SetLimits(account="a", after=(("cpu", 2),)),
    ),
    (
        SetQos(account="a", before=("x",), after=("y",), default="y"),
        SetQos(account="a", after=("y",), default="y"),
    ),
    (CancelJobs(account="a", jobs=3), CancelJobs(account="a")),
    (AddMember(account="a", user="u", present_default="x"), AddMember(account="a", user="u")),
    (RemoveMember(account="a", user="u", is_default=True), RemoveMember(account="a", user="u")),
    (DeleteAccount(account="a", parent="p"), DeleteAccount(account="a", parent="q")),
    (
        ReportUsage(resource="r", account="a", month="2026-11", after=(("cpu", "1.00"),)),
        ReportUsage(resource="r", account="a", month="2026-11", after=(("cpu", "2.00"), ("mem", "0.00"))),
    ),
    (
        ReportUserUsage(resource="r", account="a", month="2026-11", component="c", after=(("ann", "1.00"),)),
        ReportUserUsage(resource="r", account="a", month="2026-11", component="c", after=()),
    ),
]


@pytest.mark.parametrize(("one", "other"), ALIKE, ids=lambda action: action.verb)
def test_what_was_seen_before_makes_no_other_action(one: Action, other: Action) -> None:
    assert one == other
    assert len(Plan.of([one, other]).actions) == 1


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.__name__)
def test_another_object_is_another_action(kind: type[Action]) -> None:
    action = next(action for action, _ in RENDERED if type(action) is kind)
    counted = [
        f.name for f in dataclasses.fields(kind) if f.compare and isinstance(getattr(action, f.name), str)
    ]
    assert counted
    for name in counted:
        assert dataclasses.replace(action, **{name: "another"}) != action


def test_kinds_with_the_same_fields_differ() -> None:
    alike: list[Action] = [
        kind(account="a") for kind in (BlockSubmission, AllowSubmission, DeleteQos, CancelJobs)
    ]
    assert len(set(alike)) == len(alike)


def test_an_unknown_kind_is_not_guessed() -> None:
    with pytest.raises(KeyError):
        action_from_json({"action": "FormatDisk", "account": "a"})


def test_a_plan_keeps_the_first_of_equal_actions_in_its_place() -> None:
    first, again = (
        CreateAccount(account="c", parent="r", reason="1"),
        CreateAccount(account="c", parent="r", reason="2"),
    )
    middle = CompleteOrder(order="o")
    plan = Plan.of([first, middle, again])
    assert [action.reason for action in plan] == ["1", ""]
    assert plan.actions == (first, middle)
    assert plan.cluster_actions() == (first,)
    assert plan.render() == f"{first.render()}\n{middle.render()}"
    assert plan
    assert not Plan()


def test_an_outcome_is_done_unless_it_has_an_error() -> None:
    action = BlockSubmission(account="a")
    assert Outcome(action).done
    assert not Outcome(action, BackendError("no")).done
