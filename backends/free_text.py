# SPDX-License-Identifier: MIT
"""Texts that people wrote in Waldur (names of resources, projects, organizations) as words of a command. Commands are
argv lists, and quoted where ssh or a script joins them; this protects where a wrapper does not quote.

They are cut: a resource may have a name of any length, and Linux takes no word of 128 KiB in a command.
"""

from __future__ import annotations

from collections.abc import Iterable

# What a shell gives a meaning. `|` and quotes part columns of what the programs print, too.
_SIGNS = frozenset("\"'`\\$&;|<>()[]{}*?~#!^")


# What slurmdbd keeps of a description or organization (a tinytext, 22.05).
BYTES_AT_MOST = 255


# A word of a command has 128 KiB at most (Linux, MAX_ARG_STRLEN).
WORD_AT_MOST = 100_000


def only_these(option: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the word that has a read show these alone; none where it would be too long: then it shows all."""
    word = f"{option}={','.join(sorted(names))}"
    return (word,) if len(word.encode("utf-8", "replace")) <= WORD_AT_MOST else ()


def plain(text: str) -> str:
    """Return the text on one line, with a blank for signs of a shell and what cannot be printed; cut where long."""
    kept = (each if each.isprintable() and each not in _SIGNS else " " for each in text)
    line = " ".join("".join(kept).split())
    return line.encode("utf-8", "replace")[:BYTES_AT_MOST].decode("utf-8", "ignore").rstrip()
