# SPDX-License-Identifier: MIT
"""Offering users whom Waldur wants deleted, and the steps of it."""

from __future__ import annotations

from simulator.world.records import OfferingUserState
from tests.world import World

S = OfferingUserState


def leaver(world: World, *, state: OfferingUserState = S.REQUESTED_DELETION) -> str:
    """A member of an account whose deletion Waldur wants, by name; still of the team."""
    world.allocate("one")
    world.converge()
    name = min(world.members("a_one"))
    world.waldur.people.set_account(world.person(name), name, state=state)
    world.waldur.requests.reset()
    return name


def state_of(world: World, name: str) -> str:
    account = world.waldur.people.account(world.person(name))
    assert account is not None
    assert account.username == name
    return account.state.value


def state_of_login(world: World, login: str) -> OfferingUserState:
    account = world.waldur.people.account(login)
    assert account is not None
    return account.state


def steps_of(world: World) -> list[str]:
    """What was sent about offering users since the last reset."""
    counts = world.waldur.request_counts()
    return sorted(
        line.rpartition("/marketplace-offering-users/")[2] or line
        for line in counts
        if line.startswith("POST") and "offering-users" in line
    )
