# SPDX-License-Identifier: MIT
"""What a check of a running site found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckState(StrEnum):
    """UNKNOWN: it could not be looked at, for a reason that is no fault of the site."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `about`: the offering that it is about, empty for the host. `remedy`: what to do, empty where
    nothing is wrong.
    """

    name: str
    state: CheckState
    found: str
    remedy: str = ""
    about: str = ""

    def as_json(self) -> dict[str, str]:
        return {
            "check": self.name,
            "offering": self.about,
            "state": self.state,
            "found": self.found,
            "remedy": self.remedy,
        }


def ok(name: str, found: str) -> Check:
    return Check(name, CheckState.OK, found)


def warning(name: str, found: str, remedy: str) -> Check:
    return Check(name, CheckState.WARNING, found, remedy)


def problem(name: str, found: str, remedy: str) -> Check:
    return Check(name, CheckState.PROBLEM, found, remedy)


def unknown(name: str, found: str) -> Check:
    return Check(name, CheckState.UNKNOWN, found)
