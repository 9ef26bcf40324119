# SPDX-License-Identifier: MIT
"""Texts for a terminal. Names of resources, words of servers and output of commands go through here before they are
printed or logged as plain text: nothing in them steers the terminal or begins a line of its own.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable

# They join letters of some scripts, and change nothing else.
_JOINERS = "\u200c\u200d"


def printable(text: str) -> str:
    """Return the text on one line: blanks of any kind as a blank, other unprintable characters (escapes, marks that
    turn the direction of writing, halves of characters) as `\\x1b`.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in _JOINERS else " " if each.isspace() else ascii(each)[1:-1]
        for each in text
    )


def shortlist(texts: Iterable[str], most: int, separator: str = ", ") -> str:
    """Return the first of these texts, and how many more there are."""
    listed = list(texts)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f"{separator.join(listed[:most])}{more}"


def printable_json(document: str) -> str:
    """Return a JSON document with unprintable characters as JSON writes them: `\\u009b`. It means the same."""
    if document.isprintable():
        return document
    return "".join(
        each if each.isprintable() or each in _JOINERS else json.dumps(each)[1:-1] for each in document
    )


def ended_as(code: int | None) -> str:
    """Return how a program ended, in words, by its return code. Real-time signals have no names."""
    if code is None or code >= 0:
        return f"ended with {code}"
    names = {each.value: each.name for each in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"
