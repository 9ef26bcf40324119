# SPDX-License-Identifier: MIT
"""JSON of others: read as json.loads reads it, unless it is too many values or too deep."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.bounded_json import DEPTH_AT_MOST, TooMuchJson, read_json, values_in

LEAVES = st.none() | st.booleans() | st.integers() | st.text('a,:[]{}"\\é')
DOCUMENTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('k,"\\'), inner, max_size=4)
)


def count(document: Any) -> int:
    if isinstance(document, dict):
        return 1 + len(document) + sum(map(count, document.values()))
    return 1 + sum(map(count, document)) if isinstance(document, list) else 1


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@given(DOCUMENTS)
def test_what_is_within_the_bounds_is_read_and_the_count_is_never_too_small(document: Any) -> None:
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False, indent=1)):
        assert read_json(text) == read_json(text.encode()) == document
        # The text itself is one value more than its signs; an empty list has a sign and no value.
        assert count(document) <= 1 + values_in(text, exact_above=0) <= 1 + values_in(text, exact_above=10**6)
        exact = values_in(text, exact_above=0)
        assert read_json(text, values_at_most=exact) == document
        if exact:
            with pytest.raises(TooMuchJson, match=f"it has {exact} values, and {exact - 1} are read at most"):
                read_json(text, values_at_most=exact - 1)


@pytest.mark.parametrize("text", ["[" + "{}," * 99 + "{}]", "{" + '"a":1,' * 60 + '"a":1}', "[" + "1," * 200])
def test_too_many_values_are_not_read(text: str) -> None:
    with pytest.raises(TooMuchJson, match="100 are read at most"):
        read_json(text, values_at_most=100)


def test_signs_within_a_text_are_no_values() -> None:
    document = {"description": 'a, b: [c], {d} and \\ "e, f"' * 100}
    assert read_json(json.dumps(document), values_at_most=3) == document


@pytest.mark.parametrize(
    "text", ["[" * 200_000, nested(200_000), '{"a":' * 200_000, nested(DEPTH_AT_MOST + 1)]
)
def test_what_is_too_deep_is_not_read(text: str) -> None:
    with pytest.raises(TooMuchJson, match=f"it is nested in more than {DEPTH_AT_MOST} levels"):
        read_json(text)


def test_what_is_too_deep_may_be_omitted() -> None:
    deep = json.loads(nested(900))
    text = json.dumps({"a": 1, "b": deep, "c": {"d": deep}})
    found = read_json(text, instead_of_deeper="too deep")
    assert found["a"] == 1
    assert json.dumps(found["b"]) == "[" * (DEPTH_AT_MOST - 1) + '"too deep"' + "]" * (DEPTH_AT_MOST - 1)
    with pytest.raises(TooMuchJson):
        read_json(nested(200_000), instead_of_deeper="too deep")


def test_the_deepest_that_is_read() -> None:
    text = '{"a": [' * (DEPTH_AT_MOST // 2) + '"[[[["' + "]}" * (DEPTH_AT_MOST // 2)
    assert json.dumps(read_json(text)) == text


@pytest.mark.parametrize("text", ["", "{", "nonsense", b"\xff\xfe", b"\x80"])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        read_json(text)
    assert not isinstance(caught.value, TooMuchJson)
