# SPDX-License-Identifier: MIT
"""Provision usernames for an offering's users who have none, and keep profiles up to date.

The backend is opened first and asked person by person; then Waldur gets the result. An outage of the backend changes
no user's state: users who were not asked about stay as they are, and the next pass goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
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
from agent.core.model import OfferingFacts, OfferingUser, Snapshot
from agent.core.plans import Outcome
from agent.plan import usernames as planner
from agent.plan.policy.rules import PolicyContext
from agent.plan.usernames import UserState
from agent.run import waldur_facts
from agent.run.engine import Mode, Portion, Work
from agent.run.gate import Pass
from agent.run.people.naming import Naming
from agent.run.people.posix_accounts import DirectoryAccounts
from agent.run.waldur_facts import members_of
from agent.waldur import offering_users, pool
from agent.waldur.client import WaldurClient
from backends.usernames import nss, registry
from backends.usernames.base import UserDirectory, UsernameBackend
from backends.usernames.candidates import posix_problem

log = logging.getLogger(__name__)

KEY = "usernames"
# Users that are begun, asked about and named together: so many an outage in the middle leaves begun.
AT_ONCE = 50
# What a third party's backend may raise by mistake: it costs one person this pass, not everybody theirs.
PLUGIN_FAULTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


class PluginFault(SiteAgentError):
    """A username backend raised an error that it should not raise: nothing is concluded from it."""


@dataclass(frozen=True)
class NameFacts:
    """The users of an offering who need a name, and what the backend says of them."""

    due: Sequence[OfferingUser]
    # What the backend says of each by uuid, where it was asked: a name, none, or an error.
    answers: Mapping[str, str | SiteAgentError]
    # Changes of profiles that differ from Waldur; which these are is known once the names are given.
    stale: Sequence[DirectoryAction]
    # Why the names wait for a person, empty when they need not.
    waits: str = ""


@dataclass(frozen=True)
class PlannedNames:
    """The calls for each user, as far as they can be known before the backend is asked."""

    actions: Sequence[Action]
    snapshot: Snapshot
    facts: NameFacts
    is_whole: bool = True
    context: PolicyContext = field(default_factory=PolicyContext)


class Usernames(Naming[NameFacts, PlannedNames]):
    """Usernames for people who have none, and their profiles. A pass that does not apply asks the backend for the names
    that it would give.
    """

    key = KEY
    _backend: UsernameBackend

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self._now = {user.key: user for user in self.users}
        self._shown: Set[object] | None = None

    @classmethod
    def each(cls, run: Pass) -> Iterable[Mode[Any, Any]]:
        """Return the mode that fits the offering's directory, and none where it has nothing on the cluster. Raises
        SiteAgentError where Waldur or the cluster cannot be read.
        """
        if waldur_facts.read(run).cluster is None:
            return []
        return [DirectoryAccounts(run) if registry.follows_waldur(run.site.offering) else cls(run)]

    def observe(self) -> NameFacts | None:
        """Look who is to be named. Return None where the backend is not installed. Raises BackendUnavailable where it
        depends on the backend whether the names wait for a person.
        """
        if (backend := self.backend()) is None:
            return None
        self._backend = backend
        due = _due(self.users, self.waldur.offering)
        waits = self._why_names_wait(due)
        if self.run.applies:
            return NameFacts(due, {}, (), waits)
        answers = {
            user.uuid: _answer(user, self.names.owners, lambda u: self._found(u) or self._backend.propose(u))
            for user in due
        }
        return NameFacts(due, answers, self._stale(), waits)

    def _why_names_wait(self, due: Sequence[OfferingUser]) -> str:
        """Return why new names wait for a person, empty when they need not. Raises BackendUnavailable."""
        cluster = self.waldur.cluster
        if not due or cluster is None:
            return ""
        few = self.site.offering.policy.small_removal
        unknown_members = members_of(self.waldur, cluster) - set(map(fold, self.names.reserved))
        new = []
        for user in due if len(unknown_members) > few else ():
            found = _answer(user, self.names.owners, self._found)
            if isinstance(found, BackendUnavailable):
                raise found
            if not found:
                new.append(user)
        return planner.lost_names(new, unknown_members, few)

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
        return PlannedNames(tuple(actions), Snapshot(self.site.backend.cluster), facts, is_whole, context)

    def _found(self, user: OfferingUser) -> str:
        """Return the name that the person has or had; a directory itself remembers whom it has."""
        return self._backend.find(user) or (
            "" if isinstance(self._backend, UserDirectory) else self.names.last_of(user)
        )

    def _stale(self) -> Sequence[DirectoryAction]:
        """Return the changes of profiles of users who may use the cluster now."""
        ready = (UserState.OK, UserState.NONE)
        users = (user for user in self._now.values() if user.username and user.state in ready)
        return self._backend.stale_profiles([user for user in users if not user.is_restricted])

    def portions(self, work: Work[PlannedNames]) -> Iterator[Portion]:
        """Yield the users in groups, until the backend or Waldur is away; then the profiles, also of those who have
        just got a name. What follows from the backend's answers is known, and decided on, when it was asked.
        """
        openings: dict[str, list[Action]] = {
            action.offering_user: []
            for action in only(AssignUsername, filter(work.allows, work.decision.allowed))
        }
        for action in only(BeginUsername, filter(work.allows, work.decision.allowed)):
            if action.offering_user in openings:
                openings[action.offering_user].append(action)
        uuids = [user.uuid for user in work.plan.facts.due if user.uuid in openings]
        for first in range(0, len(uuids), AT_ONCE):
            group = self._with_room([self._now[uuid] for uuid in uuids[first : first + AT_ONCE]])
            # The last decision was about the answers for the group before.
            work.decide(self.plan(NameFacts(group, {}, ()), is_whole=False))
            yield Portion(tuple(action for user in group for action in openings[user.uuid]))
            if self._is_cut_off:
                return
            # Users whom Waldur did not let begin have moved on: the next pass sees where.
            begun = [now for user in group if planner.opening(now := self._now[user.uuid]) is None]
            answers = self._ask(work, begun)
            asked = [user for user in begun if user.uuid in answers]
            work.decide(self.plan(NameFacts(asked, answers, ()), is_whole=False))
            if allowed := tuple(filter(work.allows, work.decision.allowed)):
                yield Portion(allowed)
            if self._is_cut_off:
                return
        work.decide(self.plan(NameFacts((), {}, self._stale()), is_whole=False))
        if allowed := tuple(filter(work.allows, work.decision.allowed)):
            yield Portion(allowed)

    def apply(self, actions: Sequence[Any]) -> Sequence[Outcome]:
        """Change profiles, and send the calls of each user in their order, several users at once; a failed call ends
        its user's.
        """
        if profiles := only(DirectoryAction, actions):
            return self._noted(self._backend.apply(profiles))
        asked: dict[str, list[Action]] = {}
        for action in actions:
            asked.setdefault(str(getattr(action, "offering_user", "")), []).append(action)
        done: list[Outcome] = []
        for uuid, answer in pool.each(asked, lambda uuid: self._sent(self._now[uuid], asked[uuid])).items():
            if isinstance(answer, WaldurError):  # never: `_sent` keeps them
                raise answer
            self._now[uuid], outcomes = answer
            done += outcomes
        return self._noted(done)

    def _sent(self, user: OfferingUser, actions: Sequence[Action]) -> tuple[OfferingUser, list[Outcome]]:
        """Send the calls of one user. Return the user as it is then, and the outcomes."""
        outcomes: list[Outcome] = []
        for action in actions:
            state, call = CALLS[type(action)]
            try:
                answer = call(self.site.client, user, action)
            except WaldurError as error:
                lacks = isinstance(error, WaldurLacks)
                if lacks and not isinstance(action, AssignUsername):
                    continue  # a server without this step, or without states at all, does without
                outcomes.append(Outcome(action, error))
                break
            user = replace(user, state=state) if state else answer
            outcomes.append(Outcome(action))
        return user, outcomes

    def read_back(self, work: Work[PlannedNames], portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Believe Waldur's answers: they have the users as they are then."""

    def failed(self, work: Work[PlannedNames], portion: Portion, error: SiteAgentError) -> None:
        self._note_site_fault(error)

    @property
    def _is_cut_off(self) -> bool:
        return self.error is not None and self.error.retryable

    def _note_site_fault(self, error: SiteAgentError) -> None:
        """Note a fault of the site: logged once in a pass, and no user's state changes for it."""
        if self.error is None:
            log.error("usernames of offering %s: %s", self.site.offering.name, error)
            self.error = error

    def _with_room(self, users: Sequence[OfferingUser]) -> Sequence[OfferingUser]:
        """Return the users who can get a name; where a directory has no room for new people, those whom it has."""
        backend = self._backend
        if users and isinstance(backend, UserDirectory):
            try:
                backend.require_room()
            except BackendError as error:
                self._note_site_fault(error)
                if not error.of_host:
                    return ()
                return [user for user in users if _answer(user, self.names.owners, self._backend.find)]
        return users

    def _ask(
        self, work: Work[PlannedNames], users: Sequence[OfferingUser]
    ) -> dict[str, str | SiteAgentError]:
        """Ask the backend for the name of each user, until it is away. Return its answers by uuid."""
        backend = self._backend
        answers: dict[str, str | SiteAgentError] = {}
        for user in users:
            answer = _answer(user, self.names.owners, lambda u: self._found(u) or self._backend.make(u))
            if isinstance(backend, UserDirectory):
                # Entries that the directory made for this person, for the journal.
                made = [Outcome(MakeUser(user=name, reason=planner.whose(user))) for name in backend.made]
                work.note(self._noted(made))
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

    def _noted(self, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        self.outcomes += outcomes
        for outcome in outcomes:
            if isinstance(outcome.error, WaldurError) and outcome.error.status is None:
                self.error = self.error or outcome.error
        return outcomes

    def users_after(self, plan: PlannedNames, happened: Iterable[Action]) -> Sequence[OfferingUser]:
        """Return the users as Waldur has them; a name that would be given counts from the next pass on."""
        return tuple(self._now.values())

    def leave(self, work: Work[PlannedNames]) -> None:
        super().leave(work)
        if not self.run.applies and only(AssignUsername, work.done):
            self.run.report.notes.append("who gets a username now joins the accounts in the next pass")

    def was_shown(self, action: Action, shown: Set[Action]) -> bool:
        """Return whether a person was shown this; of what is done for a user, the kind is enough: the name itself
        is known once it is given.
        """
        if self._shown is None:
            self._shown = {_kind_of(each) for each in shown}
        return _kind_of(action) in self._shown

    def conclude(self, error: SiteAgentError | None) -> None:
        self.users = tuple(self._now.values())
        super().conclude(error)


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


def _kind_of(action: Action) -> object:
    """Return the same for all that may be done of one kind for one offering user; another action itself."""
    user = getattr(action, "offering_user", None)
    return action if user is None else (type(action), user)


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


def _comments(action: AskAccountLinking | AskValidation) -> dict[str, str]:
    return {"comment": action.comment, "comment_url": action.comment_url}


# The request of each kind of action, and the state that the user has then; with a name Waldur says that itself.
CALLS: Mapping[type[Action], tuple[UserState | None, Callable[[WaldurClient, OfferingUser, Any], Any]]] = {
    BeginUsername: (
        UserState.CREATING,
        lambda client, user, _: offering_users.move(client, user.uuid, "begin_creating"),
    ),
    CompleteValidation: (
        UserState.OK,
        lambda client, user, _: offering_users.move(client, user.uuid, "set_validation_complete"),
    ),
    AssignUsername: (
        None,
        lambda client, user, action: offering_users.assign_username(client, user, action.username),
    ),
    AskAccountLinking: (
        UserState.PENDING_LINKING,
        lambda client, user, a: offering_users.move(
            client, user.uuid, "set_pending_account_linking", _comments(a)
        ),
    ),
    AskValidation: (
        UserState.PENDING_VALIDATION,
        lambda client, user, a: offering_users.move(
            client, user.uuid, "set_pending_additional_validation", _comments(a)
        ),
    ),
    FailUsername: (
        UserState.ERROR_CREATING,
        lambda client, user, _: offering_users.move(client, user.uuid, "set_error_creating"),
    ),
}
