# SPDX-License-Identifier: MIT
"""Provision usernames for an offering's users who have none, and keep profiles up to date.

The backend is opened first and asked person by person; then Waldur gets the result. An outage of the backend changes
no user's state: users who were not asked about stay as they are, and the next pass goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from agent.core.account_names import fold
from agent.core.actions import Action, only
from agent.core.directory_actions import (
    AskAccountLinking,
    AskValidation,
    AssignUsername,
    BeginUsername,
    CompleteValidation,
    DirectoryAction,
    FailUsername,
    MakeUser,
)
from agent.core.errors import BackendError, BackendUnavailable, SiteAgentError, WaldurError, WaldurLacks
from agent.core.model import OfferingFacts, OfferingUser, Part, Snapshot
from agent.core.plans import Outcome
from agent.plan import posix_accounts as posix_planner
from agent.plan import usernames as planner
from agent.plan.policy.rules import PolicyContext
from agent.plan.usernames import UserState
from agent.run import engine
from agent.run.engine import Portion, Steps, Work
from agent.run.gate import Pass, Planned
from agent.run.people import posix_accounts
from agent.run.people.given_names import GivenNames
from agent.run.results import ProvisioningReport
from agent.run.site import Site
from agent.waldur import offering_users, pool
from agent.waldur.client import WaldurClient
from backends.base import Scope
from backends.usernames import nss, registry
from backends.usernames.base import AccountDirectory, UserDirectory, UsernameBackend, UsernameContext
from backends.usernames.candidates import posix_problem

log = logging.getLogger(__name__)

KEY = "usernames"
# Users that are begun, asked about and named together: so many an outage in the middle leaves begun.
AT_ONCE = 50
# Why nobody leaves an account, where the names of the directory are not known.
AWAY = "who has an old name in the directory still is not known in this pass: the next pass tries again"
STUCK = "who was renamed in Waldur may have the old name in the directory still: nobody knows until this is set right"

# What a third party's backend may raise by mistake: it costs one person this pass, not everybody theirs.
PLUGIN_FAULTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


class PluginFault(SiteAgentError):
    """A username backend raised an error that it should not raise: nothing is concluded from it."""


@dataclass(frozen=True, slots=True)
class UsernameReport(ProvisioningReport):
    """The users as they are afterwards, and what was done. `error` stopped the work on more than one user.
    `names_unknown`: why nobody knows the names that a directory which follows Waldur has; empty where that is known.
    """

    users: tuple[OfferingUser, ...] = ()
    names_unknown: str = ""


@dataclass(frozen=True)
class NameFacts:
    """`due`: users to be named. `answers`: what the backend says of each by uuid, where it was asked: a name, none, or
    an error. `stale`: profiles that differ from Waldur; which these are is known once the names are given. `waits`: why
    the names wait for a person, empty when they need not.
    """

    due: Sequence[OfferingUser]
    answers: Mapping[str, str | SiteAgentError]
    stale: Sequence[DirectoryAction]
    waits: str = ""


@dataclass(frozen=True)
class PlannedNames:
    """The calls for each user, as far as they can be known before the backend is asked."""

    actions: Sequence[Action]
    snapshot: Snapshot
    facts: NameFacts
    is_whole: bool = True
    context: PolicyContext = field(default_factory=PolicyContext)


def provision(
    run: Pass,
    users: Sequence[OfferingUser],
    facts: OfferingFacts,
    *,
    snapshot: Snapshot | None = None,
    members: Set[str] = frozenset(),
) -> UsernameReport:
    """Give names to the users who have none, and update profiles. Raises no SiteAgentError: see `error`.

    `users`: all of the offering, with their persons (`members.offering_users(client, with_persons=True)`).
    `snapshot`: the cluster as it was just read; without it the cluster is read, and only where a name is made.
    `members`: who is in the offering's accounts on the cluster.
    """
    site = run.site
    provisioning = _UsernameProvisioning(site, users, members)
    try:
        provisioning.names.recall()
        provisioning.names.tell_shared(run)
        with opened(site, provisioning.names.reserved, snapshot) as backend:
            if isinstance(backend, AccountDirectory) and backend.account_rules is not None:
                outcomes, made = posix_accounts.provision(run, backend, users, facts, snapshot)
                provisioning.take(outcomes, made)
            elif backend is not None:
                engine.reconcile(run, provisioning.steps(backend, _due(users, facts)))
    except SiteAgentError as error:
        log.error("usernames of offering %s: %s", site.offering.name, error)
        provisioning.error = error
        provisioning.names_unknown = names_unknown(site, facts, error)
    report = provisioning.report()
    provisioning.names.remember(report.users, facts)
    return report


def plan(
    site: Site,
    users: Sequence[OfferingUser],
    facts: OfferingFacts,
    *,
    snapshot: Snapshot | None = None,
    members: Set[str] = frozenset(),
) -> Planned:
    """Return what `provision` would do now, as far as that can be known. Changes nothing. Raises SiteAgentError."""
    provisioning = _UsernameProvisioning(site, users, members)
    provisioning.names.recall()
    with opened(site, provisioning.names.reserved, snapshot) as backend:
        if backend is None:
            return provisioning.plan(NameFacts((), {}, ()))
        if isinstance(backend, AccountDirectory) and backend.account_rules is not None:
            return engine.plan_of(posix_accounts.steps(site, backend, users, facts, [], snapshot))
        return engine.plan_of(provisioning.steps(backend, _due(users, facts), is_asked=True))


def key_of(plan: Planned) -> str:
    """Return the name of the loop that a plan of this module is for: what it holds waits under that."""
    return posix_accounts.KEY if isinstance(plan, posix_accounts.PlannedAccounts) else KEY


def names_unknown(site: Site, facts: OfferingFacts, error: SiteAgentError) -> str:
    """Return why nobody knows the names that a directory which follows Waldur has, where it cannot be used for an
    `error`; empty where there is no such directory.

    Where Waldur leaves the names to the provider, the directory follows nobody and says nothing about them: they are
    what whoever writes them into Waldur says.
    """
    if not registry.follows_waldur(site.offering) or not posix_accounts.can_follow(facts):
        return ""
    return f"{AWAY} ({error})" if error.retryable else f"{STUCK}: {error}"


def as_in_directory(
    users: Sequence[OfferingUser], plan: Planned, happened: Iterable[Action]
) -> Sequence[OfferingUser]:
    """Return the users, with the names that a directory which follows Waldur has by what of a plan has happened."""
    if not isinstance(plan, posix_accounts.PlannedAccounts):
        return users
    return posix_planner.as_in_directory(users, plan.old_names, happened)


class _UsernameProvisioning:
    """One call of `provision`: the users as Waldur has them now, and what was done."""

    def __init__(self, site: Site, users: Sequence[OfferingUser], members: Set[str]) -> None:
        self.error: SiteAgentError | None = None
        self._site = site
        self._users = {user.key: user for user in users}
        self._members = members
        self.names = GivenNames(site, users)
        self.names_unknown = ""
        self._outcomes: list[Outcome] = []

    def take(self, outcomes: Sequence[Outcome], plan: Planned) -> None:
        """Take over what was done by a plan for a directory that follows Waldur, and the names that it has."""
        self.note(outcomes)
        done = [outcome.action for outcome in outcomes if outcome.done]
        users = as_in_directory(tuple(self._users.values()), plan, done)
        self._users = {user.key: user for user in users}

    def report(self) -> UsernameReport:
        users = tuple(self._users.values())
        return UsernameReport(tuple(self._outcomes), self.error, users, self.names_unknown)

    def steps(
        self, backend: UsernameBackend, due: Sequence[OfferingUser], *, is_asked: bool = False
    ) -> Steps[NameFacts, PlannedNames]:
        """Return the loop over the users. `is_asked`: observing asks the backend for the names that it would give.

        Raises BackendUnavailable where it depends on the backend whether the names wait for a person.
        """
        few = self._site.offering.policy.small_removal
        strangers = self._members - set(map(fold, self.names.reserved))
        new = []
        for user in due if len(strangers) > few else ():
            found = _answer(user, self.names.owners, lambda user: self._found(backend, user))
            if isinstance(found, BackendUnavailable):
                raise found
            if not found:
                new.append(user)
        waits = planner.lost_names(new, strangers, few)

        def observe() -> NameFacts:
            if not is_asked:
                return NameFacts(due, {}, (), waits)
            answers = {
                user.uuid: _answer(
                    user, self.names.owners, lambda u: self._found(backend, u) or backend.propose(u)
                )
                for user in due
            }
            return NameFacts(due, answers, self._stale(backend), waits)

        def failed(_work: object, _portion: Portion, error: SiteAgentError) -> None:
            self._note_site_fault(error)

        return Steps(
            key=KEY,
            observe=observe,
            plan=self.plan,
            portions=lambda work: self._portions(backend, work),
            apply=lambda actions: self._apply(backend, actions),
            read_back=lambda _work, _portion, _outcomes: None,
            failed=failed,
            tell=engine.nothing_to_tell,
        )

    def plan(self, facts: NameFacts, *, is_whole: bool = True) -> PlannedNames:
        """Plan the calls for each user. A name that the backend was not asked for is empty."""
        actions: list[Action] = []
        for user in facts.due:
            is_new = not self.names.had(user)
            if user.uuid in facts.answers:
                actions += planner.dry_run_actions(
                    user, facts.answers[user.uuid], is_new=is_new, before=self.names.had(user)
                )
            else:
                opening, why = planner.opening(user), planner.whose(user)
                actions += () if opening is None else (opening,)
                actions.append(
                    AssignUsername(offering_user=user.uuid, username="", is_new=is_new, reason=why)
                )
        actions += facts.stale
        context = PolicyContext(needs_approval=facts.waits)
        return PlannedNames(tuple(actions), Snapshot(self._site.backend.cluster), facts, is_whole, context)

    def _found(self, backend: UsernameBackend, user: OfferingUser) -> str:
        """Return the name that the person has or had; a directory itself remembers whom it has."""
        return backend.find(user) or ("" if isinstance(backend, UserDirectory) else self.names.last_of(user))

    def _stale(self, backend: UsernameBackend) -> Sequence[DirectoryAction]:
        """Return the changes of profiles of users who may use the cluster now."""
        ready = (UserState.OK, UserState.NONE)
        users = (user for user in self._users.values() if user.username and user.state in ready)
        return backend.stale_profiles([user for user in users if not user.is_restricted])

    def _portions(self, backend: UsernameBackend, work: Work[PlannedNames]) -> Iterator[Portion]:
        """Yield the users in groups, until the backend or Waldur is away; then the profiles, also of those who have
        just got a name. What follows from the backend's answers is known, and decided on, when it was asked.
        """
        openings: dict[str, list[Action]] = {
            action.offering_user: [] for action in only(AssignUsername, work.decision.allowed)
        }
        for action in only(BeginUsername, work.decision.allowed):
            if action.offering_user in openings:
                openings[action.offering_user].append(action)
        uuids = [user.uuid for user in work.plan.facts.due if user.uuid in openings]
        for first in range(0, len(uuids), AT_ONCE):
            group = self._with_room(backend, [self._users[uuid] for uuid in uuids[first : first + AT_ONCE]])
            # The last decision was about the answers for the group before.
            work.decide(self.plan(NameFacts(group, {}, ()), is_whole=False))
            yield Portion(tuple(action for user in group for action in openings[user.uuid]))
            if self._is_cut_off:
                return
            # Users whom Waldur did not let begin have moved on: the next pass sees where.
            begun = [now for user in group if planner.opening(now := self._users[user.uuid]) is None]
            answers = self._ask(work, backend, begun)
            asked = [user for user in begun if user.uuid in answers]
            work.decide(self.plan(NameFacts(asked, answers, ()), is_whole=False))
            if work.decision.allowed:
                yield Portion(work.decision.allowed)
            if self._is_cut_off:
                return
        work.decide(self.plan(NameFacts((), {}, self._stale(backend)), is_whole=False))
        if work.decision.allowed:
            yield Portion(work.decision.allowed)

    def _apply(self, backend: UsernameBackend, actions: Sequence[Action]) -> Sequence[Outcome]:
        """Change profiles, and send the calls of each user in their order, several users at once; a failed call ends
        its user's.
        """
        if profiles := only(DirectoryAction, actions):
            return self.note(backend.apply(profiles))
        asked: dict[str, list[Action]] = {}
        for action in actions:
            asked.setdefault(str(getattr(action, "offering_user", "")), []).append(action)

        def send(uuid: str) -> tuple[OfferingUser, list[Outcome]]:
            user, outcomes = self._users[uuid], []
            for action in asked[uuid]:
                state, call = CALLS[type(action)]
                try:
                    answer = call(self._site.client, user, action)
                except WaldurError as error:
                    lacks = isinstance(error, WaldurLacks)
                    if lacks and not isinstance(action, AssignUsername):
                        continue  # a server without this step, or without states at all, does without
                    outcomes.append(Outcome(action, error))
                    break
                user = replace(user, state=state) if state else answer
                outcomes.append(Outcome(action))
            return user, outcomes

        done: list[Outcome] = []
        for uuid, answer in pool.each(asked, send).items():
            if isinstance(answer, WaldurError):  # never: `send` keeps them
                raise answer
            self._users[uuid], outcomes = answer
            done += outcomes
        return self.note(done)

    @property
    def _is_cut_off(self) -> bool:
        return self.error is not None and self.error.retryable

    def _note_site_fault(self, error: SiteAgentError) -> None:
        """Note a fault of the site: logged once in a pass, and no user's state changes for it."""
        if self.error is None:
            log.error("usernames of offering %s: %s", self._site.offering.name, error)
            self.error = error

    def _with_room(self, backend: UsernameBackend, users: Sequence[OfferingUser]) -> Sequence[OfferingUser]:
        """Return the users who can get a name; where a directory has no room for new people, those whom it has."""
        if users and isinstance(backend, UserDirectory):
            try:
                backend.require_room()
            except BackendError as error:
                self._note_site_fault(error)
                if not error.of_host:
                    return ()
                return [user for user in users if _answer(user, self.names.owners, backend.find)]
        return users

    def _ask(
        self, work: Work[PlannedNames], backend: UsernameBackend, users: Sequence[OfferingUser]
    ) -> dict[str, str | SiteAgentError]:
        """Ask the backend for the name of each user, until it is away. Return its answers by uuid."""
        answers: dict[str, str | SiteAgentError] = {}
        for user in users:
            answer = _answer(
                user, self.names.owners, lambda user: self._found(backend, user) or backend.make(user)
            )
            if isinstance(backend, UserDirectory):
                # Entries that the directory made for this person, for the journal.
                made = [Outcome(MakeUser(user=name, reason=planner.whose(user))) for name in backend.made]
                work.note(self.note(made))
                backend.made.clear()
            if isinstance(answer, BackendUnavailable):
                log.warning("usernames: %s; users who were not asked about stay as they are", answer)
                self.error = answer
                return answers
            if isinstance(answer, BackendError) and answer.of_host:
                self._note_site_fault(answer)
            elif isinstance(answer, SiteAgentError):
                log.warning("no username for user %s (%s): %s", user.user_uuid, user.state, answer)
            elif answer:
                self.names.owners[answer] = user.user_uuid
            answers[user.uuid] = answer
        return answers

    def note(self, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        self._outcomes += outcomes
        for outcome in outcomes:
            if isinstance(outcome.error, WaldurError) and outcome.error.status is None:
                self.error = self.error or outcome.error
        return outcomes


@contextmanager
def opened(
    site: Site, owners: Mapping[str, str], snapshot: Snapshot | None
) -> Iterator[UsernameBackend | None]:
    """Connect the offering's username backend; yield None where it is not installed, and no directory has to follow
    Waldur by it. Raises SiteAgentError.

    `owners`: who has, or had, which name.
    """

    def names_on_cluster() -> frozenset[str]:
        seen = snapshot
        if seen is None or Part.ASSOCIATIONS not in seen.complete:
            seen = site.backend.observe(Scope(parts=frozenset({Part.ASSOCIATIONS})))
        seen.require(Part.ASSOCIATIONS)
        return frozenset(user for _, user in seen.members())

    context = UsernameContext(site.offering.uuid, site.state_dir, owners, names_on_cluster)
    try:
        backend = registry.connect(site.offering, context)
    except registry.UsernameBackendMissing as error:
        if registry.follows_waldur(site.offering):
            raise
        log.warning("%s. No usernames are made for offering %s", error, site.offering.name)
        yield None
        return
    try:
        backend.open()
        yield backend
    finally:
        backend.close()


def _due(users: Sequence[OfferingUser], facts: OfferingFacts) -> list[OfferingUser]:
    """Return the users who need a name; none where the offering's options forbid it."""
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
    """Ask the backend for a name. Return it if this person may have it, or the error."""
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
