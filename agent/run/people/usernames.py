# SPDX-License-Identifier: MIT
"""Usernames for those who have none, and profiles kept up to date: one pass over the users of an offering.

The backend is opened first and asked person by person; Waldur is told what follows. An outage of the backend
changes nobody's state: who was not asked stays as they are, and the next pass goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from agent.core.actions import Action, only
from agent.core.directory_actions import (
    AskAccountLinking,
    AskValidation,
    AssignUsername,
    BeginUsername,
    CompleteValidation,
    FailUsername,
    MakeUser,
    UpdateProfile,
)
from agent.core.errors import BackendError, BackendUnavailable, SiteAgentError, WaldurError
from agent.core.model import OfferingFacts, OfferingUser, Part, Snapshot
from agent.core.plans import Outcome
from agent.plan import usernames as planner
from agent.plan.policy.rules import PolicyContext
from agent.plan.usernames import UserState
from agent.run import engine
from agent.run.engine import Portion, Steps, Work
from agent.run.gate import Pass
from agent.run.results import ProvisioningReport
from agent.run.site import Site
from agent.waldur import offering_users, pool
from agent.waldur.client import WaldurClient
from backends.base import Scope
from backends.usernames import nss, registry
from backends.usernames.base import UserDirectory, UsernameBackend, UsernameContext
from backends.usernames.candidates import posix_problem

log = logging.getLogger(__name__)

KEY = "usernames"
# Users that are begun, asked about and named together: what an outage in the middle leaves begun.
AT_ONCE = 50

# What a third party's backend may raise by mistake: it costs one person this pass, not everybody theirs.
PLUGIN_FAULTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


class PluginFault(SiteAgentError):
    """A username backend raised what it should not: nothing is concluded from that."""


@dataclass(frozen=True, slots=True)
class UsernameReport(ProvisioningReport):
    """The users as they are afterwards, and what was done. `error` is what kept people from being looked at."""

    users: tuple[OfferingUser, ...] = ()


@dataclass(frozen=True)
class NameFacts:
    """`due`: users to be named. `answers`: what the backend says of each by uuid, where it was asked: a name, none, or
    an error. `stale`: profiles that differ from Waldur; which these are is known once the names are given.
    """

    due: Sequence[OfferingUser]
    answers: Mapping[str, str | SiteAgentError]
    stale: Sequence[UpdateProfile]


@dataclass(frozen=True)
class PlannedNames:
    """What becomes of the users, as far as that can be known before anything is made."""

    actions: Sequence[Action]
    snapshot: Snapshot
    facts: NameFacts
    context: PolicyContext = field(default_factory=PolicyContext)
    is_whole: bool = True


def settle(
    run: Pass, users: Sequence[OfferingUser], facts: OfferingFacts, *, snapshot: Snapshot | None = None
) -> UsernameReport:
    """Give names to the users who have none, and update profiles. Raises nothing of ours: see `error`.

    `users`: all of the offering, with their persons (`members.offering_users(client, with_persons=True)`).
    `snapshot`: the cluster as it was just seen; without it the cluster is asked, and only where a name is made.
    """
    site = run.site
    naming = _Naming(site, users)
    try:
        with _opened(site, users, snapshot) as backend:
            if backend is not None:
                engine.reconcile(run, naming.steps(backend, _due(users, facts)))
    except SiteAgentError as error:
        log.error("usernames of offering %s: %s", site.offering.name, error)
        naming.error = error
    return naming.report()


def plan(
    site: Site, users: Sequence[OfferingUser], facts: OfferingFacts, *, snapshot: Snapshot | None = None
) -> PlannedNames:
    """What `settle` would do now, as far as that can be known. Changes nothing. Raises SiteAgentError."""
    naming = _Naming(site, users)
    with _opened(site, users, snapshot) as backend:
        if backend is None:
            return naming.plan(NameFacts((), {}, ()))
        return engine.plan_of(naming.steps(backend, _due(users, facts), is_asked=True))


class _Naming:
    """The users as they become, and what was done to them."""

    def __init__(self, site: Site, users: Sequence[OfferingUser]) -> None:
        self.error: SiteAgentError | None = None
        self._site = site
        self._users = {user.uuid or user.user_uuid: user for user in users}
        self._owners = _owners(users)
        self._outcomes: list[Outcome] = []

    def report(self) -> UsernameReport:
        return UsernameReport(tuple(self._outcomes), self.error, tuple(self._users.values()))

    def steps(
        self, backend: UsernameBackend, due: Sequence[OfferingUser], *, is_asked: bool = False
    ) -> Steps[NameFacts, PlannedNames]:
        """The loop over the users. `is_asked`: the backend is asked for the names that it would give."""
        return Steps(
            key=KEY,
            observe=lambda: self._observe(backend, due, is_asked=is_asked),
            plan=self.plan,
            portions=lambda work: self._portions(backend, work),
            apply=lambda actions: self._apply(backend, actions),
            read_back=lambda _work, _portion, _outcomes: None,
            failed=self._failed,
            tell=engine.nothing_to_tell,
        )

    def _observe(self, backend: UsernameBackend, due: Sequence[OfferingUser], *, is_asked: bool) -> NameFacts:
        def propose(user: OfferingUser) -> str:
            return backend.find(user) or backend.propose(user)

        if not is_asked:
            return NameFacts(due, {}, ())
        answers = {user.uuid: _answer(user, self._owners, propose) for user in due}
        return NameFacts(due, answers, self._stale(backend))

    def _stale(self, backend: UsernameBackend) -> Sequence[UpdateProfile]:
        return backend.stale_profiles(_with_profiles(self._users.values()))

    def plan(self, facts: NameFacts) -> PlannedNames:
        """The calls for each user. A name that nobody was asked for is not known before."""
        actions: list[Action] = []
        for user in facts.due:
            if user.uuid in facts.answers:
                actions += planner.foreseen(user, facts.answers[user.uuid])
            else:
                opening = planner.opening(user)
                actions += () if opening is None else (opening,)
                actions.append(
                    AssignUsername(offering_user=user.uuid, username="", reason=planner.whose(user))
                )
        actions += facts.stale
        return PlannedNames(tuple(actions), Snapshot(self._site.backend.cluster), facts)

    def _portions(self, backend: UsernameBackend, work: Work[PlannedNames]) -> Iterator[Portion]:
        """Some users after the other, until all were asked about or the backend, or Waldur, is away; then the profiles,
        also of those who have got a name just now.
        """
        of_user: dict[str, list[Action]] = {}
        for action in work.decision.allowed:
            of_user.setdefault(getattr(action, "offering_user", ""), []).append(action)
        uuids = [user.uuid for user in work.plan.facts.due if user.uuid in of_user]
        for first in range(0, len(uuids), AT_ONCE):
            if self._is_cut_off:
                return
            yield Portion(tuple(a for uuid in uuids[first : first + AT_ONCE] for a in of_user[uuid]))
        if self._is_cut_off:
            return
        work.decide(self.plan(NameFacts((), {}, self._stale(backend))))
        if work.decision.allowed:
            yield Portion(work.decision.allowed)

    def _apply(self, backend: UsernameBackend, actions: Sequence[Action]) -> Sequence[Outcome]:
        """The calls of these users as the backend's answers make them; more or other ones than were foreseen."""
        before = len(self._outcomes)
        profiles = only(UpdateProfile, actions)
        uuids = dict.fromkeys(str(getattr(action, "offering_user", "")) for action in actions)
        due = [self._users[uuid] for uuid in uuids if uuid]
        if due:
            begun = self._begin(self._with_room(backend, due))
            answers = self._ask(backend, begun)
            self._carry_out({u: planner.closing(self._users[u], answer) for u, answer in answers.items()})
        if profiles:
            self._note(backend.apply(profiles))
        return self._outcomes[before:]

    def _failed(self, _work: object, _portion: Portion, error: SiteAgentError) -> None:
        if self.error is None:
            log.error("usernames of offering %s: %s", self._site.offering.name, error)
            self.error = error

    @property
    def _is_cut_off(self) -> bool:
        return self.error is not None and self.error.retryable

    def _with_room(self, backend: UsernameBackend, users: Sequence[OfferingUser]) -> Sequence[OfferingUser]:
        """All of them; where the directory has no room for new people, those whom it has already."""
        if not users or not isinstance(backend, UserDirectory):
            return users
        try:
            backend.require_room()
        except BackendError as error:
            if not error.of_host:
                raise
            self._blame_site(error)
            return [user for user in users if _answer(user, self._owners, backend.find)]
        return users

    def _blame_site(self, error: BackendError) -> None:
        """A fault of the site: told once in a pass, and nobody's state changes for it."""
        if self.error is None:
            log.error("usernames of offering %s: %s", self._site.offering.name, error)
            self.error = error

    def _begin(self, users: Sequence[OfferingUser]) -> list[OfferingUser]:
        """Those whom Waldur lets us begin; who is refused has moved on, and the next pass sees where to."""
        before = len(self._outcomes)
        openings = {user.uuid: (action,) for user in users if (action := planner.opening(user)) is not None}
        self._carry_out(openings)
        failed = (outcome.action for outcome in self._outcomes[before:] if not outcome.done)
        refused = {action.offering_user for action in only(BeginUsername, failed)}
        if self._is_cut_off:
            return []
        return [self._users[user.uuid] for user in users if user.uuid not in refused]

    def _ask(
        self, backend: UsernameBackend, users: Sequence[OfferingUser]
    ) -> dict[str, str | SiteAgentError]:
        answers: dict[str, str | SiteAgentError] = {}
        for user in users:
            answer = _answer(user, self._owners, lambda user: backend.find(user) or backend.make(user))
            self._note_made(backend, user)
            if isinstance(answer, BackendUnavailable):
                log.warning("usernames: %s; who was not asked about stays as they are", answer)
                self.error = answer
                return answers
            if isinstance(answer, BackendError) and answer.of_host:
                self._blame_site(answer)
            elif isinstance(answer, SiteAgentError):
                log.warning("no username for user %s (%s): %s", user.user_uuid, user.state, answer)
            elif answer:
                self._owners[answer] = user.user_uuid
            answers[user.uuid] = answer
        return answers

    def _note_made(self, backend: UsernameBackend, user: OfferingUser) -> None:
        """What the backend made of its own for this person, for the journal; its log has told it."""
        if isinstance(backend, UserDirectory):
            reason = planner.whose(user)
            self._outcomes += [Outcome(MakeUser(user=name, reason=reason)) for name in backend.made]
            backend.made.clear()

    def _carry_out(self, wanted: Mapping[str, tuple[Action, ...]]) -> None:
        """The calls of each user in their order, several users at once; a failed call ends its user's."""
        asked = {uuid: actions for uuid, actions in wanted.items() if actions}
        answers = pool.each(asked, lambda uuid: self._send_all(self._users[uuid], asked[uuid]))
        for uuid, answer in answers.items():
            if isinstance(answer, WaldurError):  # never: _send_all keeps them
                raise answer
            self._users[uuid], outcomes = answer
            self._note(outcomes)

    def _send_all(self, user: OfferingUser, actions: Sequence[Action]) -> tuple[OfferingUser, list[Outcome]]:
        outcomes = []
        for action in actions:
            try:
                user = _send(self._site, user, action)
            except WaldurError as error:
                outcomes.append(Outcome(action, error))
                break
            outcomes.append(Outcome(action))
        return user, outcomes

    def _note(self, outcomes: Sequence[Outcome]) -> None:
        self._outcomes += outcomes
        for outcome in outcomes:
            if isinstance(outcome.error, WaldurError) and outcome.error.status is None:
                self.error = self.error or outcome.error


