# SPDX-License-Identifier: MIT
"""What modes of a pass leave for the modes after them (`Pass.leave`, `Pass.result`): they are strangers to each other,
and know these values. In a pass that does not apply they are as they would be if all goes well that is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.core.model import OfferingFacts, OfferingUser, Snapshot
from agent.plan.departures import Departure
from agent.plan.groups import DesiredGroups


@dataclass(frozen=True)
class NamedPeople:
    """The offering's users with the names that they have now. `unknown`: why nobody knows the names that a directory
    which follows Waldur has; empty where that is known.
    """

    users: Sequence[OfferingUser]
    unknown: str = ""


@dataclass(frozen=True)
class AccountsInStep:
    """The accounts that a pass has made, ended or found in step, with their members. `users`: who is to have a home.
    `is_whole`: these are all of the offering.
    """

    desired: DesiredGroups
    users: frozenset[str]
    is_whole: bool = False


@dataclass(frozen=True)
class PeopleLeaving:
    """People whose deletion Waldur wants, with the accounts that they are still in; `seen`: the cluster as it was read
    last.
    """

    departures: Sequence[Departure]
    offering: OfferingFacts
    seen: Snapshot
