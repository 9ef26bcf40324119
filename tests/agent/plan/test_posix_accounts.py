# SPDX-License-Identifier: MIT
"""A directory that follows Waldur: what is made, renamed, reported, and never overwritten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.directory import AccountRules, DirectoryPeople, DirectoryUser, OnMismatch
from agent.core.directory_actions import AdoptNumbers, CreateUser, EnableUser, RenameUser, UpdateProfile
from agent.core.model import OfferingUser, PosixAccount
from agent.plan.posix_accounts import (
    NO_NUMBERS,
    OldName,
    as_before,
    as_in_directory,
    changes,
    with_entries,
)

RULES = AccountRules(
    has_login=True, home_bases=("/home",), login_shells=frozenset({"/bin/bash", "/bin/sh", "/bin/zsh"})
)
ANN = OfferingUser("1", "p1", "ann", "OK", waldur_username="ann@w", posix=PosixAccount(5001, 6001))
BOB = OfferingUser("2", "p2", "bob", "OK", waldur_username="bob@w", posix=PosixAccount(5002, 6002))
HERS = DirectoryUser("ann", 5001, 6001, login="ann@w")


def seen(*entries: DirectoryUser, **more: object) -> DirectoryPeople:
    return replace(DirectoryPeople(entries), **more)


def test_who_is_free_is_made_and_who_agrees_is_left() -> None:
    found = changes([BOB, ANN], seen(HERS), RULES)
    assert (found.actions, found.problems) == ((CreateUser(user="bob", uid=5002, gid=6002),), ())


@pytest.mark.parametrize(
    "user",
    [
        replace(ANN, username=""),
        replace(ANN, is_restricted=True),
        replace(ANN, state="Deleting"),
        replace(ANN, state="Deleted"),
    ],
    ids=["nameless", "restricted", "deleting", "deleted"],
)
def test_who_may_have_no_entry_gets_none(user: OfferingUser) -> None:
    assert changes([user], seen(), RULES) == changes([], seen(), RULES)


@pytest.mark.parametrize(
    ("user", "known", "words"),
    [
        (replace(ANN, posix=PosixAccount(None, 6001)), seen(), "no uidnumber or primarygroup"),
        (replace(ANN, posix=PosixAccount(999, 6001)), seen(), "belong to the system"),
        (replace(ANN, posix=PosixAccount(5001, 0)), seen(), "belong to the system"),
        (ANN, seen(obstacles={"ann": "no name"}), "no name"),
        (ANN, seen(DirectoryUser("old", 5001, 1)), "the entry of old has its number 5001 or its login"),
        (ANN, seen(DirectoryUser("old", 7, 1, login="ann@w")), "or its login"),
        (ANN, seen(groups=(("ann", 7),)), "its group has the number 7 there"),
        (ANN, seen(groups=(("staff", 6001),)), "belongs to group staff"),
        (ANN, seen(replace(HERS, login="eve@w", uid=7)), "carries the login eve@w"),
        (ANN, seen(replace(HERS, uid=7), stale={"ann": (("mail", "x"),)}), "it has 7:6001 there"),
        (ANN, seen(replace(HERS, gid=None)), "5001:None"),
    ],
)
def test_what_does_not_agree_is_reported_and_not_touched(
    user: OfferingUser, known: DirectoryPeople, words: str
) -> None:
    found = changes([user, BOB], replace(known, groups=(*known.groups, ("bob", 6002))), RULES)
    assert found.actions == (CreateUser(user="bob", uid=5002, gid=6002),)
    (problem,) = found.problems
    assert problem.startswith("ann: ") and words in problem


def test_an_entry_of_another_person_is_reported_for_both() -> None:
    found = changes([ANN, BOB], seen(replace(HERS, login="bob@w")), RULES)
    assert found.actions == ()
    assert [words.partition(":")[0] for words in found.problems] == ["ann", "bob"]


def test_numbers_that_are_missing_may_be_passed_over() -> None:
    found = changes([replace(ANN, posix=PosixAccount()), BOB], seen(), replace(RULES, skips_missing=True))
    assert (len(found.actions), found.problems) == (1, ())


def test_a_server_without_numbers_is_reported_once() -> None:
    """No entry is touched, and whose login says an older name is known by that."""
    users = [replace(ANN, posix=None), replace(BOB, posix=None)]
    found = changes(users, seen(replace(HERS, name="old")), RULES)
    assert (found.actions, found.problems[0]) == ((), NO_NUMBERS)
    assert changes(users, seen(), RULES).problems == (NO_NUMBERS,)
    assert found.unclear == {"ann", "bob", "old"}
    assert found.old_names == {"1": OldName("old"), "2": OldName(None)}


def test_two_people_with_one_number_are_both_reported() -> None:
    found = changes([ANN, replace(BOB, posix=ANN.posix)], seen(), RULES)
    assert (found.actions, len(found.problems)) == ((), 2)


def test_a_new_name_of_the_same_person_is_a_renaming() -> None:
    old = DirectoryUser("annie", 5001, 6001, login="ann@w")
    assert changes([ANN], seen(old), RULES).actions == (RenameUser(before="annie", user="ann"),)
    # Without a login in the entries it is unknown whose number it is.
    assert changes([ANN], seen(old), replace(RULES, has_login=False)).actions == ()
    half = replace(HERS, renamed_from="annie")
    assert changes([ANN], seen(half), RULES).actions == (RenameUser(before="annie", user="ann"),)


def test_a_login_of_no_user_is_written_anew() -> None:
    known = seen(replace(HERS, login="gone@w"), stale={"ann": (("employeeNumber", "ann@w"),)})
    assert changes([ANN], known, RULES).actions == (
        UpdateProfile(user="ann", changes=(("employeeNumber", "ann@w"),)),
    )


def test_numbers_are_adopted_only_where_the_site_says_so_and_no_user_has_them() -> None:
    rules = replace(RULES, on_mismatch=OnMismatch.ADOPT)
    other = replace(HERS, uid=7007)
    assert changes([ANN], seen(other), rules).actions == (
        AdoptNumbers(user="ann", before=(7007, 6001), after=(5001, 6001)),
    )
    held = changes([ANN], seen(other, DirectoryUser("eve", 5001, 1)), rules)
    assert held.actions == () and "entry of eve" in held.problems[0]
    system = changes([ANN], seen(replace(HERS, uid=300)), rules)
    assert system.actions == () and "300 belongs to the system" in system.problems[0]
    known = seen(replace(HERS, gid=7007), groups=(("ann", 7007), ("wheel", 6001)))
    taken = changes([ANN], known, rules)
    assert taken.actions == () and "belongs to group wheel" in taken.problems[0]
    assert len(changes([ANN], known, replace(rules, personal_groups=False)).actions) == 1


def test_who_comes_back_may_log_in_again() -> None:
    back = replace(ANN, posix=PosixAccount(5001, 6001, shell="/bin/zsh"))
    known = seen(replace(HERS, is_parked=True))
    assert changes([back], known, RULES).actions == (EnableUser(user="ann", shell="/bin/zsh"),)
    assert len(changes([replace(back, state="")], known, RULES).actions) == 1
    for state in ("Requested", "Creating", "Pending account linking", "Error creating"):
        assert changes([replace(back, state=state)], known, RULES).actions == ()


OLD = DirectoryUser("old", 5001, 6001, login="ann@w")
OTHER_PERSON = DirectoryUser("zed", 5001, 6001)
NO_NUMBER = replace(ANN, posix=PosixAccount())
# What the directory may have for ann, who is not known by Waldur's name there.
UNKNOWN = OldName(None)


@pytest.mark.parametrize(
    ("user", "entries", "old"),
    [
        (ANN, [HERS], None),
        (ANN, [replace(HERS, uid=7, login="")], None),
        (ANN, [replace(HERS, login="gone@w")], None),
        (ANN, [replace(HERS, login="gone@w", uid=7)], None),
        (ANN, [HERS, replace(OLD, uid=7)], None),
        (ANN, [replace(HERS, login=""), replace(OLD, uid=7)], None),
        (NO_NUMBER, [replace(HERS, login="")], None),
        (ANN, [], UNKNOWN),
        (NO_NUMBER, [], UNKNOWN),
        (replace(ANN, posix=None), [], UNKNOWN),
        (ANN, [OLD], OldName("old")),
        (ANN, [replace(OLD, uid=7)], OldName("old")),
        (NO_NUMBER, [OLD], OldName("old")),
        (replace(ANN, posix=None), [OLD], OldName("old")),
        (ANN, [OLD, OTHER_PERSON], OldName("old")),
        (ANN, [OLD, replace(HERS, uid=7, login="")], OldName("old")),
        (ANN, [OLD, replace(HERS, uid=7, login="bob@w")], OldName("old")),
        (ANN, [replace(HERS, login="bob@w")], OldName(None, is_taken=True)),
        (ANN, [replace(HERS, name="Ann", login="bob@w")], OldName(None, frozenset(), is_taken=True)),
        (ANN, [replace(HERS, login="bob@w"), replace(OLD, uid=7)], OldName("old")),
        (ANN, [OTHER_PERSON], OldName(None, frozenset({"zed"}))),
        (ANN, [replace(OTHER_PERSON, login="gone@w")], OldName(None, frozenset({"zed"}))),
        (ANN, [replace(OTHER_PERSON, login="bob@w")], UNKNOWN),
        (ANN, [OTHER_PERSON, replace(HERS, uid=7, login="")], OldName(None, frozenset({"zed"}))),
        (ANN, [OLD, replace(OLD, name="older")], OldName(None, frozenset({"old", "older"}))),
    ],
)
def test_who_has_no_entry_of_this_name_may_have_an_older_one(
    user: OfferingUser, entries: list[DirectoryUser], old: OldName | None
) -> None:
    found = changes([user, BOB], seen(*entries, DirectoryUser("bob", 5002, 6002, login="bob@w")), RULES)
    assert found.old_names == ({} if old is None else {"1": old})
    if old is not None:
        made = CreateUser(user="ann", uid=5001, gid=6001)
        assert (made in found.actions) is (user == ANN and not entries)
        assert found.unclear == (set() if made in found.actions else {"ann", *(e.name for e in entries)})


@pytest.mark.parametrize(
    "user",
    [
        replace(ANN, is_restricted=True),
        replace(ANN, state="Requested deletion"),
        replace(ANN, state="Deleting"),
    ],
    ids=["restricted", "requested", "deleting"],
)
def test_who_gets_no_entry_may_have_one_of_an_older_name(user: OfferingUser) -> None:
    found = changes([user, BOB], seen(OLD, DirectoryUser("bob", 5002, 6002, login="bob@w")), RULES)
    assert (found.actions, found.problems, found.unclear) == ((), (), {"old"})
    assert found.old_names == {"1": OldName("old")}
    known = seen(OTHER_PERSON, DirectoryUser("bob", 5002, 6002, login="bob@w"))
    found = changes([user, BOB], known, RULES)
    assert found.old_names == {"1": OldName(None, frozenset({"zed"}))}
    assert len(found.problems) == (not user.is_restricted)


def test_whoever_may_get_an_entry_is_made_of_two_with_one_name() -> None:
    leaver = replace(BOB, uuid="0", username="ann", state="Deleting")
    assert with_entries([ANN, leaver, replace(BOB, state="Deleted")]) == [leaver, ANN]


def test_an_entry_with_the_login_of_a_restricted_user_is_not_taken_over() -> None:
    found = changes([ANN, replace(BOB, is_restricted=True)], seen(replace(HERS, login="bob@w")), RULES)
    assert found.actions == () and "belongs to another person" in found.problems[0]


def test_a_name_that_waldur_gives_two_people_is_for_both() -> None:
    """Two logins of one person: Waldur says that they share it."""
    found = changes([ANN, replace(BOB, username="ann")], seen(HERS), RULES)
    assert found.old_names == {"2": OldName(None)}


def test_a_name_that_a_user_could_not_give_up_is_not_free() -> None:
    anna, other = replace(ANN, username="anna"), replace(BOB, username="ann")
    found = changes([anna, other], seen(HERS, OTHER_PERSON), RULES)
    assert found.old_names == {"1": OldName("ann"), "2": OldName(None, is_taken=True)}
    assert [words.rpartition("; ")[2] for words in found.problems] == [
        "no user joins an account under this name until that is resolved",
        "on the cluster it stays ann until that is resolved",
    ]
    as_they_are = as_in_directory([anna, other], found.old_names, ())
    assert [user.is_name_taken for user in as_they_are] == [False, True]
    assert as_before([anna, other], as_they_are) == as_they_are


def test_an_entry_with_the_login_of_two_people_is_for_certain_neithers() -> None:
    found = changes([ANN, replace(BOB, waldur_username="ann@w")], seen(OLD), RULES)
    possible = OldName(None, frozenset({"old"}))
    assert found.old_names == {"1": possible, "2": possible}


def test_without_logins_a_number_makes_no_entry_certain() -> None:
    found = changes([ANN], seen(OLD), replace(RULES, has_login=False))
    assert found.old_names == {"1": OldName(None, frozenset({"old"}))}
    assert found.unclear == {"ann", "old"}


def test_whoever_gets_an_entry_has_its_name() -> None:
    users = [replace(ANN, username="anna"), BOB]
    found = changes(users, seen(HERS), RULES)
    assert [action.verb for action in found.actions] == ["rename user", "create user"]
    assert as_in_directory(users, found.old_names, found.actions) == users
    assert as_in_directory(users, found.old_names, ()) == [
        replace(users[0], directory_name="ann"),
        replace(BOB, directory_name=None),
    ]


def test_a_second_read_of_waldur_changes_no_names_of_the_directory() -> None:
    cid = replace(ANN, uuid="3", username="cid", directory_name=None, possible_names=frozenset({"old"}))
    before = [ANN, replace(BOB, directory_name="bobby"), cid, replace(ANN, uuid="4", username="")]
    fresh = [
        replace(ANN, username="anna"),
        replace(BOB, username="robert"),
        replace(ANN, uuid="3", username="cid"),
        replace(ANN, uuid="4", username="new"),
        replace(ANN, uuid="5", username="newer"),
    ]
    assert as_before(fresh, before) == [
        replace(fresh[0], directory_name="ann"),
        replace(fresh[1], directory_name="bobby"),
        cid,
        *fresh[3:],
    ]
