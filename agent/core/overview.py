# SPDX-License-Identifier: MIT
"""What passes over members saw of allocations and people: for pages that read neither Waldur nor the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SeenAllocation:
    """A resource with its account."""

    # Any of its names (`search_text`). The first field: rows are sorted by it as they are.
    search: str
    name: str
    account: str
    project: str = ""
    customer: str = ""
    # As Waldur says it, with what else closes it: `OK, paused`.
    state: str = ""
    # Waldur's, by component; the cluster's, in its units.
    limits: dict[str, str] = field(default_factory=dict)
    cluster_limits: dict[str, int] = field(default_factory=dict)
    # Who is in the account, by their names on the cluster; who should be and is not; who is and should not.
    members: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    surplus: tuple[str, ...] = ()
    # Why it is not in step, or nothing is planned for it; empty where all is well.
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SeenPerson:
    """A person's account at the offering. Names are empty where Waldur does not show them to the agent."""

    # As of an allocation.
    search: str
    # What Waldur finds the person's account by.
    uuid: str
    # On the cluster, empty until it is made.
    username: str
    name: str = ""
    login: str = ""
    state: str = ""
    is_restricted: bool = False


def search_text(*names: str) -> str:
    """Return names as a search finds them: each between blanks, in lower case."""
    return f" {' '.join(name.casefold() for name in names if name)} "


@dataclass(frozen=True, slots=True)
class Look:
    """What a worker found out for a page that may ask neither Waldur nor the cluster."""

    # What it comes to, in a sentence.
    verdict: str
    is_fine: bool
    # Step by step: what is looked at, what it is, and what is wrong with it, empty where nothing is.
    steps: tuple[tuple[str, str, str], ...] = ()
    # What a pass would do now.
    coming: tuple[str, ...] = ()
    # How many more of these there are.
    more: int = 0
