# SPDX-License-Identifier: MIT
"""Decide which polls events make unnecessary, and for how long a bridge's heartbeat is valid.

Pure. The bridge asks which modes the types cover that it listens to; beat asks which polls to skip.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from agent.config.model import Mode, Offering
from agent.core.events import ObjectType

# Three heartbeats come while one is valid.
HEARTBEAT_S = 15.0
HEARTBEAT_VALID_S = 50.0
# A bridge that starts with beat needs this long until its first heartbeat.
START_GRACE_S = 90.0
# Of a full period: a poll that comes a moment too soon for it counts, else the next one would come much too late.
EARLY = 0.98

# Without these a poll finds what no event reports. Early servers do not send offering users: names that arrive late.
COVERING: Mapping[Mode, frozenset[ObjectType]] = {
    Mode.ORDER_PROCESS: frozenset({ObjectType.ORDER}),
    Mode.MEMBERSHIP_SYNC: frozenset({ObjectType.USER_ROLE, ObjectType.RESOURCE, ObjectType.OFFERING_USER}),
}


def has_events(offering: Offering) -> bool:
    """Return whether the offering's configuration switches events on."""
    return offering.events.stomp_enabled or offering.events.mqtt_enabled


def modes_by_events(offering: Offering) -> frozenset[Mode]:
    """Return the modes of an offering for which its configuration wants events."""
    if not has_events(offering):
        return frozenset()
    wanted = {Mode.ORDER_PROCESS}
    if offering.events.membership_by_events:
        wanted.add(Mode.MEMBERSHIP_SYNC)
    return frozenset(mode for mode in wanted if offering.backend_of(mode) and mode not in offering.stopped)


def covered(offering: Offering, listened_to: Set[ObjectType]) -> frozenset[Mode]:
    """Return the modes whose polls are not needed while these types are listened to."""
    return frozenset(mode for mode in modes_by_events(offering) if COVERING[mode] <= listened_to)


@dataclass(slots=True)
class Polls:
    """Decides for the life of a beat which polls to start, by name. Times are monotonic seconds."""

    # Of what events cover, one poll is started in this time; all others always.
    full_period_s: float
    started_s: float
    _last_s: dict[str, float] = field(default_factory=dict)
    _polled: set[str] = field(default_factory=set)

    def is_due(self, poll: str, is_covered: bool, now_s: float) -> bool:
        """Return whether this poll is to be started. The first one after a start always is."""
        last_s = self._last_s.get(poll)
        return not is_covered or last_s is None or now_s - last_s >= EARLY * self.full_period_s

    def note_started(self, poll: str, now_s: float) -> None:
        self._last_s[poll] = now_s

    def news(self, poll: str, is_covered: bool, now_s: float) -> str:
        """Return the line for the log when events stop or begin to cover a poll; empty when nothing has changed."""
        if is_covered:
            was_polled = poll in self._polled
            self._polled.discard(poll)
            return "a bridge listens to its events again: the short polls stop" if was_polled else ""
        if poll in self._polled or now_s - self.started_s < START_GRACE_S:
            return ""
        self._polled.add(poll)
        return "no bridge listens to its events: it is polled as usual"
