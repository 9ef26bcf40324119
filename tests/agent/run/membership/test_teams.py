# SPDX-License-Identifier: MIT
"""Who is in a team: one listing of all roles, or a request for each team, and the same plan from both."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.run import waldur_facts as membership_facts
from agent.run.waldur_facts import BULK_TEAMS
from agent.waldur import teams
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.run.membership.conftest import WorldFactory
from tests.one_mode import planned_members
from tests.scale import FULL
from tests.world import World

TEAM = {"ffrost5", "ggran6", "hholt7"}
PERMISSIONS = "GET marketplace-service-providers/{uuid}/project_permissions/"
TEAMS = "GET marketplace-provider-resources/{uuid}/team/"
ROLES = ("PROJECT.MANAGER", "PROJECT.ADMIN", "PROJECT.MEMBER")
PEOPLE = tuple(f"person{n}" for n in range(6))


def test_the_listing_is_used_and_no_team_is_asked_for(world: World) -> None:
    for number in range(3):
        world.allocate(f"one{number}", project=number % 2)
    world.converge()
    world.in_step()
    asked = world.waldur.request_counts()
    assert (asked.get(PERMISSIONS), asked.get(TEAMS)) == (1, None)


def test_a_token_that_may_not_list_roles_asks_for_each_project_once_and_for_the_listing_never_again(
    make_world: WorldFactory,
) -> None:
    world = make_world()
    world.waldur.people.deny("agent", "PROVIDER.LIST_PERMISSIONS")
    for number in range(3):
        world.allocate(f"one{number}", project=number % 2)
    world.converge()
    world.in_step()
    asked = world.waldur.request_counts()
    assert (asked.get(PERMISSIONS), asked.get(TEAMS)) == (None, 2)


def test_an_offering_manager_keeps_members_too(make_world: WorldFactory) -> None:
    world = make_world()
    world.allocate("one")
    world.converge()
    manager = make_world(user="agent-offering-manager")
    manager.backend.state = world.cluster
    world.join("newcomer")
    planned = planned_members(manager.site)
    assert [a.render().split("  (")[0] for a in planned.actions] == ["add member newcomer to a_one"]


def test_a_listing_that_cannot_be_read_is_not_the_same_as_one_that_is_forbidden(world: World) -> None:
    world.allocate("one")
    world.converge()
    world.waldur.inject(Fault(path="project_permissions", status=500, times=None))
    report = world.sync()
    assert report.error is not None
    assert report.error.retryable
    assert world.members("a_one") == TEAM


def test_a_resource_whose_team_cannot_be_read_waits_and_the_others_do_not(world: World) -> None:
    world.waldur.people.deny("agent", "PROVIDER.LIST_PERMISSIONS")
    one = world.allocate("one")
    world.allocate("two", project=1)
    world.converge()
    world.join("new0")
    world.join("new1", project=1)
    world.waldur.inject(Fault(path=f"{one}/team/", status=500, times=None))
    assert world.sync().counted() == {"retry": 1, "done": 1}
    assert "new0" not in world.members("a_one")
    assert "new1" in world.members("a_two")
    assert world.resource(one).state.value == "OK"


def test_a_project_that_the_listing_does_not_name_is_asked_about_before_its_account_is_emptied(
    make_world: WorldFactory,
) -> None:
    world = make_world(policy={"max_removed_percent": 100})
    resource = world.allocate("one")
    world.converge()
    world.waldur.inject(
        Fault(path="project_permissions", status=200, body="[]", content_type="application/json", times=None)
    )
    world.in_step()
    assert world.members("a_one") == TEAM
    for user in TEAM:
        world.leave(user)
    world.sync()
    assert world.members("a_one") == set()
    assert world.resource(resource).state.value == "OK"


def test_members_whom_the_token_cannot_see_keep_their_place(world: World) -> None:
    """Without consent their accounts at the offering are in no listing; the team has their names."""
    world.allocate("one")
    world.converge()
    world.waldur.site.change("offerings", world.waldur.seed.offering_uuid, enforces_consent=True)
    for row in world.waldur.store.offering_users:
        world.waldur.site.change("offering_users", row.uuid, has_consent=row.username == "ffrost5")
    world.in_step()
    world.leave("ggran6")
    world.sync()
    assert world.members("a_one") == TEAM - {"ggran6"}
    world.in_step()


def test_teams_that_the_listing_does_not_have_whole_are_asked_for_once(
    make_world: WorldFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project without anybody, and one with a member whose account the token does not see."""
    world = make_world(policy={"max_removed_percent": 100})
    world.allocate("one")
    world.allocate("two", project=1)
    world.converge()
    for row in world.waldur.store.offering_users:
        world.waldur.site.change("offering_users", row.uuid, has_consent=row.username != "ggran6")
    world.waldur.site.change("offerings", world.waldur.seed.offering_uuid, enforces_consent=True)
    for user in world.members("a_two"):
        world.leave(user, project=1)
    world.converge()
    world.in_step()
    assert world.waldur.request_counts().get(TEAMS) is None

    world.join("newcomer", project=1)
    world.leave("ggran6")
    world.converge()
    assert (world.members("a_one"), world.members("a_two")) == (TEAM - {"ggran6"}, {"newcomer"})

    world.join("unseen", project=1)
    (row,) = (row for row in world.waldur.store.offering_users if row.username == "unseen")
    world.waldur.site.change("offering_users", row.uuid, has_consent=False)
    world.converge()
    world.in_step()
    assert world.waldur.request_counts().get(TEAMS) is None
    monkeypatch.setattr(teams, "VALID_S", 0.0)
    world.in_step()
    assert world.waldur.request_counts().get(TEAMS) == 1
    assert world.members("a_two") == {"newcomer", "unseen"}


