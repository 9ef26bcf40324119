# SPDX-License-Identifier: MIT
"""Which service takes care of which mode of an offering, as in the reference, and which go together: pure.

An offering with events (`stomp_enabled`, `mqtt_enabled`) belongs to event_process and is skipped by the services that
poll, so that order_process, membership_sync and report make a whole, or event_process and report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

from agent.config.model import Mode, Offering, Settings
from agent.core.events import ObjectType
from agent.core.modes import Service
from agent.host import running as agents
from agent.host.running import Agent
from agent.run.service.event_coverage import has_events, modes_by_events
from backends.usernames import registry

ORDERS = (ObjectType.ORDER, ObjectType.KEY_ROTATION)
MEMBERSHIP = (
    ObjectType.USER_ROLE,
    ObjectType.RESOURCE,
    ObjectType.SERVICE_ACCOUNT,
    ObjectType.COURSE_ACCOUNT,
    ObjectType.OFFERING_USER,
    ObjectType.OFFERING_RESOURCES_SYNC,
)


def modes_of(offering: Offering, service: Service) -> frozenset[Mode]:
    """Return the modes of an offering that a service takes care of; none where another one does, or no service."""
    by_events = modes_by_events(offering)
    if service is Service.EVENT_PROCESS:
        return by_events
    mode = Mode(service)
    is_served = offering.backend_of(mode) and mode not in offering.stopped and mode not in by_events
    return frozenset({mode}) if is_served else frozenset()


def wanted_types(offering: Offering) -> tuple[ObjectType, ...]:
    """Return the types of messages that the offering's backends need; none without events."""
    modes = modes_by_events(offering)
    found: list[ObjectType] = []
    if Mode.ORDER_PROCESS in modes:
        found += ORDERS
    if Mode.MEMBERSHIP_SYNC in modes:
        found += MEMBERSHIP
        if registry.has_provider_groups(offering):
            found.append(ObjectType.PROJECT_GROUP)
    if has_events(offering) and offering.resource_import_enabled:
        found.append(ObjectType.IMPORTABLE_RESOURCES)
    sets_limits = offering.periodic_limits_enabled and offering.backend_of(Mode.ORDER_PROCESS)
    if has_events(offering) and sets_limits:
        found.append(ObjectType.PERIODIC_LIMITS)
    return tuple(found)


def needed(settings: Settings) -> Mapping[Service, tuple[str, ...]]:
    """Return the services that this configuration needs, each with the names of its offerings."""
    found = {
        service: tuple(offering.name for offering in settings.offerings if modes_of(offering, service))
        for service in Service
    }
    return {service: names for service, names in found.items() if names}


def clashes(settings: Settings, running: Sequence[Agent]) -> tuple[str, ...]:
    """Return a sentence for each thing that is wrong with the agents of this host that have this configuration: work
    that two of them do, and work that none does. Nothing where none runs.
    """
    here = agents.of_configuration(settings.source, running)
    foreign = [
        f"process {agent.pid} (`waldur_site_agent -m {agent.role}`) belongs to another installation: two agents work "
        "on the same offerings. Stop and disable its unit"
        for agent in here
        if not agent.is_ours
    ]
    served = Counter(agent.role for agent in here if agent.is_ours and agent.is_service)
    parts = {agent.role for agent in here if not agent.is_service}
    return (*foreign, *_of_services(settings, served, parts), *_of_bridge(settings, parts))


def _of_services(settings: Settings, served: Counter[str], parts: Set[str]) -> Iterator[str]:
    """Yield what is wrong with the services of one process each, given the `parts` of a cluster that run, too."""
    for role, count in served.items():
        if count > 1:
            yield f"{count} processes run `waldur_site_agent -m {role}`: stop all but one"
    if served and parts:
        yield (
            f"`waldur_site_agent` ({', '.join(sorted(served))}) runs in addition to {', '.join(sorted(parts))}: both "
            "do the same work. Stop and disable the units of waldur_site_agent"
        )
    elif served:
        for service, names in needed(settings).items():
            if not served[service]:
                yield f"no process serves {service} ({', '.join(names)}): start `waldur_site_agent -m {service}`"


def _of_bridge(settings: Settings, parts: Set[str]) -> Iterator[str]:
    """Yield what is wrong with the bridge: nothing below `cluster`, which starts one where it is needed."""
    names = [offering.name for offering in settings.offerings if wanted_types(offering)]
    if "bridge" in parts and not names:
        yield "the bridge runs, and no offering has stomp_enabled or mqtt_enabled: stop it"
    if "beat" in parts and names and parts.isdisjoint({"bridge", "cluster"}):
        yield (
            f"no bridge runs on this host for {', '.join(names)}: where none runs on another one, events are not "
            "listened to, and orders and members are polled"
        )
