# SPDX-License-Identifier: MIT
"""Which service takes care of which mode of an offering, as in the reference: pure.

An offering with events (`stomp_enabled`, `mqtt_enabled`) belongs to event_process and is left out by the services that
poll, so that order_process, membership_sync and report make a whole, or event_process and report.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from agent.config.model import Mode, Offering, Settings
from agent.run.event_coverage import modes_by_events


class Service(StrEnum):
    """The modes of `waldur_site_agent`, each a process of its own."""

    ORDER_PROCESS = "order_process"
    REPORT = "report"
    MEMBERSHIP_SYNC = "membership_sync"
    EVENT_PROCESS = "event_process"


def modes_of(offering: Offering, service: Service) -> frozenset[Mode]:
    """Return the modes of an offering that a service takes care of; none where another one does, or nobody."""
    by_events = modes_by_events(offering)
    if service is Service.EVENT_PROCESS:
        return by_events
    mode = Mode(service)
    is_served = offering.backend_of(mode) and mode not in offering.stopped and mode not in by_events
    return frozenset({mode}) if is_served else frozenset()


def needed(settings: Settings) -> Mapping[Service, tuple[str, ...]]:
    """Return the services that this configuration needs, each with the names of its offerings."""
    found = {
        service: tuple(offering.name for offering in settings.offerings if modes_of(offering, service))
        for service in Service
    }
    return {service: names for service, names in found.items() if names}
