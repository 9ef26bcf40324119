# SPDX-License-Identifier: MIT
"""Periodic settings: the share and the limits of an account that one of Waldur's usage policies computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

# A clock without a zone may be 14 hours ahead of ours.
AHEAD_AT_MOST = timedelta(days=1)


class LimitType(StrEnum):
    """What a limit counts, in SLURM's spelling: minutes of all jobs, minutes of each job, or what is held at once."""

    GRP_TRES_MINS = "GrpTRESMins"
    MAX_TRES_MINS = "MaxTRESMins"
    GRP_TRES = "GrpTRES"


class Granularity(StrEnum):
    """How long a policy's period is."""

    TOTAL = "total"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


@dataclass(frozen=True, slots=True)
class DesiredSettings:
    """What a policy asks for an account."""

    account: str
    # None: as it is.
    fairshare: int | None = None
    # By TRES, in SLURM's units.
    limits: Mapping[LimitType, Mapping[str, int]] = field(default_factory=dict)
    resets_usage: bool = False
    # The policy's period before the one that the message is about, as Waldur names it; empty where it does not.
    previous_period: str = ""

    @property
    def tres(self) -> frozenset[str]:
        """Return the names of all TRES that have a limit."""
        return frozenset(tres for limits in self.limits.values() for tres in limits)


@dataclass(frozen=True, slots=True)
class ObservedSettings:
    """What an account has of its own."""

    # None: the share of the account above.
    fairshare: int | None
    limits: Mapping[LimitType, Mapping[str, int]]


def is_to_come(at: datetime, now: datetime) -> bool:
    """Return whether a moment is so far ahead that a clock must be wrong. Both in UTC without a zone."""
    return at - now > AHEAD_AT_MOST