@contextmanager
def _opened(
    site: Site, users: Sequence[OfferingUser], snapshot: Snapshot | None
) -> Iterator[UsernameBackend | None]:
    """The offering's username backend, connected; None where it is not installed. Raises SiteAgentError."""
    context = UsernameContext(
        site.offering.uuid, site.state_dir, _owners(users), lambda: _names_on_cluster(site, snapshot)
    )
    try:
        backend = registry.connect(site.offering, context)
    except registry.UsernameBackendMissing as error:
        log.warning("%s. No usernames are made for offering %s", error, site.offering.name)
        yield None
        return
    try:
        backend.open()
        yield backend
    finally:
        backend.close()


def _due(users: Sequence[OfferingUser], facts: OfferingFacts) -> list[OfferingUser]:
    """Whom to take up; nobody where the offering's options are against it."""
    due = planner.due(users)
    obstacle = planner.obstacle(facts.plugin_options) if due else None
    if obstacle is None:
        return due
    log.log(
        logging.ERROR if obstacle.is_fault else logging.DEBUG, "offering %s: %s", facts.uuid, obstacle.reason
    )
    return []


def _answer(
    user: OfferingUser, owners: dict[str, str], ask: Callable[[OfferingUser], str]
) -> str | SiteAgentError:
    """The name, if this person may have it, or what the backend raised."""
    try:
        name = ask(user)
    except SiteAgentError as error:
        return error
    except PLUGIN_FAULTS as error:
        log.exception("the username backend failed for user %s", user.user_uuid)
        return PluginFault(f"{type(error).__name__}: {error}")
    if not name:
        return ""
    problem = posix_problem(name) or (
        "it is an account of the system here" if nss.is_system_user(name) else ""
    )
    if problem:
        return BackendError(f"username {name!r} cannot be given to user {user.user_uuid}: {problem}")
    owner = owners.get(name, user.user_uuid)
    if owner != user.user_uuid:
        return BackendError(
            f"username {name} is found for user {user.user_uuid}, but belongs to user {owner} in Waldur"
        )
    return name


