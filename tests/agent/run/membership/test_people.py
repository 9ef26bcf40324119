# SPDX-License-Identifier: MIT
"""Who is in an account after a pass: the team of its project by their names on the cluster, and of no other."""

from __future__ import annotations

import logging
import pwd
from dataclasses import replace
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.errors import BackendUnavailable
from agent.core.model import Part
from agent.run.preview.previews import preview
from simulator.server.faults import Fault
from tests.agent.run.membership.conftest import WorldFactory
from tests.world import World

TEAM = {"ffrost5", "ggran6", "hholt7"}
OTHER_TEAM = {"iilves8", "jjansen9", "akask10"}


def defaults_are_valid(world: World) -> None:
    """Whoever has associations defaults to one of them."""
    cluster = world.cluster
    for user in {association.user for association in cluster.associations}:
        assert cluster.default_accounts.get(user) in cluster.accounts_of(user), user


def test_who_joins_the_project_is_in_its_account_after_the_next_pass(world: World) -> None:
    world.allocate("one")
    world.converge()
    world.join("newcomer")
    assert world.changes(world.sync())[0].startswith("add member newcomer to a_one")
    assert world.members("a_one") == TEAM | {"newcomer"}
    world.in_step()


def test_who_leaves_the_project_is_out_of_its_account_after_the_next_pass(world: World) -> None:
    world.allocate("one")
    world.converge()
    world.leave("ggran6")
    report = world.sync()
    assert [line.split("  (")[0] for line in world.changes(report)] == ["remove member ggran6 from a_one"]
    assert world.members("a_one") == TEAM - {"ggran6"}
    defaults_are_valid(world)
    world.in_step()


def test_who_stays_as_the_cluster_changed_while_it_was_read_is_looked_at_again_soon(world: World) -> None:
    """Another pass made a user between two of its commands. Where events replace polls, the next pass is hours away."""
    world.allocate("one")
    world.converge()
    world.leave("ggran6")
    whole, observe = world.cluster.complete - {Part.DEFAULT_ACCOUNTS}, world.backend.observe
    world.backend.observe = lambda *scope: replace(observe(*scope), complete=whole)
    report = world.sync()
    assert (report.error, world.changes(report), report.failed) == (None, [], False)
    assert isinstance(report.retryable_error, BackendUnavailable)
    world.backend.observe = observe
    assert world.sync().retryable_error is None
    assert world.members("a_one") == TEAM - {"ggran6"}


def test_several_join_and_leave_at_once_and_each_account_has_its_own_team(world: World) -> None:
    world.allocate("one")
    world.allocate("two", project=1)
    world.converge()
    world.leave("ffrost5")
    world.leave("jjansen9", project=1)
    for name, project in (("new1", 0), ("new2", 0), ("new3", 1), ("ggran6", 1)):
        world.waldur.people.add_member(
            world.waldur.seed.project_uuids[project],
            world.person(name),
            account=name if name.startswith("new") else None,
        )
    world.sync()
    assert world.members("a_one") == TEAM - {"ffrost5"} | {"new1", "new2"}
    assert world.members("a_two") == OTHER_TEAM - {"jjansen9"} | {"new3", "ggran6"}
    defaults_are_valid(world)
    world.in_step()


def test_both_allocations_of_a_project_have_its_team(world: World) -> None:
    world.allocate("one")
    world.allocate("two")
    world.converge()
    world.join("newcomer")
    world.leave("hholt7")
    world.sync()
    assert world.members("a_one") == world.members("a_two") == TEAM - {"hholt7"} | {"newcomer"}
    defaults_are_valid(world)
    world.in_step()


def test_who_leaves_the_default_account_and_stays_in_another_defaults_to_that_one(world: World) -> None:
    world.allocate("one")
    world.allocate("two", project=1)
    world.waldur.people.add_member(world.waldur.seed.project_uuids[1], world.person("ggran6"))
    world.converge()
    assert world.cluster.default_accounts["ggran6"] == "a_one"
    world.leave("ggran6")
    world.sync()
    assert world.cluster.accounts_of("ggran6") == {"a_two"}
    assert world.cluster.default_accounts["ggran6"] == "a_two"
    world.in_step()


def test_who_leaves_one_project_and_joins_another_in_the_same_pass_defaults_to_the_new_account(
    world: World,
) -> None:
    world.allocate("one")
    world.allocate("two", project=1)
    world.converge()
    world.waldur.people.add_member(world.waldur.seed.project_uuids[1], world.person("ggran6"))
    world.leave("ggran6")
    world.sync()
    assert world.cluster.default_accounts["ggran6"] == "a_two"
    world.in_step()


