# SPDX-License-Identifier: MIT
"""End the accounts of offering users whose deletion Waldur wants, once they are in no account of the offering any more:
the directory lets go of them, and Waldur is told.

Before that Waldur is asked again whose deletion it still wants. A directory that is away costs only this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from agent.core.actions import Action, only
from agent.core.directory_actions import (
    CompleteDeletion,
    DeactivateUser,
    DirectoryAction,
    FailDeletion,
)
from agent.core.errors import BackendError, NotApplied, SiteAgentError, WaldurError
from agent.core.model import OfferingFacts, Snapshot
from agent.core.plans import Outcome
from agent.core.waldur_actions import WaldurAction
from agent.plan import departures as planner
from agent.plan.departures import Departure
from agent.plan.policy.rules import PolicyContext
from agent.run import engine
from agent.run.engine import Portion, Steps, Work
from agent.run.gate import Pass
from agent.run.people import usernames
from agent.run.people.given_names import UNMANAGED
from agent.run.results import ProvisioningReport
from agent.run.site import Site
from agent.waldur import offering_users
from agent.waldur.actions import REQUESTS
from backends.usernames.base import UserDirectory, UsernameBackend

log = logging.getLogger(__name__)

KEY = "departures"
# Somebody has moved the person on meanwhile: the next pass sees where to.
MOVED_ON = (400, 409)


@dataclass(frozen=True)
class PlannedDepartures:
    """The last steps of those who leave; `departures`: whose."""

    departures: Sequence[Departure]
    actions: Sequence[Action]
    snapshot: Snapshot
    is_whole: bool = True
    context: PolicyContext = field(default_factory=PolicyContext)


def provision(
    run: Pass, leaving: Sequence[Departure], facts: OfferingFacts, seen: Snapshot
) -> ProvisioningReport:
    """Carry the deletions of these people on. Raises no SiteAgentError: see `error` and the outcomes. `seen`: the
    cluster as it was read last, against whose members the gate holds those who leave.
    """
    outcomes: Sequence[Outcome] = ()
    error: SiteAgentError | None = None
    ready = _ready(leaving)
    if not ready:
        return ProvisioningReport()
    try:
        wanted = offering_users.states(run.site.client, planner.UNDER_WAY)
        still = [
            replace(each, user=replace(each.user, state=wanted[each.user.uuid]))
            for each in ready
            if each.user.uuid in wanted
        ]
        with _directory_of(run.site, still) as backend:
            endings = _Endings(run.site, backend, still, facts, seen)
            outcomes = endings.found
            engine.reconcile(run, endings.steps())
    except SiteAgentError as raised:
        log.error("deletion of users of offering %s: %s", run.site.offering.name, raised)
        error = raised
    told = [o for o in outcomes if not (isinstance(o.error, WaldurError) and o.error.status in MOVED_ON)]
    return ProvisioningReport(tuple(told), error)


def plan(site: Site, leaving: Sequence[Departure], facts: OfferingFacts, seen: Snapshot) -> PlannedDepartures:
    """Return what `provision` would do now. Changes nothing. Raises SiteAgentError."""
    ready = _ready(leaving)
    with _directory_of(site, ready) as backend:
        return engine.plan_of(_Endings(site, backend, ready, facts, seen).steps())


def going(
    leaving: Sequence[Departure], allows: Callable[[Action], bool]
) -> Iterator[tuple[Departure, tuple[Action, ...]]]:
    """Yield the steps of one person after the other, of those who may go all the way."""
    for each in leaving:
        actions = tuple(planner.closing([each]))
        if actions and all(map(allows, actions)):
            yield each, actions


def _ready(leaving: Sequence[Departure]) -> list[Departure]:
    """Return those with a step of this kind ahead: no accounts are left, or one cannot be left."""
    return [each for each in leaving if each.fault is not None or not each.inside]


class _Endings:
    """The loop over those who leave; `found`: what became of their steps."""

    def __init__(
        self,
        site: Site,
        backend: UsernameBackend | None,
        leaving: Sequence[Departure],
        facts: OfferingFacts,
        seen: Snapshot,
    ) -> None:
        self._site = site
        self._backend = backend
        self._leaving = leaving
        self._facts = facts
        self._seen = seen
        self.found: list[Outcome] = []

    def steps(self) -> Steps[Sequence[Departure], PlannedDepartures]:
        return Steps(
            key=KEY,
            observe=self._observe,
            plan=self._plan,
            portions=lambda work: (
                Portion(actions, each) for each, actions in going(work.plan.departures, work.allows)
            ),
            apply=self._apply,
            read_back=self._read_back,
            failed=lambda _work, portion, error: self.found.extend(
                Outcome(action, error) for action in portion.actions
            ),
            tell=self._tell,
        )

    def _observe(self) -> Sequence[Departure]:
        """Look which of the names somebody has at another offering of the provider as well: these stay."""
        if not isinstance(self._backend, UserDirectory):
            return self._leaving
        client, customer = self._site.client, self._facts.customer_uuid
        return [
            replace(each, is_released=not offering_users.has_name_elsewhere(client, each.user, customer))
            if _may_be_released(each)
            else each
            for each in self._leaving
        ]

    def _plan(self, leaving: Sequence[Departure]) -> PlannedDepartures:
        return PlannedDepartures(leaving, tuple(planner.closing(leaving)), self._seen)

    def _apply(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        """Carry out one person's steps, up to the first that fails."""
        outcomes: list[Outcome] = []
        for action in actions:
            if isinstance(action, DirectoryAction) and self._backend is not None:
                outcomes += self._backend.apply([action])
            elif isinstance(action, WaldurAction):
                try:
                    REQUESTS[type(action)](self._site.client, action)
                    outcomes.append(Outcome(action))
                except WaldurError as error:
                    outcomes.append(Outcome(action, error))
            if not all(outcome.done for outcome in outcomes):
                break
        return outcomes

    def _read_back(
        self, work: Work[PlannedDepartures], portion: Portion, outcomes: Sequence[Outcome]
    ) -> None:
        """Tell Waldur of an entry that the directory does not let go, where time will not mend that."""
        self.found += outcomes
        for outcome in outcomes:
            error, user = outcome.error, portion.about.user
            is_lasting = isinstance(error, BackendError) and not error.retryable and not error.of_host
            if is_lasting and isinstance(outcome.action, DeactivateUser):
                fault = FailDeletion(offering_user=user.uuid, username=user.cluster_name, message=str(error))
                work.send([fault])

    def _tell(self, _work: Work[PlannedDepartures]) -> None:
        """Look whether Waldur has them as deleted."""
        done = only(CompleteDeletion, (outcome.action for outcome in self.found if outcome.done))
        still = offering_users.states(self._site.client, planner.UNDER_WAY) if done else {}
        for action in done:
            if state := still.get(action.offering_user):
                error = NotApplied(f"Waldur shows offering user {action.offering_user} as {state} still")
                self.found.append(Outcome(action, error))


def _may_be_released(each: Departure) -> bool:
    return bool(each.user.username) and each.fault is None and not each.is_shared


@contextmanager
def _directory_of(site: Site, leaving: Sequence[Departure]) -> Iterator[UsernameBackend | None]:
    """Connect the offering's username backend where somebody has a name that it gave; None where it gives none. Raises
    SiteAgentError.
    """
    if not any(map(_may_be_released, leaving)) or site.offering.username_backend == UNMANAGED:
        yield None
        return
    with usernames.opened(site, {}, None) as backend:
        if backend is None:
            raise BackendError(
                f"the username backend {site.offering.username_backend} is not installed here: nobody is deleted "
                "who may have an entry in it"
            )
        yield backend
