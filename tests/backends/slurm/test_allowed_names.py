# SPDX-License-Identifier: MIT
"""No name that sacctmgr reads as anything else than a name can reach a command."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.errors import PlanRefused
from backends.slurm.allowed_names import checked, free_text, is_usable

KINDS = ["account", "user", "QoS", "partition", "TRES"]
EVERYWHERE_BAD: dict[str, str] = {
    "empty": "",
    "blank": " ",
    "a list": "a,b",
    "an option": "a=b",
    "an option of the program": "-x",
    "a long option": "--help",
    "a range": "a[1-2]",
    "half a range": "a[1",
    "a quote": "a'b",
    "a double quote": 'a"b',
    "a back-quote": "a`b",
    "a column": "a|b",
    "a line": "a\nb",
    "a line at the end": "a\n",
    "a return": "a\r",
    "a tab": "a\tb",
    "a zero byte": "a\0b",
    "a blank inside": "a b",
    "a shell": "a;b",
    "a variable": "$a",
    "a star": "a*",
    "a path": "..\\a",
    "plus": "+a",
    "minus": "-1",
    "a bracket": "(a)",
    "not ASCII": "ünï",
    "a digit of another script": "a\u0661",
    "too long": "a" * 256,
    **{
        f"the word {word}": word
        for word in ("set", "where", "and", "format", "withassoc", "withdeleted", "SET", "Where")
    },
}


@pytest.mark.parametrize("what", EVERYWHERE_BAD)
@pytest.mark.parametrize("kind", KINDS)
def test_a_dangerous_name_is_refused_whatever_it_names(kind: str, what: str) -> None:
    name = EVERYWHERE_BAD[what]
    assert not is_usable(kind, name)
    with pytest.raises(PlanRefused) as refused:
        checked(kind, name)
    assert str(refused.value).startswith(f"{kind} name {name!r} cannot be used in SLURM: ")
    assert "\n" not in str(refused.value)


GOOD = {
    "account": ["a", "a_one", "a-one", "a.one", "0", "123", "_x", "a" * 255, "settings", "x-where"],
    "user": ["ann", "x.y@z-0_1", "007", "ann.", "_"],
    "QoS": ["normal", "Fast", "a_one", "q-1"],
    "partition": ["main", "GPU", "p.1"],
    "TRES": ["cpu", "mem", "gres/gpu", "gres/gpu:a100", "fs/disk", "license/matlab"],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in GOOD.items() for name in names])
def test_an_ordinary_name_is_taken_as_it_is(kind: str, name: str) -> None:
    assert checked(kind, name) == name


BAD_FOR: list[tuple[str, str]] = [
    ("account", "A_One"),
    ("user", "Ann"),
    ("account", ".a"),
    ("account", "a@b"),
    ("user", "@a"),
    ("user", ".a"),
    ("account", "a/b"),
    ("user", "a:b"),
    ("partition", "a/b"),
]


@pytest.mark.parametrize(("kind", "name"), BAD_FOR)
def test_what_slurm_would_fold_or_cannot_keep_is_refused(kind: str, name: str) -> None:
    assert not is_usable(kind, name)


@given(kind=st.sampled_from(KINDS), name=st.text(max_size=300))
def test_what_passes_has_no_meaning_in_sacctmgrs_grammar(kind: str, name: str) -> None:
    if is_usable(kind, name):
        assert name.isascii()
        assert 0 < len(name) < 256
        assert not set(name) & set(",=[]'\"`|;$*() \t\r\n\0\\")
        assert not name.startswith(("-", "+", "."))


TEXTS = [
    ("My project", "my project", "My project"),
    ("", "a_one", "a_one"),
    ("  \n ", "a_one", "a_one"),
    ("two\nlines\r\nand more", "x", "two lines and more"),
    ('a "quoted" | piped', "x", "a quoted piped"),
    ("tab\tand\0zero\x1b[31m", "x", "tab and zero 31m"),
    ("ünï ; $(id) `x` 'y'", "x", "ünï id x y"),
    ("=a,b[1-2]", "x", "=a,b 1-2"),
    ("a\u2028b\u0085c\u2029 d\u202e\ud800", "x", "a b c d"),
]


@pytest.mark.parametrize(("text", "fallback", "clean"), TEXTS)
def test_a_text_for_people_stays_on_one_line_and_in_one_column(text: str, fallback: str, clean: str) -> None:
    assert free_text(text, fallback) == clean


@given(text=st.text())
def test_any_text_is_clean_afterwards_and_never_empty(text: str) -> None:
    clean = free_text(text, "fallback")
    assert clean
    assert not set(clean) & set("\"'`\\$&;|<>()[]{}*?~#!^\n\r\t\0\x1b\u2028")
    assert clean == "fallback" or shlex.split(clean) == clean.split(" ")
    assert free_text(clean, "fallback") == clean
