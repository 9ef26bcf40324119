# SPDX-License-Identifier: MIT
"""Output of commands before it is parsed: whole lines or no answer; messages on one line. Readers and writers call
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent.core.errors import ParseError

# Of a whole number: 2^64 has 20. Python itself refuses to read one of more than 4300.
DIGITS_AT_MOST = 20


def lines(command: str, stdout: str) -> list[str]:
    """Return the lines of an answer. Raises ParseError where the last one is cut."""
    if stdout and not stdout.endswith("\n"):
        raise ParseError(command, stdout.rsplit("\n", 1)[-1], "the last line is cut")
    return [line for line in stdout.split("\n") if line.strip()]


def is_whole(text: str) -> bool:
    """Return whether it is a whole number that a 64-bit counter can have had: `int` reads more than that, and `²` is a
    digit that it does not read.
    """
    return text.isdecimal() and text.isascii() and len(text) <= DIGITS_AT_MOST


def without(text: str, values: Iterable[str]) -> str:
    """Return what a command said without these values, whole words in any case: an account may be called after an
    error, or a description quote one.
    """
    longest_first = sorted({value for value in values if value.strip()}, key=len, reverse=True)
    if not longest_first:
        return text
    pattern = "|".join(map(re.escape, longest_first))
    return re.sub(rf"(?<![\w.-])(?:{pattern})(?![\w-])", "...", text, flags=re.IGNORECASE)


def one_line(text: str) -> str:
    return " / ".join(line.strip() for line in text.splitlines() if line.strip())
