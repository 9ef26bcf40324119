# SPDX-License-Identifier: MIT
"""A directory that follows Waldur: which homes, shells, numbers and names of Waldur's are written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.directory import OnMismatch
from agent.core.directory_actions import AdoptNumbers, CreateUser, RenameUser, UpdateProfile
from agent.core.model import OfferingUser, PosixAccount
from agent.plan.posix_accounts import changes
from tests.agent.plan.test_posix_accounts import ANN, BOB, HERS, RULES, seen


def having(home: str = "", shell: str = "", user: OfferingUser = ANN) -> OfferingUser:
    return replace(user, posix=PosixAccount(5001, 6001, home, shell))


REFUSED = {
    "a folder of the system": having(home="/etc/systemd/system/cron.service.d"),
    "below another base": having(home="/data/ann"),
    "deeper": having(home="/home/a/ann"),
    "the base": having(home="/home"),
    "of another user in Waldur": having(home="/home/bob"),
    "of a user whom this host knows": having(home="/home/local"),
    "a command": having(shell="/bin/sh -c id"),
    "a program": having(shell="/usr/bin/python3"),
    "in the home": having(shell="/home/ann/shell"),
}
KNOWN_HERE = {"host_uids": {"local": 1001}}


@pytest.mark.parametrize("user", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("there", ["no entry", "an entry", "an old name", "one that was disabled"])
def test_a_home_or_shell_that_is_not_allowed_is_reported_and_nothing_is_done_for_the_person(
    user: OfferingUser, there: str
) -> None:
    """Everybody else's changes go on."""
    entries = {
        "no entry": [],
        "an entry": [HERS],
        "an old name": [replace(HERS, name="annold")],
        "one that was disabled": [replace(HERS, is_parked=True, shell="/usr/sbin/nologin")],
    }[there]
    stale = {"ann": (("mail", "ann@new"), ("homeDirectory", user.posix.home if user.posix else ""))}
    found = seen(*entries, **KNOWN_HERE, stale=stale)
    planned = changes([user, BOB], found, RULES)
    assert planned.actions == (CreateUser(user="bob", uid=5002, gid=6002),)
    (words,) = planned.problems
    assert words.startswith("ann: Waldur has the ")
    assert "ann" not in planned.unclear or there in ("no entry", "an old name")


@pytest.mark.parametrize("user", [having(home="/home/ann"), having(shell="/bin/zsh"), having("/home/annold")])
def test_what_people_may_have_is_written(user: OfferingUser) -> None:
    found = seen(HERS, **KNOWN_HERE, stale={"ann": (("mail", "ann@new"),)})
    assert changes([user], found, RULES).problems == ()
    assert changes([user], seen(), RULES).actions == (CreateUser(user="ann", uid=5001, gid=6001),)


@pytest.mark.parametrize("user", REFUSED.values(), ids=REFUSED)
def test_what_an_entry_has_already_is_not_asked_about(user: OfferingUser) -> None:
    """A directory that another agent has filled is taken as it is."""
    assert user.posix is not None
    entry = replace(HERS, home=user.posix.home, shell=user.posix.shell)
    found = seen(entry, stale={"ann": (("mail", "ann@new"),)})
    planned = changes([user, BOB], found, RULES)
    assert planned.problems == ()
    assert UpdateProfile(user="ann", changes=(("mail", "ann@new"),)) in planned.actions


HOST: dict[str, tuple[dict[str, Any], str]] = {
    "uid of another user": ({"host_users": {5001: "local"}}, "uid 5001 is that of user local on this host"),
    "gid of another group": (
        {"host_groups": {6001: "admins"}},
        "gid 6001 is that of group admins on this host",
    ),
    "a group of no user": ({"host_groups": {6001: "ann"}}, "gid 6001 is that of group ann on this host"),
    "the name with another uid": ({"host_uids": {"ann": 1001}}, "this host knows a user ann with uid 1001"),
}


@pytest.mark.parametrize(("known", "words"), HOST.values(), ids=HOST)
def test_what_this_host_has_for_another_user_is_not_given(known: dict[str, Any], words: str) -> None:
    planned = changes([ANN, BOB], seen(**known), RULES)
    assert planned.actions == (CreateUser(user="bob", uid=5002, gid=6002),)
    assert planned.problems == (f"ann: {words}",)
    other_numbers = seen(replace(HERS, uid=7007, gid=7008), **known)
    adopting = replace(RULES, on_mismatch=OnMismatch.ADOPT)
    is_adopted = "host_uids" in known
    assert (AdoptNumbers in map(type, changes([ANN], other_numbers, adopting).actions)) is is_adopted


def test_what_this_host_has_for_the_same_person_is_given() -> None:
    same = {"host_uids": {"ann": 5001}, "host_users": {5001: "ann"}, "host_groups": {6001: "ann"}}
    assert changes([ANN], seen(**same), RULES).actions == (CreateUser(user="ann", uid=5001, gid=6001),)


def test_a_group_that_people_share_is_one_of_the_directory() -> None:
    shared = replace(RULES, personal_groups=False)
    known = seen(groups=(("users", 6001),), host_groups={6001: "users"})
    assert changes([ANN], known, shared).problems == ()
    assert (
        "group admins on this host"
        in changes([ANN], replace(known, host_groups={6001: "admins"}), shared).problems[0]
    )


def test_no_user_is_renamed_to_a_name_that_this_host_has_for_another_one() -> None:
    old = replace(HERS, name="annold")
    assert type(changes([ANN], seen(old), RULES).actions[0]) is RenameUser
    known = seen(old, host_uids={"ann": 1001, "annold": 5001})
    assert changes([ANN], known, RULES).actions == ()
