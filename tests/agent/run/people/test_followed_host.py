# SPDX-License-Identifier: MIT
"""`account_source: waldur` on a real OpenLDAP: what Waldur says is held against what the site and this host know."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterator

import pytest

from agent.core.directory_actions import CreateGroup, CreateUser
from agent.core.system_users import is_system_number
from agent.run.passes import sync_members
from agent.run.site import Site
from backends.usernames.ldap.directory import REPLACE
from rig.slapd import BASE, Slapd
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.people.conftest import (
    SiteFactory,
    facts,
    listed,
    logins,
    planned_names,
    provision,
    with_resource,
)
from tests.agent.run.people.followed import give, looker, passed, user_of, waldur
from tests.agent.run.people.test_provider_groups import PLACE
from tests.backends.usernames.conftest import Looker, raw

__all__ = ["looker", "waldur"]

RULES = {"account_source": "waldur", "waldur_username_attribute": "employeeNumber"}
BAD_HOME, BAD_SHELL = "/etc/systemd/system/cron.service.d", "/bin/sh -c id"


@pytest.fixture
def site(waldur: SimulatedWaldur, site_for: SiteFactory, slapd: Slapd) -> Site:
    waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options={})
    return site_for("ldap", **raw(slapd, **RULES))


@pytest.fixture
def local_user() -> Iterator[pwd.struct_passwd]:
    """A user of this host who is none of the system; `rig/apart.sh` makes one."""
    found = next((each for each in pwd.getpwall() if not is_system_number(each.pw_uid)), None)
    if found is None:
        pytest.skip("this host has no user of its own")
    return found


@pytest.fixture
def local_group() -> Iterator[grp.struct_group]:
    names = {each.pw_name for each in pwd.getpwall()}
    groups = (g for g in grp.getgrall() if not is_system_number(g.gr_gid) and g.gr_name not in names)
    found = next(groups, None)
    if found is None:
        pytest.skip("this host has no group of its own")
    return found


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_a_home_of_the_system_and_a_command_for_a_shell_go_nowhere(
    waldur: SimulatedWaldur, site: Site, looker: Looker, slapd: Slapd, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither into a new entry nor into one that is there, of which nothing else is changed either."""
    one, two, three, four, *_ = logins(waldur)
    give(waldur, one, "ann", 5001, home_directory="/home/ann", login_shell="/bin/bash")
    passed(site)
    before = user_of(looker, "ann").values
    person = waldur.store.users[waldur.people.account(one).user_uuid]  # type: ignore[union-attr]
    waldur.site.change("users", person.uuid, email="new@example.org")
    give(waldur, one, "ann", 5001, home_directory=BAD_HOME, login_shell="/bin/bash")
    give(waldur, two, "bob", 5002, home_directory=BAD_HOME)
    give(waldur, three, "cid", 5003, login_shell=BAD_SHELL)
    give(waldur, four, "dee", 5004, home_directory="/home/dee", login_shell="/bin/zsh")
    caplog.clear()
    assert [outcome.action for outcome in passed(site)] == [CreateUser(user="dee", uid=5004, gid=6004)]
    assert user_of(looker, "ann").values == before
    assert [looker.user(name) or looker.group(name) for name in ("bob", "cid")] == [None, None]
    assert user_of(looker, "dee").first("homeDirectory") == "/home/dee"
    logged = errors(caplog)
    refused = f"Waldur has the home {BAD_HOME!r}, and it is not directly below /home (homedir_bases)"
    shell = f"Waldur has the shell {BAD_SHELL!r}, which is none of those of this site (login_shells)"
    for name, words in (("ann", refused), ("bob", refused), ("cid", shell)):
        assert f"directory of offering Test SLURM: {name}: {words}" in logged
    writes = slapd.operations(" MOD dn=") + slapd.operations(" ADD dn=")
    assert passed(site) == []
    assert slapd.operations(" MOD dn=") + slapd.operations(" ADD dn=") == writes
    # Set right in Waldur, all of it is made up for.
    give(waldur, one, "ann", 5001, home_directory="/home/ann", login_shell="/bin/zsh")
    give(waldur, two, "bob", 5002, home_directory="/home/bob")
    passed(site)
    ann = user_of(looker, "ann")
    assert (ann.first("loginShell"), ann.first("mail")) == ("/bin/zsh", "new@example.org")
    assert user_of(looker, "bob").first("homeDirectory") == "/home/bob"


