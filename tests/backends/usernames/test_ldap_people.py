# SPDX-License-Identifier: MIT
"""Users of a real OpenLDAP: found, made, half made, brought up to date, removed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agent.core.directory_actions import CreateGroup, DeactivateUser, UpdateProfile
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.model import OfferingUser
from backends.usernames.base import UsernameContext
from backends.usernames.ldap.user_reader import owner_description
from rig.slapd import BASE, Slapd
from tests.backends.usernames.conftest import Connect, Looker, person


def test_a_new_person_gets_a_group_and_an_entry_with_numbers_of_their_own(
    ldap: Connect, looker: Looker
) -> None:
    backend = ldap(default_home_base="/data/home/", waldur_username_attribute="employeeNumber")
    user = person(email="john@example.org")
    assert (backend.find(user), backend.propose(user), backend.make(user)) == ("", "jsmith", "jsmith")
    entry, group = looker.user("jsmith"), looker.group("jsmith")
    assert entry is not None and group is not None
    assert {name: entry.all(name) for name in entry.values} == {
        "objectclass": ("inetOrgPerson", "organizationalPerson", "person", "posixAccount", "top"),
        "uid": ("jsmith",), "cn": ("John Smith",), "givenname": ("John",), "sn": ("Smith",),
        "uidnumber": ("10000",), "gidnumber": ("10000",), "homedirectory": ("/data/home/jsmith",),
        "loginshell": ("/bin/bash",), "mail": ("john@example.org",), "employeenumber": ("login1",),
    }  # fmt: skip
    assert (group.first("gidNumber"), group.all("memberUid")) == ("10000", ("jsmith",))
    assert backend.find(user) == "jsmith"


def test_a_person_is_found_by_login_by_our_mark_by_mail_and_by_uid_in_this_order(
    ldap: Connect, looker: Looker
) -> None:
    user = person(email="john@example.org", login="jonny")
    backend = ldap(waldur_username_attribute="employeeNumber")
    looker.add_user("jonny", 5000)
    assert backend.find(user) == "jonny"
    looker.add_user("bymail", 5001, mail="john@example.org")
    assert backend.find(user) == "bymail"
    looker.add_user("bymark", 5002)
    looker.add_group("bymark", 5002, "bymark", description=owner_description(user))
    assert backend.find(user) == "bymark"
    looker.add_user("bylogin", 5003, employeeNumber="jonny")
    assert backend.find(user) == "bylogin"


def test_an_entry_that_may_be_another_persons_is_not_taken(ldap: Connect, looker: Looker) -> None:
    backend = ldap(waldur_username_attribute="employeeNumber")
    looker.add_user("one", 5000, mail="shared@example.org")
    looker.add_user("two", 5001, mail="shared@example.org")
    with pytest.raises(BackendError, match="mail of several users: one, two") as caught:
        backend.find(person(email="shared@example.org"))
    assert not caught.value.retryable
    looker.add_user("jonny", 5002, employeeNumber="another login")
    assert backend.find(person(login="jonny")) == ""
    looker.add_user("backup", 34, mail="backup@example.org")
    with pytest.raises(BackendError, match="account of the system"):
        backend.find(person(email="backup@example.org"))


HOSTILE = ["*", "jsmith)(uid=*", "a\\2a", "(", "\x00", "*)(|(uid=*"]


@pytest.mark.parametrize("words", HOSTILE)
def test_what_people_call_themselves_is_no_filter_and_no_dn(
    ldap: Connect, looker: Looker, words: str
) -> None:
    looker.add_user("victim", 5000, mail="victim@example.org")
    backend = ldap(waldur_username_attribute="employeeNumber")
    user = person(first=f"J{words}", last="Smith,ou=Groups+x=1", email=words, login=words)
    assert backend.find(user) == ""
    name = backend.make(user)
    entry = looker.user(name)
    assert entry is not None
    assert (entry.dn, entry.first("employeeNumber")) == (f"uid={name},ou=People,{BASE}", words)


def test_a_name_that_a_user_or_a_group_has_is_not_given_again(ldap: Connect, looker: Looker) -> None:
    looker.add_user("JSmith", 5000)
    looker.add_group("jsmith2", 5001)
    assert [ldap().make(person(number)) for number in (1, 2)] == ["jsmith3", "jsmith4"]


def test_another_agent_that_takes_the_name_first_costs_one_round(ldap: Connect, tmp_path: Path) -> None:
    other = ldap()

    def taken_in_between() -> frozenset[str]:
        """Asked for when names were just looked at: the other agent makes its user now."""
        other.make(person(2))
        return frozenset()

    assert ldap(context=UsernameContext("o", tmp_path, {}, taken_in_between)).make(person(1)) == "jsmith2"
    assert other.find(person(2)) == "jsmith"


def test_a_refused_user_leaves_no_group_behind(ldap: Connect, looker: Looker) -> None:
    before = looker.dns()
    backend = ldap(user_object_classes=["posixAccount", "noSuchClass"])
    with pytest.raises(BackendError, match="object_classes") as caught:
        backend.make(person())
    assert not caught.value.retryable
    assert looker.dns() - before == {f"cn=waldur-site-cluster-ids,ou=Groups,{BASE}"}
    assert ldap().make(person()) == "jsmith"


def test_what_a_crash_left_half_made_is_finished_under_the_same_name_and_number(
    ldap: Connect, looker: Looker
) -> None:
    looker.add_group("jsmith", 12345, "jsmith", description=owner_description(person()))
    backend = ldap()
    assert (backend.find(person()), backend.propose(person()), backend.make(person())) == (
        "",
        "jsmith",
        "jsmith",
    )
    entry = looker.user("jsmith")
    assert entry is not None and entry.first("gidNumber") == "12345"
    assert backend.make(person(2)) == "jsmith2"


def test_a_made_person_whose_name_waldur_never_heard_of_is_found_again(ldap: Connect) -> None:
    """Only our mark says who it is: no mail, another login."""
    assert ldap().make(person()) == "jsmith"
    assert ldap().find(person()) == "jsmith"
    assert ldap().find(person(2)) == ""


def test_the_default_classes_say_what_openldap_does_not_like_about_them(ldap: Connect) -> None:
    with pytest.raises(BackendError, match=r"user_group|object_classes"):
        ldap(user_group_object_classes=None).make(person())


def test_groups_of_names_hold_the_dn(ldap: Connect, looker: Looker) -> None:
    ldap(user_group_object_classes=["groupOfNames", "posixNumbers", "top"]).make(person())
    group = looker.group("jsmith")
    assert group is not None
    assert (group.all("member"), group.all("memberUid")) == ((f"uid=jsmith,ou=People,{BASE}",), ("jsmith",))


def test_access_groups_are_joined_and_a_missing_one_is_logged(
    ldap: Connect, looker: Looker, caplog: pytest.LogCaptureFixture
) -> None:
    looker.add_group("vpn", 5000)
    looker.directory.add(
        looker.directory.group_dn("people"), ["groupOfNames", "top"], {"cn": ["people"], "member": [BASE]}
    )
    groups = [{"name": "vpn"}, {"name": "missing"}, {"name": "people", "attribute": "member"}]
    backend = ldap(access_groups=groups, remove_user_on_deactivate=True)
    assert backend.make(person()) == "jsmith"
    vpn, people = looker.group("vpn"), looker.group("people")
    assert vpn is not None and vpn.all("memberUid") == ("jsmith",)
    assert people is not None and f"uid=jsmith,ou=People,{BASE}" in people.all("member")
    assert "not in the access group missing" in caplog.text
    (outcome,) = backend.apply([DeactivateUser(user="jsmith")])
    vpn, people = looker.group("vpn"), looker.group("people")
    assert outcome.done
    assert (looker.user("jsmith"), looker.group("jsmith")) == (None, None)
    assert vpn is not None and vpn.all("memberUid") == ()
    assert people is not None and people.all("member") == (BASE,)


def test_a_vpn_password_is_random_and_in_no_log(
    ldap: Connect, looker: Looker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    backend = ldap(generate_vpn_password=True)
    names = [backend.make(person(1)), backend.make(person(2))]
    passwords = [entry.first("userPassword") for name in names if (entry := looker.user(name))]
    assert [len(password) for password in passwords] == [16, 16]
    assert passwords[0] != passwords[1]
    assert not any(password in caplog.text for password in passwords)


def named(username: str, **changes: str) -> OfferingUser:
    values = {"first_name": "John", "last_name": "Smith", "email": "john@example.org", **changes}
    return OfferingUser(
        uuid="1" * 32, user_uuid="2" * 32, username=username, state="OK", waldur_username="login1", **values
    )


def test_profiles_are_written_only_where_they_differ(
    ldap: Connect, looker: Looker, slapd: Slapd, caplog: pytest.LogCaptureFixture
) -> None:
    backend = ldap(waldur_username_attribute="employeeNumber")
    backend.make(person(email="john@example.org"))
    looker.add_user("boss", 500, mail="x@y.z")
    users = [named("jsmith"), named("missing"), named("boss")]
    assert backend.stale_profiles(users) == []
    assert "1 users of Waldur are not in LDAP: missing" in caplog.text
    married = named("jsmith", last_name="Miller", email="")
    changes = backend.stale_profiles([married])
    assert changes == [UpdateProfile(user="jsmith", changes=(("sn", "Miller"), ("cn", "John Miller")))]
    assert [outcome.done for outcome in backend.apply(changes)] == [True]
    entry = looker.user("jsmith")
    assert entry is not None
    assert (entry.first("sn"), entry.first("cn"), entry.first("mail")) == (
        "Miller", "John Miller", "john@example.org",
    )  # fmt: skip
    writes = slapd.operations(" MOD dn=")
    assert backend.stale_profiles([married]) == []
    assert slapd.operations(" MOD dn=") == writes


def test_a_mail_that_the_site_added_to_waldurs_stays(ldap: Connect, looker: Looker) -> None:
    looker.add_user("jsmith", 5000, mail="john@example.org", givenName="John")
    looker.directory.modify(
        looker.directory.user_dn("jsmith"), {"mail": [("MODIFY_ADD", ["alias@example.org"])]}
    )
    changes = ldap().stale_profiles([named("jsmith")])
    assert [name for action in changes for name, _ in action.changes] == ["sn", "cn"]


def test_a_thousand_profiles_are_read_in_a_few_searches(ldap: Connect, slapd: Slapd) -> None:
    backend = ldap()
    backend.open()
    before = slapd.operations(" SRCH base=")
    backend.stale_profiles([named(f"user{number}") for number in range(1000)])
    assert slapd.operations(" SRCH base=") - before == 2


def test_leavers_stay_unless_the_site_removes_them(ldap: Connect, looker: Looker) -> None:
    backend = ldap()
    backend.make(person())
    assert backend.apply([DeactivateUser(user="jsmith")])[0].done
    assert looker.user("jsmith") is not None
    looker.add_user("oldhand", 2000)
    looker.add_group("oldhand", 2000, "oldhand")
    removing = ldap(remove_user_on_deactivate=True)
    outcomes = removing.apply([DeactivateUser(user=name) for name in ("jsmith", "oldhand", "nobody-here")])
    assert [outcome.done for outcome in outcomes] == [True, False, True]
    assert "outside uid_range" in str(outcomes[1].error)
    assert (looker.user("jsmith"), looker.group("jsmith")) == (None, None)
    assert looker.user("oldhand") is not None and looker.group("oldhand") is not None
    assert not removing.apply([CreateGroup(group="g")])[0].done


def test_whom_the_agent_did_not_make_it_does_not_disable(ldap: Connect, looker: Looker) -> None:
    looker.add_user("oldhand", 2000)
    looker.add_user("other", 10500, employeeNumber="login2")
    looker.add_group("sudo", 5000, "oldhand", "other")
    keeping = ldap(
        remove_user_on_deactivate=True, on_departure="disable", waldur_username_attribute="employeeNumber"
    )
    leavers = [DeactivateUser(user=name, login="login1") for name in ("oldhand", "other")]
    errors = [str(outcome.error) for outcome in keeping.apply(leavers)]
    assert "outside uid_range" in errors[0] and "the login login2" in errors[1]
    sudo = looker.group("sudo")
    assert sudo is not None and sudo.all("memberUid") == ("oldhand", "other")


def test_a_directory_that_goes_away_is_an_outage_and_comes_back(ldap: Connect, slapd: Slapd) -> None:
    backend = ldap()
    backend.make(person())
    slapd.kill()
    for call in (backend.find, backend.make, backend.propose):
        with pytest.raises(BackendUnavailable):
            call(person(2))
    with pytest.raises(BackendUnavailable):
        backend.stale_profiles([named("jsmith")])
    (outcome,) = backend.apply([UpdateProfile(user="jsmith", changes=(("sn", "x"),))])
    assert outcome.error is not None and outcome.error.retryable
    slapd.start()
    assert backend.find(person()) == "jsmith"
