# SPDX-License-Identifier: MIT
"""Names of accounts and identifiers in one spelling, and the rules by which names are made of Waldur's slugs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from uuid import UUID

_HEX = re.compile(r"[0-9a-f]{32}")
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


@dataclass(frozen=True, slots=True)
class NameRules:
    """How the names of accounts are made from Waldur's slugs: prefixes, length, and how many names to try."""

    customer_prefix: str = ""
    project_prefix: str = ""
    allocation_prefix: str = ""
    max_length: int | None = None
    check_uniqueness: bool = False
    check_all_offerings: bool = False
    max_attempts: int = 50


def uuid_hex(text: str) -> str:
    """Return a uuid as Waldur writes it: 32 lower-case hex digits. Takes dashes; ValueError for what is no uuid."""
    return text if _HEX.fullmatch(text) else UUID(text).hex


def fold(name: str) -> str:
    """Return the spelling that clusters keep: SLURM stores accounts and users in lower case (22.05).

    Letters and blanks of ASCII only: by Unicode the sign of Kelvin is a k, and another's name would be theirs.
    """
    bare = name.strip(" \t\r\n")
    folded = bare.lower() if bare.isascii() else bare.translate(_LOWER)
    # The same object where it is the same text: passes hold 100,000 names.
    return name if folded == name else folded
