# SPDX-License-Identifier: MIT
"""Groups that Waldur has for projects, on a real OpenLDAP: Waldur's names, numbers and members, and what disagrees."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.directory_actions import AdoptGroupNumber
from agent.core.plans import Outcome
from agent.core.scope import PassScope
from agent.plan.provider_groups import DirectoryNames
from agent.run import engine
from agent.run.gate import Pass
from agent.run.passes import sync_members
from agent.run.people.provider_groups import ProjectGroups
from agent.run.preview.previews import preview
from agent.run.results import PassReport
from agent.run.site import Site
from agent.waldur import provider_groups as waldur_groups
from backends.usernames.ldap.directory import LdapEntry
from rig.slapd import BASE, Slapd
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.ages import Age
from tests.agent.run.people.conftest import SCENARIO, SiteFactory, listed, planned, with_resource
from tests.agent.run.people.followed import FOLLOWED, give
from tests.backends.usernames.conftest import Looker, raw

PLACE = f"ou=projects,{BASE}"
CLUSTER = f"cn=cluster,ou=Groups,{BASE}"


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur(age=Age.V8_1, scenario=SCENARIO) as server:
        yield server


@pytest.fixture
def looker(slapd: Slapd) -> Iterator[Looker]:
    looker = Looker(slapd)
    looker.directory.add(PLACE, ["organizationalUnit", "top"], {"ou": ["projects"]})
    yield looker
    looker.directory.close()


class Projects:
    """A site with a directory, and two projects of its provider with a group each."""

    def __init__(self, waldur: SimulatedWaldur, site_for: SiteFactory, slapd: Slapd, looker: Looker) -> None:
        self.waldur = waldur
        self._site_for = site_for
        self._slapd = slapd
        self._looker = looker
        (self.project,) = waldur.seed.project_uuids
        self.other = waldur.people.add_project("other")
        # Names for two of the members of the first project.
        self.ann, self.bob = waldur.seed.members[self.project][:2]
        waldur.people.set_account(self.ann, "ann")
        waldur.people.set_account(self.bob, "bob")
        self.group = waldur.site.add_project_group(self.project, "physics", 20001)

    def site(self, *, ldap: dict[str, Any] | None = None, **groups: Any) -> Site:
        return self._site_for(
            "ldap", **raw(self._slapd, **(ldap or {}), project_groups={"enabled": True, **groups})
        )

    def leave(self, login: str) -> None:
        self.waldur.people.remove_member(self.project, login)

    def entry(self, name: str = "physics") -> LdapEntry | None:
        found = self._looker.directory.search(PLACE, f"(cn={name})", ["*"])
        return found[0] if found else None

    def members(self, name: str = "physics", attribute: str = "memberUid") -> list[str]:
        entry = self.entry(name)
        assert entry is not None
        return sorted(entry.all(attribute))

    def number(self, name: str = "physics") -> str:
        entry = self.entry(name)
        assert entry is not None
        return entry.first("gidNumber")


@pytest.fixture
def projects(waldur: SimulatedWaldur, site_for: SiteFactory, slapd: Slapd, looker: Looker) -> Projects:
    return Projects(waldur, site_for, slapd, looker)


def passed(site: Site) -> tuple[PassReport, list[Outcome]]:
    """One pass without a fault; its report and what was done."""
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        done = provided(run, DirectoryNames(listed(site)))
    assert run.report.problems == []
    assert all(outcome.done for outcome in done), done
    return run.report, done


def provided(run: Pass, names: DirectoryNames) -> list[Outcome]:
    """Run the mode as in a pass over everything. Return what was done."""
    run.leave(names)
    mode = ProjectGroups(run)
    engine.run_optional(run, mode)
    return mode.outcomes


def verbs(outcomes: list[Outcome]) -> list[str]:
    return [outcome.action.verb for outcome in outcomes]


def test_a_project_gets_the_group_that_waldur_has(projects: Projects, slapd: Slapd) -> None:
    site = projects.site()
    projects.waldur.site.add_project_group(projects.other, "numberless", None)
    shown = planned(site, ProjectGroups, DirectoryNames(listed(site))).actions
    assert projects.entry() is None
    report, done = passed(site)
    assert [outcome.action for outcome in done] == list(shown)
    assert [action.line() for action in shown] == [
        "create group physics with gid 20001",
        "add to group physics: ann",
        "add to group physics: bob",
    ]
    assert (projects.number(), projects.members()) == ("20001", ["ann", "bob"])
    assert report.notes == [
        "project groups: group numberless: Waldur has no number for it yet; it is skipped"
    ]
    assert projects.entry("numberless") is None
    writes = slapd.operations(" MOD dn=") + slapd.operations(" ADD dn=")
    assert passed(site)[1] == []
    assert slapd.operations(" MOD dn=") + slapd.operations(" ADD dn=") == writes
    projects.leave(projects.ann)
    assert verbs(passed(site)[1]) == ["remove from group"]
    assert projects.members() == ["bob"]
    # Waldur deletes it, or has none any more: the group stays, for files carry its number.
    projects.waldur.site.remove_project_group(projects.group)
    assert passed(site)[1] == []
    assert projects.members() == ["bob"]


def test_who_may_have_been_renamed_stays(projects: Projects) -> None:
    site = projects.site()
    passed(site)
    # As the directory has them: it is unknown under which name ann stands in it, and bob has left.
    projects.waldur.people.set_account(projects.ann, "anna")
    projects.leave(projects.bob)
    users = [replace(user, directory_name=None if user.username == "anna" else "") for user in listed(site)]
    lines = [action.line() for action in planned(site, ProjectGroups, DirectoryNames(users)).actions]
    assert lines == ["add to group physics: anna", "remove from group physics: bob"]
    away = planned(site, ProjectGroups, DirectoryNames(listed(site), "the directory is away"))
    assert [action.line() for action in away.actions] == ["add to group physics: anna"]
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        provided(run, DirectoryNames(listed(site), "the directory is away"))
    assert projects.members() == ["ann", "anna", "bob"]
    passed(site)
    assert projects.members() == ["anna"]


def test_what_belongs_to_others_is_reported_and_left(projects: Projects, looker: Looker) -> None:
    site, waldur = projects.site(), projects.waldur
    looker.add_group("theirs", 20001, "zed")
    waldur.site.add_project_group(projects.other, "zoo", 20002)
    looker.add_group("zoo", 30000, "zed")
    waldur.site.add_project_group(waldur.people.add_project("third"), "sudo", 27)
    report, done = passed(site)
    assert done == []
    notes = "\n".join(report.notes)
    assert (
        f"group physics: its number 20001 belongs to cn=theirs,ou=Groups,{BASE}; nothing is written" in notes
    )
    assert f"group zoo: a group of this name stands at cn=zoo,ou=Groups,{BASE}" in notes
    assert "group sudo: no group can have this name: it belongs to the system" in notes
    assert not report.failed
    zoo = looker.group("zoo")
    assert zoo is not None and (zoo.first("gidNumber"), zoo.all("memberUid")) == ("30000", ("zed",))


@pytest.mark.parametrize("how", ["report", "adopt"])
def test_a_group_with_another_number(projects: Projects, looker: Looker, how: str) -> None:
    values = {"cn": ["physics"], "gidNumber": ["7777"], "memberUid": ["zed"], "description": ["by hand"]}
    looker.directory.add(f"cn=physics,{PLACE}", ["posixGroup", "top"], values)
    site = projects.site(on_gid_mismatch=how, membership="add_only")
    report, done = passed(site)
    adopted = AdoptGroupNumber(group="physics", before=7777, after=20001)
    assert (adopted in [outcome.action for outcome in done]) == (how == "adopt")
    assert projects.number() == ("20001" if how == "adopt" else "7777")
    assert any("7777 there, and 20001 in Waldur" in note for note in report.notes) == (how == "report")
    # The members are Waldur's in both cases; who was added by hand stays with `add_only`.
    assert projects.members() == ["ann", "bob", "zed"]
    assert passed(site)[1] == []


def test_members_by_dn_join_when_they_have_an_entry(projects: Projects, looker: Looker) -> None:
    """An entry may stand deeper than `people_ou`, and the last one who leaves leaves the stand-in behind."""
    deeper = f"ou=Physics,ou=People,{BASE}"
    looker.directory.add(deeper, ["organizationalUnit", "top"], {"ou": ["Physics"]})
    values = {"cn": "ann", "sn": "ann", "uidNumber": "5001", "gidNumber": "6001", "homeDirectory": "/"}
    looker.directory.add(
        f"uid=ann,{deeper}",
        ["inetOrgPerson", "posixAccount", "top"],
        {"uid": ["ann"], **{key: [value] for key, value in values.items()}},
    )
    site = projects.site(member_attribute="member", object_classes=["top", "groupOfNames", "posixNumbers"])
    passed(site)
    assert projects.members(attribute="member") == [f"uid=ann,{deeper}"]
    looker.add_user("bob", 5002)
    assert verbs(passed(site)[1]) == ["add to group"]
    assert passed(site)[1] == []
    for login in (projects.ann, projects.bob):
        projects.leave(login)
    assert verbs(passed(site)[1]) == ["remove from group"] * 2
    assert projects.members(attribute="member") == [f"cn=nobody,{BASE}"]
    assert passed(site)[1] == []


def test_whose_entry_does_not_agree_joins_no_group(projects: Projects, looker: Looker) -> None:
    """The directory follows Waldur: ann's entry has other numbers, and bob has none yet."""
    give(projects.waldur, projects.ann, "ann", 5001)
    give(projects.waldur, projects.bob, "bob", 5002)
    looker.add_user("ann", 7777, employeeNumber=projects.ann)
    projects.waldur.site.change("offerings", projects.waldur.seed.offering_uuid, plugin_options={})
    site = projects.site(ldap=FOLLOWED)
    passed(site)
    assert projects.members() == []
    looker.add_user("bob", 5002, gidNumber="6002", employeeNumber=projects.bob)
    passed(site)
    assert projects.members() == ["bob"]


