# SPDX-License-Identifier: MIT
"""Numbers of users and groups on a real OpenLDAP: never twice, not even after a deletion."""

from __future__ import annotations

import pwd
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.core.directory_actions import DeactivateUser
from agent.core.errors import BackendError, BackendUnavailable
from backends.usernames.ldap import user_writer
from backends.usernames.ldap.directory import Directory
from backends.usernames.ldap.ids import COUNTER, IdAllocator
from rig.slapd import BASE, Slapd
from tests.backends.usernames.conftest import Connect, Looker, person, settings


def ids(slapd: Slapd, **options: object) -> IdAllocator:
    wanted = settings(slapd, **options)
    return IdAllocator(Directory(wanted), wanted)


def test_the_number_of_a_deleted_user_is_not_given_again(ldap: Connect, looker: Looker) -> None:
    backend = ldap(remove_user_on_deactivate=True)
    for number in (1, 2):
        backend.make(person(number))
    backend.apply([DeactivateUser(user="jsmith2")])
    assert looker.user("jsmith2") is None
    assert ldap().make(person(3)) == "jsmith2"
    entry = looker.user("jsmith2")
    assert entry is not None
    assert (entry.first("uidNumber"), entry.first("gidNumber")) == ("10002", "10002")


def test_without_a_counter_numbers_begin_above_those_in_use(slapd: Slapd, looker: Looker) -> None:
    looker.add_user("a", 10007)
    looker.add_user("outside", 70000)
    looker.add_group("g", 10020)
    numbers = ids(slapd)
    assert (numbers.next_uid(), numbers.next_uid(), numbers.next_gid()) == (10008, 10009, 10021)
    counter = looker.group(COUNTER)
    assert counter is not None
    assert sorted(counter.all("description")) == ["gid 10021", "uid 10009"]
    assert "posixGroup" not in counter.all("objectClass")


def test_numbers_that_others_use_by_now_are_passed_over(slapd: Slapd, looker: Looker) -> None:
    numbers = ids(slapd)
    assert numbers.next_uid() == 10000
    for number in range(10001, 10025):
        looker.add_user(f"u{number}", number)
    assert numbers.next_uid() == 10025


def test_numbers_of_this_host_are_passed_over(slapd: Slapd) -> None:
    taken = pwd.getpwnam("daemon").pw_uid
    free = ids(slapd, uid_range_start=taken, uid_range_end=taken + 1000).next_uid()
    with pytest.raises(KeyError):
        pwd.getpwuid(free)
    assert free > taken


def test_a_range_that_is_used_up_is_named_with_the_key_to_change(ldap: Connect, looker: Looker) -> None:
    backend = ldap(uid_range_start=20000, uid_range_end=20001)
    names = [backend.make(person(number)) for number in (1, 2)]
    before = looker.dns()
    with pytest.raises(
        BackendError, match=r"uid_range \(20000 to 20001\) are used up.*ldap\.uid_range_end"
    ) as caught:
        backend.make(person(3))
    assert not caught.value.retryable
    assert (names, looker.dns()) == (["jsmith", "jsmith2"], before)
    with pytest.raises(BackendError, match=r"gid_range"):
        ldap(gid_range_start=10000, gid_range_end=10001).make(person(4))


def test_two_ranges_keep_their_own_count(slapd: Slapd) -> None:
    one, other = ids(slapd), ids(slapd, uid_range_start=80000, uid_range_end=90000)
    drawn = [one.next_uid(), other.next_uid(), one.next_uid(), other.next_uid()]
    assert drawn == [10000, 80000, 10001, 80001]


def test_allocators_at_once_never_draw_the_same_number(slapd: Slapd) -> None:
    def draw(_: int) -> list[int]:
        numbers = ids(slapd)
        return [numbers.next_uid() for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        drawn = [number for several in pool.map(draw, range(4)) for number in several]
    assert sorted(drawn) == list(range(10000, 10080))


def test_a_listing_that_the_server_cuts_off_gives_no_number(slapd: Slapd, looker: Looker) -> None:
    for number in range(501):
        looker.add_user(f"u{number}", 10000 + number)
    with pytest.raises(BackendUnavailable, match="size limit"):
        ids(slapd).next_uid()


def test_people_are_made_by_several_agents_at_once(ldap: Connect, looker: Looker) -> None:
    backends = [ldap() for _ in range(3)]

    def make(which: int) -> list[str]:
        return [backends[which].make(person(which * 100 + number)) for number in range(1, 11)]

    with ThreadPoolExecutor(3) as pool:
        names = [name for several in pool.map(make, range(3)) for name in several]
    entries = [entry for name in names if (entry := looker.user(name))]
    assert len(set(names)) == len(entries) == 30
    assert len({entry.first("uidNumber") for entry in entries}) == 30
    assert len({entry.first("gidNumber") for entry in entries}) == 30
    groups = {dn for dn in looker.dns() if dn.endswith(f",ou=Groups,{BASE}")}
    assert len(groups) == 31  # with the counter


@pytest.fixture
def others_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow they are."""
    monkeypatch.setattr(user_writer, "OTHERS_S", 600)


@pytest.mark.usefixtures("others_are_waited_for")
def test_a_user_whom_another_agent_is_just_making_is_waited_for(ldap: Connect, looker: Looker) -> None:
    """It has made the group, and saw no other: it will make the user."""
    looker.add_group("johnny", 10500, description=f"personal group of Waldur user {person(1).user_uuid}")
    backend = ldap()
    with ThreadPoolExecutor(1) as pool:
        name = pool.submit(backend.make, person(1))
        looker.add_user("johnny", 10500)
        assert name.result() == "johnny"
    assert not [dn for dn in looker.dns() if dn.startswith(("uid=jsmith", "cn=jsmith"))]


@pytest.mark.usefixtures("others_are_waited_for")
def test_one_person_who_is_made_by_several_agents_at_once_is_one_user(ldap: Connect, looker: Looker) -> None:
    looker.add_user("jsmith", 5000)
    for number in range(1, 9):
        backends = [ldap() for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            names = list(pool.map(lambda backend, who=person(number): backend.make(who), backends))
        assert len(set(names)) == 1
    entries = {dn for dn in looker.dns() if dn.startswith("uid=jsmith") and "5000" not in dn}
    groups = {dn for dn in looker.dns() if dn.startswith("cn=jsmith")}
    assert (len(entries), len(groups)) == (9, 8)
