# SPDX-License-Identifier: MIT
"""Texts that people wrote in Waldur (names of resources, projects, organizations) as words of a command. Commands are
argv lists, and quoted where ssh or a script joins them; this is the second belt, for a wrapper that does not quote.
"""

from __future__ import annotations

# What a shell gives a meaning. `|` and quotes part columns of what the programs print, too.
_SIGNS = frozenset("\"'`\\$&;|<>()[]{}*?~#!^")


def plain(text: str) -> str:
    """Return the text on one line, with a blank for signs of a shell and for what cannot be printed."""
    kept = (each if each.isprintable() and each not in _SIGNS else " " for each in text)
    return " ".join("".join(kept).split())
