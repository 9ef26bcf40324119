# SPDX-License-Identifier: MIT
"""What modes of a pass leave for the modes after them (`Pass.leave`, `Pass.result`). Modes do not import each
other, but these values. In a pass that does not apply they are as they would be if all goes well that is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.core.model import OfferingFacts, OfferingUser, Snapshot
from agent.plan.departures import Departure
from agent.plan.groups import DesiredGroups


@dataclass(frozen=True)
class NamedPeople:
    """The offering's users with the names that they have now."""

    users: Sequence[OfferingUser]
    # Why the names of a directory which follows Waldur are unknown; empty where they are known.
    unknown: str = ""


@dataclass(frozen=True)
class AccountsInStep:
    """The accounts that a pass has made, ended or found in step, with their members."""

    desired: DesiredGroups
    # Who is to have a home.
    users: frozenset[str]
    # These are all of the offering.
    is_whole: bool = False


@dataclass(frozen=True)
class PeopleLeaving:
    """People whose deletion Waldur wants, with the accounts that they are still in."""

    departures: Sequence[Departure]
    offering: OfferingFacts
    # The cluster as it was read last.
    seen: Snapshot
