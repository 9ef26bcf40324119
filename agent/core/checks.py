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
    """One finding."""

    name: str
    state: CheckState
    found: str
    # What to do, empty where nothing is wrong.
    remedy: str = ""
    # The offering that it is about, empty for the host.
    about: str = ""

    def as_json(self) -> dict[str, str]:
        return {
            "check": self.name,
            "offering": self.about,
            "state": self.state,
            "found": self.found,
            "remedy": self.remedy,
        }


def ok(name: str, found: str, about: str = "") -> Check:
    return Check(name, CheckState.OK, found, about=about)


def warning(name: str, found: str, remedy: str, about: str = "") -> Check:
    return Check(name, CheckState.WARNING, found, remedy, about)


def problem(name: str, found: str, remedy: str, about: str = "") -> Check:
    return Check(name, CheckState.PROBLEM, found, remedy, about)


def unknown(name: str, found: str) -> Check:
    return Check(name, CheckState.UNKNOWN, found)
