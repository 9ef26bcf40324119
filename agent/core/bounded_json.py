# SPDX-License-Identifier: MIT
"""Reads JSON that others wrote, within bounds: all readers of answers, messages and files ask here.

A text of few bytes can be many objects (`[{},{},...]`: 3 bytes for 72 of memory, and packed answers are a thousandth of
that), or so deep that whatever walks it ends in a RecursionError. Neither is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

# Waldur's answers and messages, slurmrestd's and the queue's have ten levels at most.
DEPTH_AT_MOST = 64
TOO_DEEP = f"it is nested in more than {DEPTH_AT_MOST} levels"
# A page of 300 resources with all their fields has 92,000.
VALUES_AT_MOST = 1_000_000

# Each value but the first stands behind one of these; the keys of objects are values, too.
_SIGNS = "[{:,"
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class TooMuchJson(ValueError):
    """A text that is not read: it has more values than its reader takes, or is nested too deeply."""


def read_json(  # noqa: PLR0913  those of json.loads
    text: str | bytes,
    *,
    values_at_most: int | None = VALUES_AT_MOST,
    instead_of_deeper: str = "",
    parse_int: Callable[[str], Any] | None = None,
    parse_float: Callable[[str], Any] | None = None,
    parse_constant: Callable[[str], Any] | None = None,
    object_hook: Callable[[dict[Any, Any]], Any] | None = None,
) -> Any:
    """Return the document of a JSON text; as json.loads, bytes in UTF-8, -16 or -32 too. Raises ValueError where there
    is none, TooMuchJson where it is too large or too deep. `values_at_most` is None where the caller has counted them.
    `instead_of_deeper`: what stands for lists and objects that are too deep, so that the rest can be read.
    """
    if isinstance(text, bytes | bytearray):
        text = bytes(text).decode(json.detect_encoding(text))
    if values_at_most is not None:
        count = values_in(text, exact_above=values_at_most)
        if count > values_at_most:
            raise TooMuchJson(f"it has {count} values, and {values_at_most} are read at most")
    try:
        document = json.loads(
            text,
            parse_int=parse_int,
            parse_float=parse_float,
            parse_constant=parse_constant,
            object_hook=object_hook,
        )
    except RecursionError:
        raise TooMuchJson(TOO_DEEP) from None
    # Fewer brackets cannot be deeper.
    if text.count("[") + text.count("{") > DEPTH_AT_MOST:
        for outer in _deepest(document):
            for place, inner in outer.items() if isinstance(outer, dict) else enumerate(outer):
                if isinstance(inner, dict | list):
                    if not instead_of_deeper:
                        raise TooMuchJson(TOO_DEEP)
                    outer[place] = instead_of_deeper
    return document


def values_in(text: str | bytes | bytearray, *, exact_above: int) -> int:
    """Return how many values, and keys, a JSON text has at most, without reading it: a comma within a text counts as
    one, unless there are more than `exact_above`, when they are distinguished.
    """
    count = sum(map(text.count, _SIGNS)) if isinstance(text, str) else sum(map(text.count, _SIGNS.encode()))
    if count <= exact_above:
        return count
    if not isinstance(text, str):
        text = bytes(text).decode(json.detect_encoding(text), "replace")
    return sum(map(_STRING.sub("", text).count, _SIGNS))


def _deepest(document: Any) -> list[Any]:
    """Return the lists and objects on the deepest level that may be; found by levels, not by recursion."""
    level = [document] if isinstance(document, list | dict) else []
    for _ in range(DEPTH_AT_MOST - 1):
        if not level:
            break
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
    return level
