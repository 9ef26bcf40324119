# SPDX-License-Identifier: MIT
"""Groups of allocations: what makes them as desired, and what is never touched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.directory import DirectoryGroup
from agent.core.directory_actions import (
    AddToGroup,
    CreateGroup,
    DeleteGroup,
    DirectoryAction,
    RemoveFromGroup,
)
from agent.plan.groups import DesiredGroups, changes


def standing(**groups: str) -> dict[str, DirectoryGroup]:
    return {name: DirectoryGroup(name, frozenset(members)) for name, members in groups.items()}


def test_a_missing_group_is_made_before_its_members_join() -> None:
    assert changes(DesiredGroups({"g": {"b", "a"}}), {}) == [
        CreateGroup(group="g"), AddToGroup(group="g", user="a"), AddToGroup(group="g", user="b"),
    ]  # fmt: skip
    assert changes(DesiredGroups({"g": set()}), {}) == [CreateGroup(group="g")]


def test_members_leave_only_where_all_members_are_known() -> None:
    there = standing(g="ab", h="ab")
    desired = DesiredGroups({"g": {"a"}, "h": {"a"}}, complete={"h"})
    assert changes(desired, there) == [RemoveFromGroup(group="h", user="b")]


def test_users_whom_waldur_does_not_know_stay_in_a_group_where_the_site_wants_that() -> None:
    desired = DesiredGroups({"g": {"a"}}, complete={"g"}, known={"a", "b"})
    assert changes(desired, standing(g="abc")) == [RemoveFromGroup(group="g", user="b")]


def test_a_group_goes_with_its_account_only() -> None:
    there = standing(g="ab", h="ab")
    assert changes(DesiredGroups({"h": {"a", "b"}}, complete={"h"}, ended={"g", "unknown"}), there) == [
        DeleteGroup(group="g")
    ]
    assert changes(DesiredGroups({"g": {"c"}}, complete={"g"}, ended={"g"}), there) == [
        DeleteGroup(group="g")
    ]


def test_a_group_with_an_obstacle_is_left_alone() -> None:
    there = {"g": DirectoryGroup("g", frozenset("ab"), obstacle="personal")}
    assert changes(DesiredGroups({"g": {"c"}}, complete={"g"}), there) == []
    assert changes(DesiredGroups({}, ended={"g"}), there) == []


NAMES = st.sampled_from("ghi")
MEMBERS = st.frozensets(st.sampled_from("abcd"))
WORLDS = st.dictionaries(NAMES, MEMBERS)


def after(world: dict[str, frozenset[str]], actions: list[DirectoryAction]) -> dict[str, frozenset[str]]:
    now = dict(world)
    for action in actions:
        match action:
            case CreateGroup(group=name):
                assert name not in now
                now[name] = frozenset()
            case AddToGroup(group=name, user=user):
                assert user not in now[name]
                now[name] |= {user}
            case RemoveFromGroup(group=name, user=user):
                assert user in now[name]
                now[name] -= {user}
            case DeleteGroup(group=name):
                del now[name]
    return now


def seen(world: dict[str, frozenset[str]]) -> dict[str, DirectoryGroup]:
    return {name: DirectoryGroup(name, members) for name, members in world.items()}


@given(world=WORLDS, wanted=WORLDS, complete=st.frozensets(NAMES), ended=st.frozensets(NAMES))
def test_once_carried_out_a_plan_is_empty_and_nothing_unknown_is_lost(
    world: dict[str, frozenset[str]],
    wanted: dict[str, frozenset[str]],
    complete: frozenset[str],
    ended: frozenset[str],
) -> None:
    desired = DesiredGroups(wanted, complete, ended)
    now = after(world, changes(desired, seen(world)))
    assert changes(desired, seen(now)) == []
    for name, members in world.items():
        if name not in ended:
            kept = members if name not in complete or name not in wanted else members & wanted[name]
            assert kept <= now[name]
    for name, members in wanted.items():
        if name not in ended:
            assert members <= now[name]
            assert name not in complete or now[name] == members
    assert not ended & set(now)
