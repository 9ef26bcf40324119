# SPDX-License-Identifier: MIT
"""Names of accounts: made from Waldur's slugs, folded to lower case once, and never guessed twice alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class NameRules:
    """How the names of accounts are made from Waldur's slugs."""

    customer_prefix: str = ""
    project_prefix: str = ""
    allocation_prefix: str = ""
    max_length: int | None = None
    check_uniqueness: bool = False
    check_all_offerings: bool = False
    max_attempts: int = 50


def uuid_hex(text: str) -> str:
    """A uuid as Waldur writes it: 32 lower-case hex digits. Dashed or not going in; ValueError otherwise."""
    return UUID(text).hex


def fold(name: str) -> str:
    """The spelling clusters keep: SLURM stores accounts and users in lower case (22.05)."""
    return name.strip().lower()


def allocation_names(base: str, *, max_length: int | None, counted: bool, attempts: int) -> Iterator[str]:
    """Names to try for an allocation, best first: `base`, then `base-0`, `base-1` ... when `counted`.

    `max_length` cuts the base, never the counter. Cutting makes two slugs alike, so a cut base is counted too.
    """
    cut = fold(base)[:max_length] if max_length else fold(base)
    yield cut
    if not counted and cut == fold(base):
        return
    for number in range(attempts - 1):
        suffix = f"-{number}"
        room = max_length - len(suffix) if max_length else None
        if room is not None and room < 1:
            return
        yield cut[:room] + suffix
