# SPDX-License-Identifier: MIT
"""Which names may reach a MAM command.

Names go as one word of an argv list, so blanks, quotes and letters of any script survive. What cannot survive is
what MAM's lists are made of (`|` between columns, `,` between members, `=` in constraints) and what changes the
meaning of a name at its beginning: `-` and `+` (state of a member), `^` (administrator), `!` (all others).
"""

from __future__ import annotations

import re

from agent.core.errors import PlanRefused
from backends.free_text import plain

MAX_NAME_LENGTH = 255

_IN_LISTS = re.compile(r"[|,=*%?]")
_FIRST = re.compile(r"[-+^!]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Words with a meaning of their own where MAM expects a name.
RESERVED = frozenset({"any", "none", "default", "members"})


def checked(kind: str, name: str) -> str:
    """Return the name, if a command may carry it. Raises PlanRefused with what is wrong."""
    if problem := _problem(name):
        raise PlanRefused(f"{kind} name {name[: MAX_NAME_LENGTH + 1]!r} cannot be used in MOAB: {problem}")
    return name


def is_usable(name: str) -> bool:
    return not _problem(name)


def _problem(name: str) -> str:
    if not name.strip():
        return "it is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"it has {len(name)} characters, {MAX_NAME_LENGTH} are possible"
    if _CONTROL.search(name):
        return "it has a line break or another control character"
    if found := _IN_LISTS.search(name):
        return f"MAM's lists have {found[0]!r} between names, or as a pattern"
    if _FIRST.match(name):
        return f"{name[0]!r} at the beginning says something else to MAM"
    if name.lower() in RESERVED:
        return "it is a word of MAM's own"
    return ""


def free_text(text: str, fallback: str) -> str:
    """Return a description or organization: words only, and no option of the program."""
    return plain(text).lstrip("-+ ") or fallback
