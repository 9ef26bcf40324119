# SPDX-License-Identifier: MIT
"""Usernames for those who have none, and profiles kept up to date: one pass over the users of an offering.

The backend is opened first and asked person by person; Waldur is told what follows. An outage of the backend
changes nobody's state: who was not asked stays as they are, and the next pass goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from agent.core.actions import Action
from agent.core.directory_actions import (
    AskAccountLinking,
    AskValidation,
    AssignUsername,
    BeginUsername,
    CompleteValidation,
    DeactivateUser,
    FailUsername,
    MakeUser,
)
from agent.core.errors import BackendError, BackendUnavailable, SiteAgentError, WaldurError
from agent.core.model import OfferingFacts, OfferingUser, Part, Snapshot
from agent.core.plans import Outcome
from agent.plan import usernames as planner
from agent.plan.usernames import UserState
from agent.run.site import Site
from agent.waldur import offering_users, pool
from backends.base import Scope
from backends.usernames import nss, registry
from backends.usernames.base import UserDirectory, UsernameBackend, UsernameContext
from backends.usernames.names import posix_problem

log = logging.getLogger(__name__)

# Users that are begun, asked about and named together: what an outage in the middle leaves begun.
AT_ONCE = 50

# What a third party's backend may raise by mistake: it costs one person this pass, not everybody theirs.
PLUGIN_FAULTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


class PluginFault(SiteAgentError):
    """A username backend raised what it should not: nothing is concluded from that."""


@dataclass(frozen=True, slots=True)
class UsernameReport:
    """The users as they are afterwards, and what was done. `error` is what kept people from being looked at."""

    users: tuple[OfferingUser, ...]
    outcomes: tuple[Outcome, ...] = ()
    error: SiteAgentError | None = None

    @property
    def changed(self) -> bool:
        """Has anybody got a name?"""
        return any(outcome.done and isinstance(outcome.action, AssignUsername) for outcome in self.outcomes)

    @property
    def retryable_error(self) -> SiteAgentError | None:
        """The first reason to come back soon."""
        errors = (self.error, *(outcome.error for outcome in self.outcomes))
        return next((error for error in errors if error is not None and error.retryable), None)


def settle(
    site: Site, users: Sequence[OfferingUser], facts: OfferingFacts, *, snapshot: Snapshot | None = None
) -> UsernameReport:
    """Give names to the users who have none, and update profiles. Raises nothing of ours: see `error`.

    `users`: all of the offering, with their persons (`members.offering_users(client, with_persons=True)`).
    `snapshot`: the cluster as it was just seen; without it the cluster is asked, and only where a name is made.
    """
    run = _Run(site, users)
    due = _due(users, facts)
    try:
        with _opened(site, users, snapshot) as backend:
            if backend is not None:
                run.name(backend, due)
                run.update_profiles(backend)
    except SiteAgentError as error:
        log.error("usernames of offering %s: %s", site.offering.name, error)
        run.error = error
    return run.report()


def plan(
    site: Site, users: Sequence[OfferingUser], facts: OfferingFacts, *, snapshot: Snapshot | None = None
) -> list[Action]:
    """What `settle` would do now, as far as that can be known. Changes nothing. Raises SiteAgentError."""
    actions: list[Action] = []
    with _opened(site, users, snapshot) as backend:
        if backend is None:
            return []
        owners = _owners(users)
        for user in _due(users, facts):
            answer = _answer(user, owners, lambda user: backend.find(user) or backend.propose(user))
            actions += planner.foreseen(user, answer)
        actions += backend.stale_profiles(_with_profiles(users))
    return actions


def deactivate(site: Site, usernames: Iterable[str]) -> list[Outcome]:
    """Tell the backend that these people have left. Raises SiteAgentError where it cannot be used."""
    actions = [DeactivateUser(user=name) for name in sorted(set(usernames))]
    with _opened(site, (), None) as backend:
        outcomes = list(backend.apply(actions)) if backend is not None and actions else []
    _log(outcomes)
    return outcomes


class _Run:
    """One pass: the users as they become, and what was done to them."""

    def __init__(self, site: Site, users: Sequence[OfferingUser]) -> None:
        self.error: SiteAgentError | None = None
        self._site = site
        self._users = {user.uuid or user.user_uuid: user for user in users}
        self._owners = _owners(users)
        self._outcomes: list[Outcome] = []

    def report(self) -> UsernameReport:
        return UsernameReport(tuple(self._users.values()), tuple(self._outcomes), self.error)

    def name(self, backend: UsernameBackend, due: Sequence[OfferingUser]) -> None:
        """Some users after the other, until all were asked about or the backend, or Waldur, is away."""
        for first in range(0, len(due), AT_ONCE):
            begun = self._begin(self._with_room(backend, due[first : first + AT_ONCE]))
            answers = self._ask(backend, begun)
            self._carry_out({u: planner.closing(self._users[u], answer) for u, answer in answers.items()})
            if self._is_cut_off:
                return

    def update_profiles(self, backend: UsernameBackend) -> None:
        if self._is_cut_off:
            return
        stale = backend.stale_profiles(_with_profiles(self._users.values()))
        self._note(backend.apply(stale) if stale else ())

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
        refused = {
            o.action.offering_user
            for o in self._outcomes[before:]
            if isinstance(o.action, BeginUsername) and not o.done
        }
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
        _log(outcomes)
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
    client = site.client
    match action:
        case BeginUsername():
            offering_users.begin_creating(client, user.uuid)
            return replace(user, state=UserState.CREATING)
        case CompleteValidation():
            offering_users.set_validation_complete(client, user.uuid)
            return replace(user, state=UserState.OK)
        case AssignUsername():
            return offering_users.assign_username(client, user, action.username)
        case AskAccountLinking():
            offering_users.ask_account_linking(client, user.uuid, action.comment, action.comment_url)
            return replace(user, state=UserState.PENDING_LINKING)
        case AskValidation():
            offering_users.ask_validation(client, user.uuid, action.comment, action.comment_url)
            return replace(user, state=UserState.PENDING_VALIDATION)
        case FailUsername():
            offering_users.set_error_creating(client, user.uuid)
            return replace(user, state=UserState.ERROR_CREATING)
    raise AssertionError(f"no call for {action.verb}")


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


def _log(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.error is None:
            log.info("%s", outcome.action.render())
        else:
            log.warning("%s failed: %s", outcome.action.render(), outcome.error)
