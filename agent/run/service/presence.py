# SPDX-License-Identifier: MIT
"""Show in Waldur that a mode of an offering is polled: the agent's identity, a service by the mode's name, a processor.

The bridge does the same for events, with the same `Presence`. A pass never waits for it and never fails by it.

what is known                                       requests
nothing, another program, or a start since then     4: identity found, made or replaced; service; processor
reported less than RENEW_AFTER ago                  none
reported less than IDLE_AFTER ago                   1: processor, which is the heartbeat
reported before that: the service is idle           2: service, processor
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
from agent.run.gate import Pass
from agent.run.site import Site
from agent.state.hints import REPORTED_SERVICES, ReportedService
from agent.waldur.client import WaldurClient
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
    """What is reported to Waldur of one mode."""

    actions: Sequence[WaldurAction]
    snapshot: Snapshot
    context: PolicyContext = field(default_factory=PolicyContext)
    is_whole: bool = False


def report(site: Site, mode: Mode, program: Program, now: datetime) -> None:
    """Report to Waldur that this mode runs, where that is due. What fails is logged. Raises StateError where it is
    unknown whether the offering is paused.
    """
    known = REPORTED_SERVICES.get(site.state_dir, site.offering.uuid, _key(site, mode)) or ReportedService()
    about = json.dumps([program.version, program.config_path, dict(program.packages)], sort_keys=True)
    has_started = known.renewed is None or program.started > known.renewed
    action = due(known, site, mode, now, is_new=known.program != about or has_started)
    if action is None:
        return
    with engine.passing(site, mode, is_recorded=False) as run:
        if gate.may_report(run.rules):
            engine.reconcile(
                run, PresenceMode(run, action, known, program, ReportedService(program=about, renewed=now))
            )


class PresenceMode(engine.Mode[WaldurAction, PlannedPresence]):
    """The report that a mode runs. `known`: what was reported last; `news`: what is remembered once it knows."""

    key = KEY

    def __init__(
        self, run: Pass, action: WaldurAction, known: ReportedService, program: Program, news: ReportedService
    ) -> None:
        super().__init__(run)
        self._action, self._known, self._news = action, known, news
        assert news.renewed is not None
        self._now = news.renewed
        is_first = isinstance(action, RegisterAgent)
        self._is_idle = is_first or _age(known.renewed, self._now) >= IDLE_AFTER
        before = () if is_first else (known.identity, known.service)
        self._presence = Presence(self.site.client, program, *before)
        self._processors = {PROCESSORS[run.mode]: self.site.offering.backend_of(run.mode) or ""}
        self.requests = {RegisterAgent: self._request, RenewService: self._request}

    def observe(self) -> WaldurAction:
        return self._action

    def plan(self, facts: WaldurAction) -> PlannedPresence:
        return PlannedPresence((facts,), Snapshot(self.site.backend.cluster))

    def tell(self, work: Work[PlannedPresence]) -> None:
        presence, known = self._presence, self._known
        error = next(iter(work.send([self._action]).values()), None)
        if error is None and presence.service:
            news = replace(self._news, identity=presence.identity, service=presence.service)
        elif error is not None and (presence.is_gone(error) or error.retryable):
            news = replace(known, identity=presence.identity, service="", program="")
        else:
            news = replace(known, refused=self._now)
        REPORTED_SERVICES.put(
            self.site.state_dir, self.site.offering.uuid, {_key(self.site, self.run.mode): news}
        )

    def _request(self, _client: WaldurClient, _action: WaldurAction) -> None:
        if not self._is_idle:
            self._presence.renew(self._processors)
            return
        self._presence.activate(self.run.mode, self._processors)
        if not self._presence.service:
            raise WaldurLacks("this Waldur knows no agents", method="POST", path=IDENTITIES, status=404)


def _key(site: Site, mode: Mode) -> str:
    return f"{mode} {site.client.url}"


def due(
    known: ReportedService, site: Site, mode: Mode, now: datetime, *, is_new: bool
) -> WaldurAction | None:
    """Return what is reported to Waldur now. `is_new`: another program runs than the one that it knows, or again."""
    if known.refused is not None and _age(known.refused, now) < AGAIN_AFTER:
        return None
    if is_new or not known.service:
        return RegisterAgent(service=mode, backend=site.offering.backend_of(mode) or "")
    return RenewService(service=mode) if _age(known.renewed, now) >= RENEW_AFTER else None


def _age(moment: datetime | None, now: datetime) -> timedelta:
    """Return how long ago it was; for ever, where it is not known, or in the future: a clock was put back."""
    return timedelta.max if moment is None or moment > now + timedelta(minutes=1) else now - moment
