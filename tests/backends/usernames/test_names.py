# SPDX-License-Identifier: MIT
"""Usernames made of names: formats, folding, collisions, and names that are not allowed."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.errors import BackendError
from backends.slurm.allowed_names import RESERVED
from backends.usernames.candidates import (
    FORMATS,
    MAX_LENGTH,
    NEVER,
    NameFormat,
    candidates,
    group_problem,
    pattern_of,
    posix_problem,
)
from backends.usernames.spelling import plain
from tests.backends.usernames.conftest import person

SPELLED = {
    "Søren": "soren",
    "Groß": "gross",
    "Łukasz": "lukasz",
    "Jürgen": "jurgen",
    "Þór": "thor",
    "Ægisson": "aegisson",
    "İbrahim": "ibrahim",
    "Çelik": "celik",
    "Żółć": "zolc",
    "Щукин": "shchukin",
    "Андрій": "andrii",
    "Γιώργος": "giorgos",
    "Nguyễn": "nguyen",
    "O'Neill": "o'neill",
    "Ĳsbrand": "ijsbrand",
    "Қайрат": "qairat",
    "Юлия": "iuliia",
    "Ђорђе": "dorde",
    "李": "",
    "محمد": "",
}


@pytest.mark.parametrize("name", SPELLED)
def test_names_of_people_in_plain_letters(name: str) -> None:
    assert plain(name) == SPELLED[name]


FIRST_NAMES = {
    "first_initial_lastname": "jsmith",
    "first_letter_full_lastname": "j.smith",
    "firstname_dot_lastname": "john.smith",
    "firstname_lastname": "johnsmith",
    "waldur_username": "login1",
    "{last}_{first:.3}": "smith_joh",
    "{last:.2}{first:.2}": "smjo",
    "{email}": "mail",
}


@pytest.mark.parametrize("word", FIRST_NAMES)
def test_a_format_says_how_names_look(word: str) -> None:
    user = person(email="Mail@example.org")
    assert next(candidates(user, NameFormat(pattern_of(word)))) == FIRST_NAMES[word]


def test_every_format_is_tried() -> None:
    assert set(FORMATS) <= set(FIRST_NAMES)


@pytest.mark.parametrize(
    "word",
    ["", "x", "{x}", "{}", "{0}", "{first", "{first!r}", "{first:>5}", "{first:.0}", "A{first}", "{first} {last}",
     "{first.__class__}", "{first[0]}", "../{first}", "{first},"],
)  # fmt: skip
def test_what_is_no_format_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        pattern_of(word)


def test_collisions_take_more_of_the_first_name_where_a_dot_follows_it_then_numbers() -> None:
    names = list(islice(candidates(person(), NameFormat(FORMATS["first_letter_full_lastname"])), 6))
    assert names == ["j.smith", "jo.smith", "joh.smith", "john.smith", "j.smith2", "j.smith3"]
    names = list(candidates(person(), NameFormat(FORMATS["first_initial_lastname"], last_counter=4)))
    assert names == ["jsmith", "jsmith2", "jsmith3", "jsmith4"]


def test_a_person_without_a_usable_name_is_named_after_the_login() -> None:
    wanted = NameFormat(FORMATS["first_initial_lastname"])
    assert next(candidates(person(first="李", last="小龙", login="42.Bruce@x.org"), wanted)) == "brucex.org"
    assert next(candidates(person(first="", last="Prince", login="prince"), wanted)) == "prince"
    with pytest.raises(BackendError, match="no username can be made"):
        next(candidates(person(first="李", last="小龙", login="007"), wanted))


@given(
    first=st.text(max_size=40),
    last=st.text(max_size=40),
    login=st.text(max_size=40),
    word=st.sampled_from(list(FORMATS)),
    longest=st.integers(4, MAX_LENGTH),
)
def test_whatever_people_are_called_their_usernames_can_be_used(
    first: str, last: str, login: str, word: str, longest: int
) -> None:
    user = person(first=first, last=last, login=login)
    try:
        tried = list(islice(candidates(user, NameFormat(FORMATS[word], longest)), 1200))
    except BackendError:
        return
    assert len(set(tried)) >= 900  # three digits behind one letter, at least
    for name in tried:
        assert len(name) <= longest
        assert re.fullmatch(r"[a-z_][a-z0-9_.-]*", name)
        assert not posix_problem(name) or name in NEVER


@pytest.mark.parametrize(
    "name",
    [
        "",
        "root",
        "a,b",
        "a b",
        "Capital",
        "1st",
        "-x",
        ".x",
        "a=b",
        "x" * 33,
        "a\n",
        "a/b",
        "ø",
        "set",
        "sudo",
        "*",
    ],
)
def test_names_that_no_person_can_have(name: str) -> None:
    assert posix_problem(name)


@pytest.mark.parametrize("name", ["a", "_x", "john.smith", "j-s_2", "x" * 32])
def test_names_that_people_can_have(name: str) -> None:
    assert posix_problem(name) == ""


def test_words_of_sacctmgr_are_no_names() -> None:
    assert RESERVED <= NEVER


def test_names_of_groups() -> None:
    assert [group_problem(name) for name in ("hpc_1", "1abc", "x" * 40)] == ["", "", ""]
    assert all(group_problem(name) for name in ("sudo", "a b", "", "-x", "A", "a,b"))
