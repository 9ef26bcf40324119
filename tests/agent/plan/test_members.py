# SPDX-License-Identifier: MIT
"""Who belongs into an account, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.members import DesiredMembers, ProjectAccounts
from agent.core.model import OfferingUser, TeamMember
from agent.plan.membership import desired_members

ANN = OfferingUser("o1", "u1", "Ann")
BOB = OfferingUser("o2", "u2", "bob", is_restricted=True)
NEW = OfferingUser("o3", "u3", "")
USERS = {user.user_uuid: user for user in (ANN, BOB, NEW)}
ROBOTS = ProjectAccounts(frozenset({"Robot"}), frozenset({"half"}))
TEAM = [TeamMember("u1"), TeamMember("u2"), TeamMember("u3")]


@pytest.mark.parametrize(
    ("team", "accounts", "restricted", "expected"),
    [
        ([], ProjectAccounts(), False, DesiredMembers()),
        (TEAM[:1], ProjectAccounts(), False, DesiredMembers(frozenset({"ann"}))),
        (
            TEAM,
            ROBOTS,
            False,
            DesiredMembers(frozenset({"ann", "robot"}), frozenset({"bob", "half"}), nameless=1),
        ),
        (TEAM, ROBOTS, True, DesiredMembers(frozenset({"robot"}), frozenset({"bob", "half"}))),
        (TEAM[:1], None, False, DesiredMembers(frozenset({"ann"}), complete=False)),
        # A person whose account at the offering is not visible has the name that the team shows.
        ([TeamMember("u9", "Eve")], ProjectAccounts(), False, DesiredMembers(frozenset({"eve"}))),
        ([TeamMember("u9")], ProjectAccounts(), False, DesiredMembers(nameless=1)),
        # What the offering says of a user counts for more than what the team does.
        ([TeamMember("u3", "old")], ProjectAccounts(), False, DesiredMembers(nameless=1)),
    ],
)
def test_people_of_a_resource(
    team: list[TeamMember], accounts: ProjectAccounts | None, restricted: bool, expected: DesiredMembers
) -> None:
    assert desired_members(team, USERS, accounts, restricted=restricted) == expected


def test_whose_name_is_another_persons_in_the_directory_does_not_join() -> None:
    """Who is in may stay."""
    users = {"u1": replace(ANN, is_name_taken=True, directory_name=None)}
    team = TEAM[:1]
    found = desired_members(team, users, ProjectAccounts(), restricted=False)
    assert found == DesiredMembers(kept=frozenset({"ann"}), renamed=1)


def test_people_of_two_resources_are_complete_when_both_are() -> None:
    one, two = (
        DesiredMembers(frozenset({"a"}), nameless=1),
        DesiredMembers(frozenset({"b"}), frozenset({"c"}), complete=False),
    )
    assert one.joined(two) == DesiredMembers(frozenset({"a", "b"}), frozenset({"c"}), 1, complete=False)