@pytest.mark.parametrize(("takes_jobs", "default"), [(True, "a_two"), (False, "root")])
def test_the_default_goes_back_to_the_sites_home_account_where_the_user_is_in_it_and_cannot_submit(
    make_world: WorldFactory, takes_jobs: bool, default: str
) -> None:
    """Jobs in a home account that takes some would count for no allocation."""
    world = make_world()
    world.allocate("one")
    world.allocate("two", project=1)
    world.waldur.people.add_member(world.waldur.seed.project_uuids[1], world.person("ggran6"))
    world.converge()
    world.stray("ggran6", "root")
    if not takes_jobs:
        standing = world.cluster.accounts
        closed = replace(standing["root"], submit_limit=0)
        world.backend.state = replace(world.cluster, accounts={**standing, "root": closed})
    world.leave("ggran6")
    world.sync()
    assert world.cluster.default_accounts["ggran6"] == default
    world.in_step()


def test_who_leaves_every_account_is_gone(world: World) -> None:
    world.allocate("one")
    world.allocate("two")
    world.converge()
    world.leave("ggran6")
    world.sync()
    assert world.cluster.accounts_of("ggran6") == frozenset()
    assert "ggran6" not in world.cluster.default_accounts
    world.in_step()


def test_a_member_of_several_accounts_who_has_lost_the_default_gets_one_of_them_and_one_only(
    world: World,
) -> None:
    world.allocate("one")
    world.allocate("two")
    world.converge()
    homes = {user: home for user, home in world.cluster.default_accounts.items() if user != "ggran6"}
    world.backend.state = replace(world.cluster, default_accounts=homes)
    report = world.sync()
    assert [line.split("  (")[0] for line in world.changes(report)] == [
        "move default account of ggran6 from none to a_one"
    ]
    world.in_step()


def test_a_member_who_is_unknown_to_waldur_is_removed(world: World) -> None:
    world.allocate("one")
    world.converge()
    world.stray("stranger", "a_one")
    world.sync()
    assert world.members("a_one") == TEAM
    world.in_step()


