# SPDX-License-Identifier: MIT
"""What events cover, and for how long that is believed: a bridge says so again and again, or polls go on as usual.

Pure. The bridge asks which types an offering needs and which modes they cover; beat asks which polls to leave out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from agent.config.model import Mode, Offering
from agent.core.events import ObjectType

# A sign is renewed three times in its life.
RENEW_S = 15.0
VALID_S = 50.0
# A bridge that starts with beat needs this long until its first sign.
PATIENCE_S = 90.0

ORDERS = (ObjectType.ORDER, ObjectType.KEY_ROTATION)
MEMBERSHIP = (
    ObjectType.USER_ROLE,
    ObjectType.RESOURCE,
    ObjectType.SERVICE_ACCOUNT,
    ObjectType.COURSE_ACCOUNT,
    ObjectType.OFFERING_USER,
    ObjectType.OFFERING_RESOURCES_SYNC,
)
# Without these a poll finds what no event tells. Early servers do not send offering users: names that arrive late.
COVERING: Mapping[Mode, frozenset[ObjectType]] = {
    Mode.ORDER_PROCESS: frozenset({ObjectType.ORDER}),
    Mode.MEMBERSHIP_SYNC: frozenset({ObjectType.USER_ROLE, ObjectType.RESOURCE, ObjectType.OFFERING_USER}),
}


def has_events(offering: Offering) -> bool:
    return offering.events.stomp_enabled or offering.events.mqtt_enabled


def modes_by_events(offering: Offering) -> frozenset[Mode]:
    """The modes of an offering that its configuration wants events for."""
    if not has_events(offering):
        return frozenset()
    wanted = {Mode.ORDER_PROCESS}
    if offering.events.membership_by_events:
        wanted.add(Mode.MEMBERSHIP_SYNC)
    return frozenset(mode for mode in wanted if offering.backend_of(mode) and mode not in offering.stopped)


def wanted_types(offering: Offering) -> tuple[ObjectType, ...]:
    """The types of messages that the offering's backends need; none without events."""
    modes = modes_by_events(offering)
    found: list[ObjectType] = []
    if Mode.ORDER_PROCESS in modes:
        found += ORDERS
    if Mode.MEMBERSHIP_SYNC in modes:
        found += MEMBERSHIP
    if has_events(offering) and offering.resource_import_enabled:
        found.append(ObjectType.IMPORTABLE_RESOURCES)
    if has_events(offering) and offering.periodic_limits_enabled:
        found.append(ObjectType.PERIODIC_LIMITS)
    return tuple(found)


def covered(offering: Offering, listened_to: Set[ObjectType]) -> frozenset[Mode]:
    """The modes whose polls are not needed while these types are listened to."""
    return frozenset(mode for mode in modes_by_events(offering) if COVERING[mode] <= listened_to)


@dataclass(slots=True)
class Polls:
    """Which polls of an offering and mode to start, for the life of a beat: with a live bridge one per
    `full_period_s`, without one all of them. Times are monotonic seconds.
    """

    full_period_s: float
    started_s: float
    _last_s: dict[tuple[str, Mode], float] = field(default_factory=dict)
    _silent: set[tuple[str, Mode]] = field(default_factory=set)

    def is_due(self, offering: Offering, mode: Mode, signs: Iterable[Mode], now_s: float) -> bool:
        """Whether this poll is to be started. The first one after a start always is."""
        key = (offering.uuid, mode)
        last_s = self._last_s.get(key)
        is_covered = mode in modes_by_events(offering) and mode in set(signs)
        return not is_covered or last_s is None or now_s - last_s >= self.full_period_s

    def note_started(self, offering: Offering, mode: Mode, now_s: float) -> None:
        self._last_s[offering.uuid, mode] = now_s

    def news(self, offering: Offering, mode: Mode, signs: Iterable[Mode], now_s: float) -> str:
        """What an operator should know, once: that no bridge serves the offering, or that one does again."""
        key = (offering.uuid, mode)
        if mode not in modes_by_events(offering):
            return ""
        if mode in set(signs):
            if key not in self._silent:
                return ""
            self._silent.discard(key)
            return "a bridge listens to its events again: the short polls stop"
        if key in self._silent or now_s - self.started_s < PATIENCE_S:
            return ""
        self._silent.add(key)
        return "no bridge listens to its events: it is polled as usual"
