# SPDX-License-Identifier: MIT
"""`account_source: waldur` on a real OpenLDAP: Waldur's names and numbers, renamings, leavers, and what disagrees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.directory_actions import CreateUser, DeactivateUser, RenameUser
from agent.core.model import OfferingUser, PosixAccount
from agent.run.people.naming import opened
from agent.run.site import Site
from backends.usernames.ldap.directory import ADD
from rig.slapd import BASE, Slapd
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.people.conftest import (
    SiteFactory,
    facts,
    listed,
    logins,
    planned_names,
    posts,
    provision,
)
from tests.agent.run.people.followed import FOLLOWED, give, looker, passed, site, user_of, waldur
from tests.backends.usernames.conftest import Looker, raw

__all__ = ["looker", "site", "waldur"]


def test_people_get_what_waldur_has_and_nothing_is_reported(
    waldur: SimulatedWaldur, site: Site, looker: Looker, slapd: Slapd, caplog: pytest.LogCaptureFixture
) -> None:
    one, two, three, *_ = logins(waldur)
    give(waldur, one, "ann", 5001, home_directory="/data/ann", login_shell="/bin/zsh")
    give(waldur, two, "bob", 5002)
    give(waldur, three, "eve", None)
    looker.add_user("bob", 7777)
    planned = planned_names(site).actions
    assert looker.user("ann") is None
    waldur.requests.reset()
    done = passed(site)
    assert [outcome.action for outcome in done] == list(planned)
    assert [type(action) for action in planned] == [CreateUser]
    assert posts(waldur) == {}
    ann = user_of(looker, "ann")
    values = [
        ann.first(n) for n in ("uidNumber", "gidNumber", "homeDirectory", "loginShell", "employeeNumber")
    ]
    assert values == ["5001", "6001", "/data/ann", "/bin/zsh", one]
    group = looker.group("ann")
    assert group is not None and group.first("gidNumber") == "6001"
    # Numbers that disagree stay, and so does everything else about that entry.
    assert (user_of(looker, "bob").first("uidNumber"), user_of(looker, "bob").first("homeDirectory")) == (
        "7777",
        "/",
    )
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert any("bob: it has 7777:7777 there, and 5002:6002 in Waldur" in line for line in logged)
    assert any("eve: Waldur has no uidnumber" in line for line in logged)
    caplog.clear()
    writes = slapd.operations(" MOD dn=") + slapd.operations(" ADD dn=")
    assert passed(site) == []
    assert slapd.operations(" MOD dn=") + slapd.operations(" ADD dn=") == writes
    assert "bob" not in caplog.text
    waldur.site.change(
        "offering_users",
        waldur.people.account(one).uuid,
        login_shell="/bin/sh",
        home_directory="",  # type: ignore[union-attr]
    )
    passed(site)
    ann = user_of(looker, "ann")
    assert (ann.first("loginShell"), ann.first("homeDirectory")) == ("/bin/sh", "/data/ann")


def test_people_are_read_by_a_search_for_names_and_numbers_and_one_for_logins(
    waldur: SimulatedWaldur, site: Site, slapd: Slapd
) -> None:
    for uid, login in enumerate(logins(waldur)[:5], 5001):
        give(waldur, login, f"user{uid}", uid)
    passed(site)
    searches = f' SRCH base="ou=People,{BASE}"'
    before = slapd.operations(searches)
    assert passed(site) == []
    assert slapd.operations(searches) - before == 2


def test_a_renaming_goes_on_where_it_was_cut_off(waldur: SimulatedWaldur, site: Site, looker: Looker) -> None:
    one = logins(waldur)[0]
    give(waldur, one, "ann", 5001)
    passed(site)
    looker.add_group("hpc", 9000, "ann", "zed")
    give(waldur, one, "anna", 5001)
    # As a kill after the first two steps leaves it.
    looker.directory.modify(
        f"uid=ann,ou=People,{BASE}", {"description": [(ADD, ["waldur-site-agent:renamed-from=ann"])]}
    )
    looker.directory.modify(f"cn=hpc,ou=Groups,{BASE}", {"memberUid": [(ADD, ["anna"])]})
    assert [outcome.action for outcome in passed(site)] == [RenameUser(before="ann", user="anna")]
    assert looker.user("ann") is None and looker.group("ann") is None
    assert user_of(looker, "anna").first("uidNumber") == "5001"
    assert user_of(looker, "anna").all("description") == ()
    hpc, own = looker.group("hpc"), looker.group("anna")
    assert hpc is not None and sorted(hpc.all("memberUid")) == ["anna", "zed"]
    assert own is not None and own.all("memberUid") == ("anna",)
    # As a kill before the last steps leaves it.
    looker.directory.modify(
        f"uid=anna,ou=People,{BASE}", {"description": [(ADD, ["waldur-site-agent:renamed-from=ann"])]}
    )
    looker.directory.modify(f"cn=hpc,ou=Groups,{BASE}", {"memberUid": [(ADD, ["ann"])]})
    passed(site)
    hpc = looker.group("hpc")
    assert hpc is not None and sorted(hpc.all("memberUid")) == ["anna", "zed"]
    assert passed(site) == []


def test_a_renaming_stays_in_the_entrys_own_place(
    waldur: SimulatedWaldur, site: Site, looker: Looker
) -> None:
    one = logins(waldur)[0]
    give(waldur, one, "ann", 5001)
    passed(site)
    place, door = f"ou=Physics,ou=People,{BASE}", f"cn=door,ou=Groups,{BASE}"
    looker.directory.add(place, ["organizationalUnit", "top"], {"ou": ["Physics"]})
    looker.directory.delete(f"uid=ann,ou=People,{BASE}")
    values = {"cn": "ann", "sn": "ann", "uidNumber": "5001", "gidNumber": "6001", "homeDirectory": "/"}
    looker.directory.add(
        f"uid=ann,{place}",
        ["inetOrgPerson", "posixAccount", "top"],
        {"uid": ["ann"], "employeeNumber": [one], **{key: [value] for key, value in values.items()}},
    )
    looker.directory.add(
        door, ["groupOfNames", "top"], {"cn": ["door"], "member": [BASE, f"uid=ann,{place}"]}
    )
    give(waldur, one, "anna", 5001)
    passed(site)
    inside, anna = looker.group("door"), user_of(looker, "anna")
    assert (anna.dn, anna.all("description")) == (f"uid=anna,{place}", ())
    assert inside is not None and set(inside.all("member")) == {BASE, anna.dn}
    # As a kill before the last steps leaves it.
    looker.directory.modify(anna.dn, {"description": [(ADD, ["waldur-site-agent:renamed-from=ann"])]})
    looker.directory.modify(door, {"member": [(ADD, [f"uid=ann,{place}"])]})
    passed(site)
    inside, anna = looker.group("door"), user_of(looker, "anna")
    assert inside is not None and set(inside.all("member")) == {BASE, anna.dn}
    assert anna.all("description") == ()


def test_who_leaves_is_disabled_and_enabled_again(
    waldur: SimulatedWaldur, site: Site, site_for: SiteFactory, slapd: Slapd, looker: Looker
) -> None:
    looker.add_group("hpc", 9000, "ann")
    one = logins(waldur)[0]
    give(waldur, one, "ann", 5001, login_shell="/bin/zsh")
    access = {"access_groups": [{"name": "cluster"}]}
    looker.add_group("cluster", 9001)
    site = site_for("ldap", **raw(slapd, **FOLLOWED, **access))
    passed(site)
    with opened(site, {}, None) as backend:
        assert backend is not None
        for _ in range(2):
            (outcome,) = backend.apply([DeactivateUser(user="ann", login=one, uid=5001)])
            assert outcome.error is None
    ann = user_of(looker, "ann")
    assert (ann.first("loginShell"), ann.first("shadowExpire")) == ("/usr/sbin/nologin", "1")
    assert {"shadowAccount"} < set(ann.all("objectClass"))
    members = [group.all("memberUid") for name in ("hpc", "cluster", "ann") if (group := looker.group(name))]
    assert members == [(), (), ("ann",)]
    assert [outcome.action.verb for outcome in passed(site)] == ["enable user"]
    ann = user_of(looker, "ann")
    assert (ann.first("loginShell"), ann.all("shadowExpire"), ann.all("description")) == ("/bin/zsh", (), ())
    cluster = looker.group("cluster")
    assert cluster is not None and cluster.all("memberUid") == ("ann",)
    assert passed(site) == []


@pytest.mark.parametrize("how", ["disable", "delete"])
def test_an_entry_that_is_not_the_leavers_is_left_alone(
    site_for: SiteFactory, slapd: Slapd, looker: Looker, how: str
) -> None:
    numbers = {"ann": 5001, "bob": 300, "eve": 7777, "joe": 5004, "zed": 5005}
    for name, number in numbers.items():
        looker.add_user(name, number, employeeNumber="stranger" if name == "ann" else f"{name}@w")
    looker.add_group("sudo", 9000, *numbers)
    site = site_for("ldap", **raw(slapd, **FOLLOWED, on_departure=how))
    known = {"ann": 5001, "bob": 300, "eve": 5003, "joe": None, "zed": 5005}
    leavers = [DeactivateUser(user=name, login=f"{name}@w", uid=uid) for name, uid in known.items()]
    with opened(site, {}, None) as backend:
        assert backend is not None
        outcomes = backend.apply(leavers)
    *errors, last = [str(outcome.error or "") for outcome in outcomes]
    words = ("the login stranger", "account of the system", "has uidnumber 5003", "shows no uidnumber")
    assert [word in error for word, error in zip(words, errors, strict=True)] == [True] * 4
    assert last == ""
    assert [user_of(looker, name).first("loginShell") for name in list(numbers)[:4]] == [""] * 4
    zed = looker.user("zed")
    assert (zed is None) if how == "delete" else (zed is not None and zed.first("shadowExpire") == "1")
    sudo = looker.group("sudo")
    assert sudo is not None and {"ann", "bob", "eve", "joe"} <= set(sudo.all("memberUid"))


def test_the_agent_makes_no_names_and_says_so(
    waldur: SimulatedWaldur, site_for: SiteFactory, slapd: Slapd
) -> None:
    report = provision(site := site_for("ldap", **raw(slapd, **FOLLOWED)), listed(site), facts(site))
    assert report.error is not None and "username_generation_policy `service_provider`" in str(report.error)
    assert not report.error.retryable


def test_an_entry_that_the_server_refuses_leaves_no_group_behind(
    waldur: SimulatedWaldur, site: Site, looker: Looker
) -> None:
    person = OfferingUser("1", "p", "ann", "OK", waldur_username="x", posix=PosixAccount(5001, 6001))
    with opened(site, {}, None) as backend:
        assert backend is not None
        broken = replace(person, posix=PosixAccount(5001, 6001, home="ä"))
        backend.read_accounts([broken])  # type: ignore[attr-defined]
        (outcome,) = backend.apply([CreateUser(user="ann", uid=5001, gid=6001)])
    assert not outcome.done
    assert looker.group("ann") is None and looker.user("ann") is None


def test_without_numbers_of_waldur_leavers_may_be_disabled_as_well(
    waldur: SimulatedWaldur, site_for: SiteFactory, slapd: Slapd, looker: Looker
) -> None:
    """The last member of a groupOfNames leaves the stand-in behind, which goes when a member comes."""
    nobody = f"cn=nobody,{BASE}"
    door = f"cn=door,ou=Groups,{BASE}"
    looker.directory.add(door, ["groupOfNames", "top"], {"cn": ["door"], "member": [nobody]})
    leavers = {"remove_user_on_deactivate": True, "on_departure": "disable"}
    access = {"access_groups": [{"name": "door", "attribute": "member"}]}
    site = site_for("ldap", **raw(slapd, **leavers, **access))
    passed(site)
    names = sorted(user.username for user in listed(site))
    inside = looker.group("door")
    assert (
        inside is not None and nobody not in inside.all("member") and len(inside.all("member")) == len(names)
    )
    with opened(site, {}, None) as backend:
        assert backend is not None
        outcomes = backend.apply([DeactivateUser(user=name) for name in names])
    assert [outcome.error for outcome in outcomes] == [None] * len(names)
    inside = looker.group("door")
    assert inside is not None and inside.all("member") == (nobody,)
    assert [outcome.action.verb for outcome in passed(site)] == ["enable user"] * len(names)
    inside = looker.group("door")
    assert inside is not None and len(inside.all("member")) == len(names)
    assert passed(site) == []


def test_a_removal_that_was_cut_off_goes_on_with_the_group_that_was_made_for_the_name(
    waldur: SimulatedWaldur, site_for: SiteFactory, slapd: Slapd, looker: Looker
) -> None:
    one = logins(waldur)[0]
    waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options={})
    give(waldur, one, "ann", 5001)
    site = site_for("ldap", **raw(slapd, **FOLLOWED, on_departure="delete"))
    passed(site)
    looker.add_group("bob", 6002)
    # As a kill after the first step leaves it.
    looker.directory.delete(user_of(looker, "ann").dn)
    with opened(site, {}, None) as backend:
        assert backend is not None
        leavers = [DeactivateUser(user="ann", login=one, uid=5001), DeactivateUser(user="bob", uid=5002)]
        assert all(outcome.done for outcome in backend.apply(leavers))
    assert looker.group("ann") is None
    # Made by another system: whose it is is unknown without an entry.
    assert looker.group("bob") is not None


@pytest.mark.parametrize("how", ["disable", "delete"])
def test_access_groups_hold_the_dn_that_an_entry_has(
    waldur: SimulatedWaldur, site_for: SiteFactory, slapd: Slapd, looker: Looker, how: str
) -> None:
    """The entry stands deeper than `people_ou`, where the site's own people have moved it."""
    one = logins(waldur)[0]
    give(waldur, one, "ann", 5001)
    waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options={})
    place, door = f"ou=Physics,ou=People,{BASE}", f"cn=door,ou=Groups,{BASE}"
    deep = f"uid=ann,{place}"
    looker.directory.add(place, ["organizationalUnit", "top"], {"ou": ["Physics"]})
    looker.directory.add(door, ["groupOfNames", "top"], {"cn": ["door"], "member": [BASE, deep]})
    values = {"cn": "ann", "sn": "ann", "uidNumber": "5001", "gidNumber": "6001", "homeDirectory": "/"}
    looker.directory.add(
        deep,
        ["inetOrgPerson", "posixAccount", "top"],
        {"uid": ["ann"], "employeeNumber": [one], **{key: [value] for key, value in values.items()}},
    )
    access = {"access_groups": [{"name": "door", "attribute": "member"}]}
    site = site_for("ldap", **raw(slapd, **FOLLOWED, **access, on_departure=how))
    with opened(site, {}, None) as backend:
        assert backend is not None
        (outcome,) = backend.apply([DeactivateUser(user="ann", login=one, uid=5001)])
    assert outcome.error is None
    inside = looker.group("door")
    assert inside is not None and inside.all("member") == (BASE,)
    if how == "disable":
        assert "enable user" in [outcome.action.verb for outcome in passed(site)]
        inside = looker.group("door")
        assert inside is not None and set(inside.all("member")) == {BASE, deep}
