# SPDX-License-Identifier: MIT
"""Which names may reach a SLURM command. Everything that builds argv lists asks here.

sacctmgr has a grammar of its own: a comma makes a list, `=` an option, `[1-3]` three names, `set` and
`where` change the meaning of the whole line, a leading dash is an option of the program (22.05).
"""

from __future__ import annotations

import re

from agent.core.errors import PlanRefused
from backends.free_text import plain

# The account column of slurmdbd is a tinytext: 255 bytes.
MAX_NAME_LENGTH = 255
RESERVED = frozenset({"set", "where", "and", "withassoc", "withassocs", "withdeleted", "withcoord", "format"})

_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*")
_USER = re.compile(r"[a-z0-9_][a-z0-9_.@-]*")
_PARTITION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TRES = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_/:.-]*")
_PATTERNS = {"account": _NAME, "user": _USER, "QoS": _PARTITION, "partition": _PARTITION, "TRES": _TRES}


def checked(kind: str, name: str) -> str:
    """Return the name if a command may carry it. Raises PlanRefused with what is wrong and what is allowed."""
    problem = _problem(kind, name)
    if problem:
        raise PlanRefused(f"{kind} name {name[: MAX_NAME_LENGTH + 1]!r} cannot be used in SLURM: {problem}")
    return name


def is_usable(kind: str, name: str) -> bool:
    """Return whether a command may carry the name."""
    return not _problem(kind, name)


def _problem(kind: str, name: str) -> str:
    if not name:
        return "it is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"it has {len(name)} characters, at most {MAX_NAME_LENGTH} are possible"
    if name.lower() in RESERVED:
        return "it is a keyword of sacctmgr"
    if not _PATTERNS[kind].fullmatch(name):
        return "use letters, digits, '_', '.' and '-', and neither '-' nor '.' at the beginning"
    return ""


def free_text(text: str, fallback: str) -> str:
    """Return a description or organization: words only, so that it neither splits a record nor means a command.
    In a load a quote would become a back-quote, and `#` end the text with an error (22.05).
    """
    return plain(text) or fallback
