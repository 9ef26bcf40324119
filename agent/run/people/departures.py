# SPDX-License-Identifier: MIT
"""End the accounts of offering users whose deletion Waldur wants, once they are in no account of the offering any more:
the directory releases them, and that is reported to Waldur.

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
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from agent.core.waldur_actions import WaldurAction
from agent.plan import departures as planner
from agent.plan.departures import Departure
from agent.plan.policy.rules import PolicyContext
from agent.run.engine import Mode, Portion, Work
from agent.run.gate import Pass
from agent.run.handed_on import PeopleLeaving
from agent.run.people.naming import UNMANAGED, opened
from agent.run.site import Site
from agent.waldur import offering_users
from agent.waldur.actions import REQUESTS
from backends.usernames.base import UserDirectory, UsernameBackend

log = logging.getLogger(__name__)

KEY = "departures"
# The person was moved on since Waldur was read: the next pass sees where to.
MOVED_ON = (400, 409)


@dataclass(frozen=True)
class PlannedDepartures:
    """The last steps of those who leave."""

    departures: Sequence[Departure]
    actions: Sequence[Action]
    snapshot: Snapshot
    is_whole: bool = True
    context: PolicyContext = field(default_factory=PolicyContext)


class Departures(Mode[Sequence[Departure], PlannedDepartures]):
    """The end of the accounts of those who leave. In a pass that applies Waldur is asked again whose it still wants."""

    key = KEY
    optional_name = "deletion of users"
    needs = PeopleLeaving

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self._backend: UsernameBackend | None = None

    def observe(self) -> Sequence[Departure] | None:
        """Read who is still to go, and which of the names are in use at another offering of the provider as well:
        these stay. Return None where no person is ready to go.
        """
        people = self.run.result(PeopleLeaving)
        if people is None:
            return None
        # A step is ahead for those whom no account holds any more, or whom one cannot release.
        ready = [each for each in people.departures if each.fault is not None or not each.inside]
        if not ready:
            return None
        if self.run.applies:
            wanted = offering_users.states(self.site.client, planner.UNDER_WAY)
            ready = [
                replace(each, user=replace(each.user, state=wanted[each.user.uuid]))
                for each in ready
                if each.user.uuid in wanted
            ]
        self._backend = self.open.enter_context(_directory_of(self.site, ready))
        if not isinstance(self._backend, UserDirectory):
            return ready
        client, customer = self.site.client, people.offering.customer_uuid
        return [
            replace(each, is_released=not offering_users.has_name_elsewhere(client, each.user, customer))
            if _may_be_released(each)
            else each
            for each in ready
        ]

    def plan(self, facts: Sequence[Departure]) -> PlannedDepartures:
        people = self.run.result(PeopleLeaving)
        assert people is not None
        return PlannedDepartures(facts, tuple(planner.closing(facts)), people.seen)

    def portions(self, work: Work[PlannedDepartures]) -> Iterator[Portion]:
        for each, actions in going(work.plan.departures, work.allows):
            yield Portion(actions, each)

    def shows(self, work: Work[PlannedDepartures]) -> Sequence[Action]:
        """Return the steps of those who go all the way."""
        return [action for _, actions in going(work.plan.departures, work.allows) for action in actions]

    def apply(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        """Carry out one person's steps, up to the first that fails."""
        outcomes: list[Outcome] = []
        for action in actions:
            if isinstance(action, DirectoryAction) and self._backend is not None:
                outcomes += self._backend.apply([action])
            elif isinstance(action, WaldurAction):
                try:
                    REQUESTS[type(action)](self.site.client, action)
                    outcomes.append(Outcome(action))
                except WaldurError as error:
                    outcomes.append(Outcome(action, error))
            if not all(outcome.done for outcome in outcomes):
                break
        return outcomes

    def read_back(self, work: Work[PlannedDepartures], portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Report to Waldur an entry that the directory does not release, where no later pass can."""
        self.outcomes += outcomes
        for outcome in outcomes:
            error, user = outcome.error, portion.about.user
            is_lasting = isinstance(error, BackendError) and not error.retryable and not error.of_host
            if is_lasting and isinstance(outcome.action, DeactivateUser):
                fault = FailDeletion(offering_user=user.uuid, username=user.cluster_name, message=str(error))
                work.send([fault])

    def tell(self, work: Work[PlannedDepartures]) -> None:
        """Read back whether Waldur has them as deleted."""
        done = only(CompleteDeletion, (outcome.action for outcome in self.outcomes if outcome.done))
        still = offering_users.states(self.site.client, planner.UNDER_WAY) if done else {}
        for action in done:
            if state := still.get(action.offering_user):
                error = NotApplied(f"Waldur reports offering user {action.offering_user} as {state} still")
                self.outcomes.append(Outcome(action, error))

    def conclude(self, error: SiteAgentError | None) -> None:
        self.outcomes = [
            outcome
            for outcome in self.outcomes
            if not (isinstance(outcome.error, WaldurError) and outcome.error.status in MOVED_ON)
        ]
        super().conclude(error)


def going(
    leaving: Sequence[Departure], allows: Callable[[Action], bool]
) -> Iterator[tuple[Departure, tuple[Action, ...]]]:
    """Yield the steps of one person after the other, of those who may go all the way."""
    for each in leaving:
        actions = tuple(planner.closing([each]))
        if actions and all(map(allows, actions)):
            yield each, actions


def _may_be_released(each: Departure) -> bool:
    return bool(each.user.username) and each.fault is None and not each.is_shared


@contextmanager
def _directory_of(site: Site, leaving: Sequence[Departure]) -> Iterator[UsernameBackend | None]:
    """Connect the offering's username backend where a person has a name that it gave; None where it gives none. Raises
    SiteAgentError.
    """
    if not any(map(_may_be_released, leaving)) or site.offering.username_backend == UNMANAGED:
        yield None
        return
    with opened(site, {}, None) as backend:
        if backend is None:
            raise BackendError(
                f"the username backend {site.offering.username_backend} is not installed here: no user is "
                "deleted who may have an entry in it"
            )
        yield backend
