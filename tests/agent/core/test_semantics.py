# SPDX-License-Identifier: MIT
"""Every action class says what it means: policy, dependencies, backends, journal and previews read nothing else."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import string
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent
import backends
from agent.core import plans
from agent.core.actions import (
    ACTION_CLASSES,
    Action,
    ClusterAction,
    ClusterObject,
    Effect,
    ObjectKind,
    ObjectRef,
    Phase,
    Target,
    Where,
)
from agent.core.associations import Association
from agent.core.model import Account, Part, Snapshot
from agent.core.periodic import LimitType
from agent.core.periodic_actions import SetPeriodicLimits
from agent.core.policy import Charge, Cost, PolicyRules
from agent.core.usage_actions import UsageAction
from agent.core.waldur_actions import FailOrder

DECLARED: dict[str, type] = {
    "verb": str,
    "subject": str,
    "effect": Effect,
    "target": Target,
    "where": Where,
    "parts": frozenset,
    "costs": frozenset,
    "identifiers": dict,
}
# Known to the journal and to `audit`.
IDENTIFIERS = {"order", "resource", "account", "user"}


def all_of_ours(kind: type[Action] = Action) -> Iterator[type[Action]]:
    """Every concrete action class, wherever it is defined. Classes of other tests are not ours."""
    for each in kind.__subclasses__():
        if each.__module__.split(".")[0] in ("agent", "backends"):
            if not each.__name__.endswith("Action"):  # a base of several
                yield each
            yield from all_of_ours(each)


def import_everything() -> None:
    for package in (agent, backends):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)


import_everything()
OURS = sorted(all_of_ours(), key=lambda kind: kind.__name__)


def test_all_kinds_are_walked() -> None:
    assert len(OURS) > 40
    assert {kind.__name__ for kind in OURS} <= ACTION_CLASSES.keys()


def test_who_reads_a_plan_imports_all_kinds() -> None:
    modules = {f"agent.core.{name}_actions" for name in plans.MODULES}
    assert {kind.__module__ for kind in OURS} - {"agent.core.actions"} == modules


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_the_words_of_an_action_name_what_it_has(kind: type[Action]) -> None:
    named = {name.split("[")[0] for _, name, *_ in string.Formatter().parse(kind.subject) if name}
    assert named != set()
    fields_of_it = {each.name for each in dataclasses.fields(kind)}
    assert {name for name in named if name not in fields_of_it and not hasattr(kind, name)} == set()


def test_words_of_people_are_no_template() -> None:
    action = FailOrder(order="{reason}", message="{0} {verb} {")
    assert action.line() == "fail order {reason}: {0} {verb} {"


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_action_declares_what_it_means(kind: type[Action]) -> None:
    missing = [name for name in DECLARED if not hasattr(kind, name)]
    assert not missing, f"{kind.__name__} does not declare {', '.join(missing)}"
    for name, form in DECLARED.items():
        assert isinstance(getattr(kind, name), form), name
    assert all(isinstance(part, Part) for part in kind.parts)
    assert all(isinstance(cost, Cost) for cost in kind.costs)
    assert kind.identifiers.keys() <= IDENTIFIERS
    if issubclass(kind, ClusterAction):
        assert isinstance(kind.phase, Phase)
        assert "account" in kind.identifiers
    assert kind.where is Where.CLUSTER or not (kind.makes or kind.ends or kind.awaits)
    for refs in (kind.makes, kind.needs, kind.ends, kind.awaits):
        assert all(isinstance(ref, ObjectRef) and isinstance(ref.kind, ObjectKind) for ref in refs)


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_what_is_declared_names_fields_that_are_there(kind: type[Action]) -> None:
    names = {field.name for field in dataclasses.fields(kind)}
    holders = {*kind.identifiers.values(), *kind.fleeting}
    for ref in (*kind.makes, *kind.needs, *kind.ends, *kind.awaits):
        holders |= {ref.account, ref.of} - {""}
    assert holders <= names


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_what_takes_something_away_has_a_cost(kind: type[Action]) -> None:
    """But for a QoS without accounts. What is added costs what it makes, or the secret or name it replaces."""
    takes = kind.effect in (Effect.REMOVE, Effect.BLOCK)
    assert not takes or kind.costs or kind.target is Target.CLUSTER
    assert not kind.costs or kind.effect is not Effect.TELL
    if kind.effect is Effect.ADD:
        assert kind.costs <= {Cost.PEOPLE_MADE, Cost.PEOPLE_RENAMED, Cost.HOMES_MADE, Cost.KEYS_ENDED}


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_what_is_read_of_the_cluster_before_it_is_taken_from(kind: type[Action]) -> None:
    """A block and a QoS stop no running jobs, and are known by what the planner has seen."""
    if kind.where is Where.CLUSTER and kind.effect is Effect.REMOVE:
        assert {Part.ACCOUNTS, Part.ASSOCIATIONS} <= kind.parts


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_nothing_awaits_what_nothing_ends(kind: type[Action]) -> None:
    ended = {ref.kind for each in OURS for ref in each.ends}
    made = {ref.kind for each in OURS for ref in each.makes}
    assert {ref.kind for ref in kind.awaits} <= ended
    assert {ref.kind for ref in kind.needs} <= made


NAMES = st.sampled_from(["", "a", "b"])
FIGURES = st.lists(st.tuples(st.sampled_from(["cpu", "mem"]), st.integers(-1, 5)), max_size=2).map(tuple)
AMOUNTS = st.lists(st.tuples(st.sampled_from(["cpu", "mem"]), st.just("1.00")), max_size=2).map(tuple)


def any_action() -> st.SearchStrategy[Action]:
    """Names, limits and amounts of the few that the snapshots below hold."""

    def built(kind: type[Action]) -> st.SearchStrategy[Action]:
        special: dict[str, st.SearchStrategy[Any]] = {}
        for field in dataclasses.fields(kind):
            if field.type == "str":
                special[field.name] = NAMES
            if "Any" in str(field.type) or "tuple[tuple[str, int]" in str(field.type):
                special[field.name] = FIGURES
            if issubclass(kind, UsageAction) and field.name in ("before", "after"):
                special[field.name] = AMOUNTS
        if kind is SetPeriodicLimits:
            special["limit_type"] = st.sampled_from(LimitType)
        return st.builds(kind, **special)

    return st.one_of(*map(built, OURS))


SNAPSHOTS = st.builds(
    Snapshot,
    st.just("test"),
    accounts=st.dictionaries(
        st.sampled_from(["a", "b"]),
        st.builds(
            Account,
            NAMES,
            st.none() | NAMES,
            limits=st.dictionaries(st.sampled_from(["cpu", "mem"]), st.integers(0, 5)),
            submit_limit=st.none() | st.just(0),
        ),
    ),
    associations=st.frozensets(st.builds(Association, NAMES, NAMES), max_size=3),
    complete=st.frozensets(st.sampled_from(Part)),
)


@given(any_action(), SNAPSHOTS, st.sampled_from([frozenset(), frozenset({"a"})]))
def test_costs_are_only_declared_ones_and_only_where_something_happens(
    action: Action, snapshot: Snapshot, pausing: frozenset[str]
) -> None:
    charges = action.charges(snapshot, PolicyRules(pausing_qos=pausing))
    assert {charge.cost for charge in charges} <= action.costs
    assert len(set(charges)) == len(charges)
    # What opens a policy's period for many accounts is charged once, on the opening.
    charged = {action.for_account, getattr(action, "opening", action.for_account)}
    assert all(isinstance(charge, Charge) and charge.account in charged for charge in charges)
    assert action.ids().keys() <= action.identifiers.keys()


@given(any_action(), SNAPSHOTS)
def test_limits_against_which_use_counts_are_lowered_ones(action: Action, snapshot: Snapshot) -> None:
    assert action.used_limits(snapshot).items() <= action.lowered(snapshot).items()
    if action.lowered(snapshot):
        assert Cost.LIMITS_CUT in action.costs


@given(any_action(), SNAPSHOTS)
def test_what_is_applied_twice_is_applied_once(action: Action, snapshot: Snapshot) -> None:
    if isinstance(action, ClusterAction):
        once = action.applied_to(snapshot)
        assert action.applied_to(once) == once


@pytest.mark.parametrize(
    ("one", "other", "covers"),
    [
        (ClusterObject(ObjectKind.JOBS, "a"), ClusterObject(ObjectKind.JOBS, "a", "ann"), True),
        (ClusterObject(ObjectKind.JOBS, "a", "ann"), ClusterObject(ObjectKind.JOBS, "a", "bob"), False),
        (ClusterObject(ObjectKind.JOBS, "a"), ClusterObject(ObjectKind.JOBS, "b"), False),
        (ClusterObject(ObjectKind.JOBS, "a"), ClusterObject(ObjectKind.MEMBER, "a"), False),
        (ClusterObject(ObjectKind.SUBMISSION, "a"), ClusterObject(ObjectKind.SUBMISSION, "a", "ann"), False),
        (ClusterObject(ObjectKind.SUBMISSION, "a"), ClusterObject(ObjectKind.SUBMISSION, "a"), True),
    ],
)
def test_what_of_an_account_covers_what(one: ClusterObject, other: ClusterObject, covers: bool) -> None:
    assert one.covers(other) is other.covers(one) is covers
