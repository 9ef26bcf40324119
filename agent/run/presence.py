# SPDX-License-Identifier: MIT
"""Show in Waldur that a mode of an offering is polled: the agent's identity, a service by the mode's name, a processor.

The bridge does the same for events, with the same `Presence`. A pass never waits for it and never fails by it.

what is known                                       requests
nothing, another program, or a start since then     4: identity found, made or replaced; service; processor
told less than RENEW_AFTER ago                      none
told less than IDLE_AFTER ago                       1: processor, which is the heartbeat
told before that: the service is idle               2: service, processor
refused, or the server knows no agents (2024)       none for AGAIN_AFTER
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from agent.config.model import Mode
from agent.core.errors import WaldurLacks
from agent.core.model import Snapshot
from agent.core.waldur_actions import RegisterAgent, RenewService, WaldurAction
from agent.plan.policy.rules import PolicyContext
from agent.run import engine, gate
from agent.run.engine import Work
from agent.run.site import Site
from agent.state import shown_services
from agent.state.shown_services import ShownService
from agent.waldur.identities import IDENTITIES, Presence, Program

KEY = "presence"
# Waldur takes a service for idle whose processors did not run for ten minutes. Polls come every five.
RENEW_AFTER = timedelta(minutes=4)
IDLE_AFTER = timedelta(minutes=10)
AGAIN_AFTER = timedelta(hours=1)
# As the site agent that Waldur's documentation speaks of names them: so their rows go on.
PROCESSORS = {
    Mode.ORDER_PROCESS: "OfferingOrderProcessor",
    Mode.MEMBERSHIP_SYNC: "OfferingMembershipProcessor",
    Mode.REPORT: "OfferingReportProcessor",
}


@dataclass(frozen=True)
class PlannedPresence:
    """What Waldur is told of one mode."""

    actions: Sequence[WaldurAction]
    snapshot: Snapshot
    context: PolicyContext = field(default_factory=PolicyContext)
    is_whole: bool = False


def show(site: Site, mode: Mode, program: Program, now: datetime) -> None:
    """Tell Waldur that this mode lives, where that is due. What fails is logged. Raises StateError where nobody can
    tell whether the offering is paused.
    """
    where = (site.state_dir, site.offering.uuid, str(mode), site.client.url)
    known = shown_services.known(*where)
    about = json.dumps([program.version, program.config_path, dict(program.packages)], sort_keys=True)
    action = due(known, site, mode, now, is_new=known.program != about or _starts(known, program))
    if action is None:
        return
    is_first = isinstance(action, RegisterAgent)
    presence = (
        Presence(site.client, program)
        if is_first
        else Presence(site.client, program, known.identity, known.service)
    )
    processors = {PROCESSORS[mode]: site.offering.backend_of(mode) or ""}
    is_idle = is_first or _age(known.renewed, now) >= IDLE_AFTER

    def request(_client: object, _action: object) -> None:
        if is_idle:
            presence.activate(mode, processors)
            if not presence.service:
                raise WaldurLacks("this Waldur knows no agents", method="POST", path=IDENTITIES, status=404)
        else:
            presence.renew(processors)

    def tell(work: Work[PlannedPresence]) -> None:
        error = next(iter(work.send([action]).values()), None)
        if error is None and presence.service:
            news = ShownService(presence.identity, presence.service, about, now)
        elif error is not None and (presence.is_gone(error) or error.retryable):
            news = replace(known, identity=presence.identity, service="", program="")
        else:
            news = replace(known, refused=now)
        shown_services.write(*where, news)

    with engine.passing(site, mode, is_recorded=False) as run:
        if gate.may_tell(run.rules):
            snapshot = Snapshot(site.backend.cluster)
            steps = engine.only_telling(
                KEY,
                lambda: snapshot,
                lambda seen: PlannedPresence((action,), seen),
                tell,
                {RegisterAgent: request, RenewService: request},
            )
            engine.reconcile(run, steps)


def due(known: ShownService, site: Site, mode: Mode, now: datetime, *, is_new: bool) -> WaldurAction | None:
    """Return what Waldur is told now. `is_new`: another program runs than the one that it knows, or again."""
    if known.refused is not None and _age(known.refused, now) < AGAIN_AFTER:
        return None
    if is_new or not known.service:
        return RegisterAgent(service=mode, backend=site.offering.backend_of(mode) or "")
    return RenewService(service=mode) if _age(known.renewed, now) >= RENEW_AFTER else None


def _starts(known: ShownService, program: Program) -> bool:
    return known.renewed is None or program.started > known.renewed


def _age(moment: datetime | None, now: datetime) -> timedelta:
    """Return how long ago it was; for ever, where it is not known, or in the future: a clock was put back."""
    return timedelta.max if moment is None or moment > now + timedelta(minutes=1) else now - moment