def _send(site: Site, user: OfferingUser, action: Action) -> OfferingUser:
    """One call; the user as it is after it. Raises WaldurError."""
    state, call = CALLS[type(action)]
    answer = call(site.client, user, action)
    return replace(user, state=state) if state else answer


# The request of each kind of action, and the state that the user has then; with a name Waldur says that itself.
CALLS: Mapping[type[Action], tuple[UserState | None, Callable[[WaldurClient, OfferingUser, Any], Any]]] = {
    BeginUsername: (
        UserState.CREATING,
        lambda client, user, _: offering_users.begin_creating(client, user.uuid),
    ),
    CompleteValidation: (
        UserState.OK,
        lambda client, user, _: offering_users.set_validation_complete(client, user.uuid),
    ),
    AssignUsername: (
        None,
        lambda client, user, action: offering_users.assign_username(client, user, action.username),
    ),
    AskAccountLinking: (
        UserState.PENDING_LINKING,
        lambda client, user, action: offering_users.ask_account_linking(
            client, user.uuid, action.comment, action.comment_url
        ),
    ),
    AskValidation: (
        UserState.PENDING_VALIDATION,
        lambda client, user, action: offering_users.ask_validation(
            client, user.uuid, action.comment, action.comment_url
        ),
    ),
    FailUsername: (
        UserState.ERROR_CREATING,
        lambda client, user, _: offering_users.set_error_creating(client, user.uuid),
    ),
}


def _owners(users: Iterable[OfferingUser]) -> dict[str, str]:
    return {user.username: user.user_uuid for user in users if user.username}


def _with_profiles(users: Iterable[OfferingUser]) -> list[OfferingUser]:
    """Those whose entry we keep up to date: who may use the cluster now."""
    ready = (UserState.OK, UserState.NONE)
    return [user for user in users if user.username and not user.is_restricted and user.state in ready]


def _names_on_cluster(site: Site, snapshot: Snapshot | None) -> frozenset[str]:
    seen = snapshot
    if seen is None or Part.ASSOCIATIONS not in seen.complete:
        seen = site.backend.observe(Scope(parts=frozenset({Part.ASSOCIATIONS})))
    seen.require(Part.ASSOCIATIONS)
    return frozenset(association.user for association in seen.associations)