def test_entries_that_list_the_groups_of_their_offerings(projects: Projects, looker: Looker) -> None:
    waldur = projects.waldur
    by_hand = f"cn=benchmarks,{PLACE}"
    looker.directory.add(CLUSTER, ["groupOfNames", "top"], {"cn": ["cluster"], "member": [by_hand]})
    waldur.site.add_project_group(projects.other, "zoo", 20002)
    resource = with_resource(waldur, projects.project)
    site = projects.site(
        parents=[{"dn": CLUSTER}, {"dn": f"cn=gone,{BASE}"}], organization_description="organization={slug}"
    )
    report, done = passed(site)
    assert verbs(done).count("list group") == 1
    assert any(f"there is no entry cn=gone,{BASE}" in note for note in report.notes)
    inside = looker.group("cluster")
    assert inside is not None and sorted(inside.all("member")) == sorted([by_hand, f"cn=physics,{PLACE}"])
    entry = projects.entry()
    assert entry is not None and [text.partition("=")[0] for text in entry.all("description")] == [
        "organization"
    ]
    assert passed(site)[1] == []
    # An answer that does not report where the projects have resources takes nothing away.
    path = "marketplace-service-provider-project-groups/"
    groups = [{**group, "offerings": None} for group in site.client.pages(path, [])]
    waldur.inject(
        Fault(path=path, status=200, body=json.dumps(groups), content_type="application/json", times=1)
    )
    report, done = passed(site)
    assert done == []
    assert any("does not say where these have resources" in note for note in report.notes)
    waldur.site.change("resources", resource, state="Terminated")
    assert verbs(passed(site)[1]) == ["delist group"]
    inside = looker.group("cluster")
    assert inside is not None and inside.all("member") == (by_hand,)


