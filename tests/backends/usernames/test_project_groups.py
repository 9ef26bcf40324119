# SPDX-License-Identifier: MIT
"""Groups of allocations on a real OpenLDAP: which are ours, and changes that bear repeating."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.core.directory_actions import (
    AddToGroup,
    CreateGroup,
    DeactivateUser,
    DeleteGroup,
    DirectoryAction,
    RemoveFromGroup,
)
from agent.core.errors import BackendUnavailable
from backends.usernames.ldap.project_groups import ProjectGroups
from rig.slapd import Slapd
from tests.backends.usernames.conftest import Connect, Looker, person, settings


@pytest.fixture
def groups(slapd: Slapd) -> Iterator[ProjectGroups]:
    groups = ProjectGroups(settings(slapd))
    yield groups
    groups.close()


def done(groups: ProjectGroups, *actions: DirectoryAction) -> list[bool]:
    outcomes = groups.apply(actions)
    assert [outcome.action for outcome in outcomes] == list(actions)
    return [outcome.done for outcome in outcomes]


def test_a_group_is_made_filled_emptied_and_deleted(groups: ProjectGroups, looker: Looker) -> None:
    assert groups.read(["hpc_1"]) == {}
    assert all(done(groups, CreateGroup(group="hpc_1"), *(AddToGroup(group="hpc_1", user=u) for u in "abc")))
    made = looker.group("hpc_1")
    assert made is not None
    assert (made.first("gidNumber"), sorted(made.all("memberUid"))) == ("10000", ["a", "b", "c"])
    assert groups.read(["hpc_1", "HPC_2"])["hpc_1"].members == frozenset("abc")
    assert all(done(groups, RemoveFromGroup(group="hpc_1", user="a"), AddToGroup(group="hpc_1", user="d")))
    assert groups.read(["hpc_1"])["hpc_1"].members == frozenset("bcd")
    assert all(done(groups, DeleteGroup(group="hpc_1")))
    assert groups.read(["hpc_1"]) == {}


def test_what_is_so_already_is_no_failure(groups: ProjectGroups, looker: Looker) -> None:
    looker.add_group("g", 10005, "a", "b")
    assert all(done(
        groups,
        AddToGroup(group="g", user="a"), AddToGroup(group="g", user="c"),
        RemoveFromGroup(group="g", user="x"), RemoveFromGroup(group="g", user="b"),
    ))  # fmt: skip
    assert groups.read(["g"])["g"].members == frozenset("ac")
    assert all(done(groups, DeleteGroup(group="gone"), RemoveFromGroup(group="gone", user="a")))
    assert done(groups, AddToGroup(group="gone", user="a")) == [False]


def test_groups_that_are_not_ours_have_an_obstacle(
    groups: ProjectGroups, looker: Looker, ldap: Connect
) -> None:
    assert ldap().make(person()) == "jsmith"
    looker.add_user("handmade", 5000)
    looker.add_group("handmade", 10500, "handmade")
    looker.add_group("staff-of-ours", 900)
    looker.add_group("daemon", 10501)
    looker.add_group("mine", 10502)
    names = ["jsmith", "handmade", "staff-of-ours", "daemon", "mine", "sudo", "a b", "new"]
    obstacles = {name: group.obstacle for name, group in groups.read(names).items()}
    assert set(obstacles) == set(names) - {"new"}
    assert obstacles.pop("mine") == ""
    words = {
        "jsmith": "personal group", "handmade": "personal group", "staff-of-ours": "outside gid_range",
        "daemon": "group of the system", "sudo": "belongs to the system", "a b": "use small letters",
    }  # fmt: skip
    assert all(words[name] in obstacle for name, obstacle in obstacles.items())


def test_a_thousand_groups_are_read_in_a_few_searches(
    groups: ProjectGroups, slapd: Slapd, looker: Looker
) -> None:
    looker.add_group("hpc_999", 10001, "a")
    groups.open()
    before = slapd.operations(" SRCH base=")
    assert groups.read([f"hpc_{number}" for number in range(1000)]).keys() == {"hpc_999"}
    assert slapd.operations(" SRCH base=") - before == 4


def test_two_thousand_members_are_one_call(groups: ProjectGroups, slapd: Slapd) -> None:
    actions: list[Any] = [AddToGroup(group="big", user=f"user{number}") for number in range(2000)]
    before = slapd.operations(' MOD dn="cn=big')
    assert all(done(groups, CreateGroup(group="big"), *actions))
    assert slapd.operations(' MOD dn="cn=big') - before == 1
    assert len(groups.read(["big"])["big"].members) == 2000


def test_more_groups_than_one_answer_may_hold_are_asked_for_in_parts(
    groups: ProjectGroups, looker: Looker
) -> None:
    for number in range(501):
        looker.add_group(f"g{number}", 20000 + number)
    assert len(groups.read([f"g{number}" for number in range(501)])) == 501
    with pytest.raises(BackendUnavailable, match="size limit"):
        looker.directory.search("dc=example,dc=org", "(gidNumber=*)", ["cn"])


def test_an_outage_fails_the_rest_at_once(groups: ProjectGroups, slapd: Slapd) -> None:
    groups.open()
    slapd.kill()
    outcomes = groups.apply([AddToGroup(group=f"g{number}", user="a") for number in range(5)])
    assert [outcome.error.retryable for outcome in outcomes if outcome.error] == [True] * 5
    with pytest.raises(BackendUnavailable):
        groups.read(["g"])
    slapd.start()
    assert done(groups, CreateGroup(group="g")) == [True]
    assert not groups.apply([DeactivateUser(user="x")])[0].done
