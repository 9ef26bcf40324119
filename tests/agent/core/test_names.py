# SPDX-License-Identifier: MIT
"""Names of accounts: folded once, cut without losing the counter, and tried in a fixed order."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.account_names import fold, uuid_hex
from agent.plan.allocations import allocation_names

CASES: list[tuple[str, int | None, bool, int, list[str]]] = [
    ("a_first", None, False, 50, ["a_first"]),
    ("A_First ", None, False, 50, ["a_first"]),
    ("a_first", None, True, 4, ["a_first", "a_first-0", "a_first-1", "a_first-2"]),
    ("a_first", None, True, 1, ["a_first"]),
    ("a_first", 7, False, 50, ["a_first"]),
    ("a_first", 5, False, 3, ["a_fir", "a_f-0", "a_f-1"]),
    ("a_first", 5, True, 3, ["a_fir", "a_f-0", "a_f-1"]),
    ("a_first", 0, False, 3, ["a_first"]),
    ("ab", 3, True, 12, ["ab", *(f"a-{n}" for n in range(10))]),
    ("abc", 2, False, 5, ["ab"]),
]


@pytest.mark.parametrize(("base", "max_length", "counted", "attempts", "names"), CASES)
def test_names_to_try(
    base: str, max_length: int | None, counted: bool, attempts: int, names: list[str]
) -> None:
    assert list(allocation_names(base, max_length=max_length, counted=counted, attempts=attempts)) == names


@given(
    base=st.text(st.characters(categories=["Ll", "Lu", "Nd"], max_codepoint=127), min_size=1, max_size=40),
    max_length=st.none() | st.integers(1, 45),
    counted=st.booleans(),
    attempts=st.integers(1, 120),
)
def test_names_are_distinct_short_enough_folded_and_begin_with_the_base(
    base: str, max_length: int | None, counted: bool, attempts: int
) -> None:
    names = list(allocation_names(base, max_length=max_length, counted=counted, attempts=attempts))
    assert 1 <= len(names) <= attempts
    assert len(set(names)) == len(names)
    for name in names:
        assert len(name) <= (max_length or len(name))
        assert name == name.lower()
        assert re.sub(r"-\d+$", "", name)
        assert base.lower().startswith(re.sub(r"-\d+$", "", name))


@pytest.mark.parametrize(("name", "folded"), [(" Abc\n", "abc"), ("abc", "abc"), ("", ""), ("Ünï", "Ünï")])
def test_folding_is_done_once_and_for_all(name: str, folded: str) -> None:
    assert fold(name) == folded == fold(folded)


@given(name=st.text(max_size=8))
def test_no_other_letter_or_blank_becomes_a_name_of_ascii(name: str) -> None:
    """By Unicode the sign of Kelvin is a small k, and a no-break space is no part of a name."""
    assert fold(name).isascii() == name.isascii()
    assert fold("\u212a" + name) != fold("k" + name)
    assert fold(name + "\u00a0") != fold(name)


UUID = "e21a0f0030b447deb63bedf69db6742e"


@pytest.mark.parametrize(
    "text", [UUID, UUID.upper(), "e21a0f00-30b4-47de-b63b-edf69db6742e", f"{{{UUID}}}", f"urn:uuid:{UUID}"]
)
def test_a_uuid_in_any_spelling_is_32_digits(text: str) -> None:
    assert uuid_hex(text) == UUID


@pytest.mark.parametrize("text", ["", "x", UUID[:-1], f"{UUID}0", "../" + UUID])
def test_what_is_no_uuid_raises(text: str) -> None:
    with pytest.raises(ValueError, match="badly formed"):
        uuid_hex(text)