def test_what_another_agent_has_written_stays_and_is_not_logged(
    waldur: SimulatedWaldur, site: Site, looker: Looker, slapd: Slapd
) -> None:
    """A directory with other homes and shells, in which Waldur agrees."""
    one = logins(waldur)[0]
    give(waldur, one, "ann", 5001, home_directory="/home/ann", login_shell="/bin/bash")
    passed(site)
    strange = {"homeDirectory": "/cfs/home/a/ann", "loginShell": "/opt/site/shell"}
    changes = {attribute: [(REPLACE, [value])] for attribute, value in strange.items()}
    looker.directory.modify(f"uid=ann,ou=People,{BASE}", changes)
    give(waldur, one, "ann", 5001, home_directory=strange["homeDirectory"], login_shell=strange["loginShell"])
    writes = slapd.operations(" MOD dn=")
    report = provision(site, listed(site), facts(site))
    assert (report.outcomes, report.error) == ((), None)
    assert planned_names(site).differences == ()
    assert slapd.operations(" MOD dn=") == writes


def test_a_site_names_its_own_folders_and_shells(
    waldur: SimulatedWaldur, site_for: SiteFactory, slapd: Slapd, looker: Looker
) -> None:
    waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options={})
    one, two, *_ = logins(waldur)
    site = site_for(
        "ldap", **raw(slapd, **RULES, login_shells=["/opt/site/shell"]), homedir_bases=["/cfs/home/", "/data"]
    )
    give(waldur, one, "ann", 5001, home_directory="/cfs/home/ann", login_shell="/opt/site/shell")
    give(waldur, two, "bob", 5002, home_directory="/home/bob", login_shell="/bin/zsh")
    assert [outcome.action.line() for outcome in passed(site)] == [
        "create user ann with uid 5001 and gid 6001"
    ]
    assert looker.user("bob") is None


def test_numbers_and_names_of_this_host_are_given_to_no_other_user(
    waldur: SimulatedWaldur,
    site: Site,
    looker: Looker,
    local_user: pwd.struct_passwd,
    local_group: grp.struct_group,
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two, three, four, five, *_ = logins(waldur)
    name, uid, gid = local_user.pw_name, local_user.pw_uid, local_group.gr_gid
    give(waldur, one, "ann", uid)
    give(waldur, two, "bob", 5002, primarygroup=gid)
    give(waldur, three, name, 5003)
    give(waldur, four, local_group.gr_name, 5004, primarygroup=gid)
    give(waldur, five, "eve", 5005)
    assert [outcome.action.line() for outcome in passed(site)] == [
        "create user eve with uid 5005 and gid 6005"
    ]
    logged = errors(caplog)
    assert any(f"ann: uid {uid} is that of user {name} on this host" in words for words in logged)
    assert any(
        f"bob: gid {gid} is that of group {local_group.gr_name} on this host" in words for words in logged
    )
    assert any(f"{name}: this host knows a user {name} with uid {uid}" in words for words in logged)
    assert any(f"gid {gid} is that of group {local_group.gr_name} on this host" in words for words in logged)
    assert [looker.user(each) for each in ("ann", "bob", name, local_group.gr_name)] == [None] * 4


def test_no_user_adopts_a_number_of_this_host(
    waldur: SimulatedWaldur,
    site_for: SiteFactory,
    slapd: Slapd,
    looker: Looker,
    local_user: pwd.struct_passwd,
) -> None:
    waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options={})
    site = site_for("ldap", **raw(slapd, **RULES, on_posix_mismatch="adopt"))
    one = logins(waldur)[0]
    give(waldur, one, "ann", 5001)
    passed(site)
    give(waldur, one, "ann", local_user.pw_uid, primarygroup=6001)
    assert passed(site) == []
    assert user_of(looker, "ann").first("uidNumber") == "5001"


def test_groups_of_projects_get_no_number_and_no_name_of_this_host(
    waldur: SimulatedWaldur,
    site_for: SiteFactory,
    slapd: Slapd,
    looker: Looker,
    local_group: grp.struct_group,
) -> None:
    waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options={})
    looker.directory.add(PLACE, ["organizationalUnit", "top"], {"ou": ["projects"]})
    (project,) = waldur.seed.project_uuids
    with_resource(waldur, project)
    other, third = waldur.people.add_project("other"), waldur.people.add_project("third")
    waldur.site.add_project_group(project, "physics", local_group.gr_gid)
    waldur.site.add_project_group(other, local_group.gr_name, 20002)
    waldur.site.add_project_group(third, "chemistry", 20003)
    site = site_for("ldap", **raw(slapd, **RULES, project_groups={"enabled": True}))
    report = sync_members(site)
    made = [outcome.action for outcome in report.outcomes if isinstance(outcome.action, CreateGroup)]
    assert made == [CreateGroup(group="chemistry", gid=20003)]
    name, gid = local_group.gr_name, local_group.gr_gid
    notes = "\n".join(report.notes)
    assert f"group physics: its number {gid} belongs to group {name} of this host" in notes
    assert f"group {name}: this host has a group of its name, with the number {gid}" in notes
    assert looker.directory.search(BASE, f"(|(cn=physics)(gidNumber={gid}))", ["cn"]) == []
