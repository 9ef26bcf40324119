# SPDX-License-Identifier: MIT
"""Who is logged in to the console, and what that person may do."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """VIEWER looks; OPERATOR acts, too."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    role: Role


class LoginRefused(Exception):
    """A login that is wrong: what the page says, under which name the journal has it, and what that adds."""

    def __init__(self, said: str, *, by: str = "an unknown name", why: str = "") -> None:
        super().__init__(said)
        self.by, self.why = by, why