def test_without_an_answer_of_waldur_nothing_is_touched(projects: Projects, site_for: SiteFactory) -> None:
    site = projects.site()
    passed(site)
    projects.leave(projects.ann)
    projects.waldur.inject(Fault(path="service-provider-project-groups", status=500, times=None))
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        provided(run, DirectoryNames(listed(site)))
    assert len(run.report.problems) == 1 and run.report.later is not None
    assert projects.members() == ["ann", "bob"]


def test_members_that_cannot_be_understood_are_no_leavers(projects: Projects) -> None:
    site = projects.site()
    passed(site)
    path = "marketplace-service-provider-project-groups/"
    groups = [{**group, "members": [{"username": "ann"}]} for group in site.client.pages(path, [])]
    projects.waldur.inject(
        Fault(path=path, status=200, body=json.dumps(groups), content_type="application/json", times=None)
    )
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        provided(run, DirectoryNames(listed(site)))
    assert "no name, number or members that can be understood" in run.report.problems[0]
    assert projects.members() == ["ann", "bob"]


def test_removals_beyond_the_budget_wait_for_a_person(projects: Projects, looker: Looker) -> None:
    values = {"cn": ["physics"], "gidNumber": ["20001"], "memberUid": [f"u{number}" for number in range(60)]}
    looker.directory.add(f"cn=physics,{PLACE}", ["posixGroup", "top"], values)
    report, done = passed(projects.site())
    assert verbs(done) == ["add to group"] * 2
    assert len(report.held) == 1 and "members would be removed from groups" in report.held[0].reason
    assert len(projects.members()) == 62


def test_a_pass_over_everything_makes_them_and_shows_them_before(projects: Projects) -> None:
    """Members who get their names in the same pass join with it; a pass over one project leaves groups alone."""
    site = projects.site()
    with_resource(projects.waldur, projects.project)
    sync_members(site, scope=PassScope.of(project_uuid=projects.project))
    assert projects.entry() is None
    shown = preview(site, Mode.MEMBERSHIP_SYNC)
    assert "create group physics with gid 20001" in [action.line() for action in shown.allowed]
    report = sync_members(site)
    assert not report.failed, report.as_json()
    (listed_group,) = waldur_groups.listed(site.client) or ()
    assert len(listed_group.members) > 2
    assert projects.members() == sorted(listed_group.members)
