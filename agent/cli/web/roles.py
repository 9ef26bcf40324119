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
