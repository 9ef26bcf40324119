# SPDX-License-Identifier: MIT
"""The arguments of this process as others see them: a token that was typed is overwritten there, before anything else.

Linux shows the memory in which a process got its arguments (`ps`, /proc/PID/cmdline). Imports nothing that takes time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence

STAT = "/proc/self/stat"
ARGUMENTS = "/proc/self/cmdline"
# Fields of proc(5) behind the program's name, which may itself have spaces: arg_start and arg_end.
ARG_START, ARG_END = 45, 46
OPTION, SHORT = "--user-token", "-t"


def blank_typed(words: Sequence[str]) -> None:
    """Overwrite every token among these words of a command line; the words themselves stay as they are."""
    for token in typed(words):
        blank(token)


def typed(words: Sequence[str]) -> Iterator[str]:
    """Yield the values of the option for a token, in all ways to write it."""
    for number, word in enumerate(words):
        following = words[number + 1 : number + 2]
        if word in (OPTION, SHORT):
            yield from filter(None, following)
        elif word.startswith(f"{OPTION}="):
            yield from filter(None, [word.partition("=")[2]])
        elif word.startswith(SHORT) and len(word) > len(SHORT):
            yield word.removeprefix(SHORT)


def holds(word: str, token: str) -> bool:
    """Return whether a word is `TOKEN`, `--user-token=TOKEN` or `-tTOKEN`, and has not just the same letters in it."""
    return word == token or (word.startswith("-") and word.endswith((f"={token}", f"t{token}")))


def blank(token: str) -> bool:
    """Overwrite the token in this process's own arguments; return whether it is gone from there."""
    try:
        fields = _read(STAT).decode("utf-8", "replace").rpartition(")")[2].split()
        start, end = int(fields[ARG_START]), int(fields[ARG_END])
        words = _read(ARGUMENTS).split(b"\0")
        if not 0 < start < end or sum(len(word) + 1 for word in words) - 1 > end - start:
            return False
        place = start
        for word in words:
            if holds(os.fsdecode(word), token):
                length = len(os.fsencode(token))
                ctypes.memset(place + len(word) - length, ord("*"), length)
            place += len(word) + 1
        shown = _read(ARGUMENTS).split(b"\0")
    except (OSError, ValueError, IndexError):
        return False
    return not any(holds(os.fsdecode(word), token) for word in shown)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