def test_members_of_a_resource_of_its_own_are_asked_for_one_by_one(world: World) -> None:
    options = {"enable_resource_projects": True}
    world.waldur.site.change("offerings", world.waldur.seed.offering_uuid, plugin_options=options)
    world.place("one0", "one1")
    world.processed(done=2)
    world.converge()
    world.in_step()
    asked = world.waldur.request_counts()
    assert (asked.get(PERMISSIONS), asked.get(TEAMS)) == (None, 2)


def test_a_role_that_has_expired_is_none(world: World) -> None:
    world.allocate("one")
    world.converge()
    soon = datetime.now(UTC) + timedelta(hours=1)
    project = world.waldur.seed.project_uuids[0]
    world.waldur.people.add_member(project, "guest", account="guest", expiration_time=soon)
    world.sync()
    assert "guest" in world.members("a_one")
    world.waldur.site.advance(7200)
    world.sync()
    assert world.members("a_one") == TEAM


def test_who_loses_one_of_two_roles_stays(world: World) -> None:
    world.allocate("one")
    world.converge()
    project, person = world.waldur.seed.project_uuids[0], world.person("ggran6")
    world.waldur.people.add_member(project, person, role="PROJECT.ADMIN")
    world.waldur.people.remove_member(project, person, role="PROJECT.MEMBER")
    world.in_step()
    assert world.members("a_one") == TEAM


# Of each person: roles (project, role, expired), the name on the cluster ("" none yet), restricted, has consented.
NAMES = ("own", "own", "own", "", "Upper.Case", "a,b", "root")
ROLES_OF_ONE = st.sets(
    st.tuples(st.integers(0, 1), st.sampled_from(ROLES), st.sampled_from([False, False, True]))
)
PERSON = st.tuples(ROLES_OF_ONE, st.sampled_from(NAMES), st.sampled_from([False, False, True]), st.booleans())
CROWD = st.fixed_dictionaries(dict.fromkeys(PEOPLE, PERSON))
ON_CLUSTER = st.sets(
    st.tuples(st.sampled_from(["a_one", "a_two"]), st.sampled_from([*PEOPLE, "stranger", "robot"]))
)


class Both:
    """The same site seen by a token that may list all roles, and by one that may not."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        self.waldur = waldur
        self.rich = World(waldur, folder)
        self.rich.allocate("one")
        self.rich.allocate("two", project=1)
        waldur.site.add_shared_account(waldur.seed.project_uuids[0], "robot")
        self.poor = World(waldur, folder)
        self.poor.site.client.note_missing(BULK_TEAMS, _forbidden())
        self.empty = self.rich.cluster

    def become(self, crowd: Any, on_cluster: Any, *, consent: bool) -> None:
        """These people with these roles and names; the cluster as it may be."""
        store, people = self.waldur.store, self.waldur.people
        with store.lock:
            for project in self.waldur.seed.project_uuids:
                for grant in list(store.grants.where("scope", project)):
                    store.grants.remove(grant)
            for row in list(store.offering_users):
                store.offering_users.remove(row)
            store.offerings[self.waldur.seed.offering_uuid].enforces_consent = consent
        past = datetime.now(UTC) - timedelta(days=1)
        for person, (roles, name, restricted, consented) in crowd.items():
            for project, role, expired in sorted(roles):
                uuid = self.waldur.seed.project_uuids[project]
                people.add_member(uuid, person, role=role, expiration_time=past if expired else None)
            if roles:
                row = people.set_account(person, person if name == "own" else name)
                self.waldur.site.change(
                    "offering_users", row.uuid, is_restricted=restricted, has_consent=consented
                )
        for world in (self.rich, self.poor):
            world.site.cache.teams.clear()
            world.backend.state = self.empty
            for account, user in on_cluster:
                world.stray(user, account)


def _forbidden() -> Any:
    return membership_facts.WaldurError("no", method="GET", path="", status=403)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=0, projects_per_customer=2)) as waldur:
        yield Both(waldur, tmp_path_factory.mktemp("both"))


@settings(
    max_examples=300 if FULL else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(crowd=CROWD, on_cluster=ON_CLUSTER, consent=st.booleans())
def test_the_listing_of_roles_and_the_teams_give_the_same_plan(
    both: Both, crowd: Any, on_cluster: Any, consent: bool
) -> None:
    both.become(crowd, on_cluster, consent=consent)
    assert both.rich.planned() == both.poor.planned()
    asked = both.poor.site.client.sent
    assert not [kind for kind in asked if "project_permissions" in kind]