def test_users_whom_waldur_does_not_know_stay_where_the_site_wants_that(
    make_world: WorldFactory, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(preserve_unmanaged_backend_users=True, policy={"max_removed_percent": 100})
    resource = world.allocate("one")
    world.converge()
    world.stray("stranger", "a_one")
    # A user of the offering who is no member of this team, and one who was deleted there.
    world.stray("jjansen9", "a_one")
    world.leave("ggran6")
    row = next(row for row in world.waldur.store.offering_users if row.username == "ggran6")
    world.waldur.site.change("offering_users", row.uuid, state="Deleted")
    with caplog.at_level(logging.WARNING):
        report = world.sync()
        world.in_step()
    assert [line.split("  (")[0] for line in world.changes(report)] == [
        "remove member ggran6 from a_one", "remove member jjansen9 from a_one"
    ]  # fmt: skip
    found = [record.message for record in caplog.records if "stranger (1 in all) stay" in record.message]
    assert len(found) == 1
    assert report.as_json()["notes"] == [
        "1 user whom Waldur does not know stays in 1 account (preserve_unmanaged_backend_users): a_one: stranger"
    ]
    world.change(resource, restrict_member_access=True)
    world.sync()
    assert world.members("a_one") == {"stranger"}
    world.in_step()


def test_accounts_that_no_resource_names_are_left_alone(world: World) -> None:
    world.allocate("one")
    world.converge()
    world.stray("stranger", "p_project-1-1")
    world.in_step()
    assert world.members("p_project-1-1") == {"stranger"}


def test_a_member_without_a_username_is_counted_and_waited_for(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.allocate("one")
    world.converge()
    world.join("nobody", account="")
    with caplog.at_level(logging.WARNING):
        world.sync()
        world.in_step()
    found = [record.message for record in caplog.records if "no username here yet" in record.message]
    assert len(found) == 1
    assert "1 of its team" in found[0]
    world.waldur.people.set_account("nobody", "somebody")
    world.sync()
    assert world.members("a_one") == TEAM | {"somebody"}


@pytest.mark.parametrize(
    ("username", "on_cluster"),
    [("Mixed.Case", "mixed.case"), (" padded ", "padded"), ("a,b", None), ("two words", None), ("-x", None)],
)
def test_usernames_are_folded_and_those_that_slurm_cannot_take_are_skipped(
    world: World, caplog: pytest.LogCaptureFixture, username: str, on_cluster: str | None
) -> None:
    world.allocate("one")
    world.converge()
    world.join("person", account=username)
    with caplog.at_level(logging.WARNING):
        report = world.sync()
    assert not report.failed
    assert world.members("a_one") == TEAM | ({on_cluster} if on_cluster else set())
    if on_cluster is None:
        assert f"member {username!r} is skipped" in caplog.text
    world.in_step()


def test_a_member_called_root_is_neither_added_nor_removed(world: World) -> None:
    world.allocate("one")
    world.converge()
    world.join("person", account="root")
    world.in_step()
    assert world.members("a_one") == TEAM
    world.leave("root")
    world.stray("root", "a_one")
    world.in_step()
    assert world.members("a_one") == TEAM | {"root"}


def test_a_listing_that_a_gateway_mislays_is_not_taken_for_one_that_the_server_lacks(world: World) -> None:
    """The server had it a pass ago: now its service accounts would look as if they were gone."""
    world.waldur.site.add_shared_account(world.waldur.seed.project_uuids[0], "robot")
    world.allocate("one")
    world.converge()
    world.waldur.inject(Fault(path="list_project_service_accounts", status=404, times=None))
    assert world.changes(world.sync()) == []
    assert "robot" in world.members("a_one")
    world.waldur.faults.clear()
    world.in_step()


def test_two_thousand_members_of_one_project(world: World) -> None:
    world.allocate("one")
    world.converge()
    people = world.waldur.people
    names = {f"user{n:04d}" for n in range(2000)}
    for name in sorted(names):
        people.add_member(world.waldur.seed.project_uuids[0], name, account=name)
    world.waldur.requests.reset()
    report = world.sync()
    assert not report.failed
    assert world.members("a_one") == TEAM | names
    assert sum(world.waldur.request_counts().values()) <= 7 + 2 * 7
    world.in_step()


def test_who_joins_between_our_two_reads_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waldur is read before the cluster: an event's task may have added a member in between."""
    world.allocate("one")
    world.converge()
    observe = world.backend.observe

    def late(*args: Any) -> Any:
        monkeypatch.setattr(world.backend, "observe", observe)
        world.join("latecomer")
        world.stray("latecomer", "a_one")
        return observe(*args)

    monkeypatch.setattr(world.backend, "observe", late)
    assert world.sync().error is None
    assert "latecomer" in world.members("a_one")


def test_a_user_of_the_system_joins_nothing_whatever_its_name(world: World) -> None:
    """Debian's `daemon` has uid 1, and is no name that the agent knows."""
    assert pwd.getpwnam("daemon").pw_uid < 1000
    world.allocate("one")
    world.converge()
    world.join("daemon")
    world.join("newcomer")
    # Who is in already was not added here, and is left in peace.
    world.stray("games", "a_one")
    world.join("games")
    report = world.sync()
    assert world.members("a_one") == {*TEAM, "newcomer", "games"}
    (refused,) = report.refused
    assert refused.sentence == "user daemon is one of the system on this host, by its uid: it joins nothing"
    assert not report.failed
    assert "daemon" in "".join(r.action.line() for r in preview(world.site, Mode.MEMBERSHIP_SYNC).refused)


def test_what_is_skipped_by_the_mode_is_not_called_well(make_world: WorldFactory) -> None:
    world = make_world(policy={"mode": "upsert-only"})
    resource = world.allocate("one")
    world.converge()
    world.stray("intruder", "a_one")
    world.change(resource, state="Erred")
    report = world.sync()
    assert world.resource(resource).state.value == "Erred"
    assert [r.result.value for r in report.resources] == ["waiting"]
    assert report.in_step == 0


@pytest.mark.parametrize("name", ["c_kask-institute-1", "p_project-1-1", "p_project-1-2"])
def test_a_backend_id_that_names_an_account_of_the_tree_moves_and_adds_nothing(
    world: World, name: str
) -> None:
    resource = world.allocate("one")
    world.allocate("two", project=1)
    world.converge()
    before = world.cluster
    world.change(resource, backend_id=name)
    report = world.sync()
    assert world.cluster == before
    (found,) = (r for r in report.resources if r.resource_uuid == resource)
    assert "is no allocation" in found.message


def test_a_leaver_with_jobs_is_blocked_first_and_may_work_again_when_back_before_being_out(
    world: World,
) -> None:
    world.allocate("one")
    world.converge()
    world.leave("ffrost5")
    jobs = {("a_one", "ffrost5"): 3}
    world.backend.state = replace(world.cluster, active_users=jobs, active_jobs={"a_one": 3})
    world.backend.memory.jobs_never_end = True
    world.sync()
    assert world.backend.memory.blocked_members == {("a_one", "ffrost5")}
    assert "ffrost5" in world.members("a_one")
    world.join("ffrost5")
    assert "allow member ffrost5 in a_one" in [line.split("  (")[0] for line in world.changes(world.sync())]
    assert world.backend.memory.blocked_members == frozenset()
    world.in_step()


def test_whom_the_site_itself_has_blocked_stays_blocked(world: World) -> None:
    world.allocate("one")
    world.converge()
    world.backend.memory.blocked_members = frozenset({("a_one", "ffrost5")})
    world.in_step()
    assert world.backend.memory.blocked_members == {("a_one", "ffrost5")}
