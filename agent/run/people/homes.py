# SPDX-License-Identifier: MIT
"""Provision the home directories of an offering's users: each is made once and gets its quota once. No failure here
stops anything else.

A user whom the head node does not know waits: counted, logged once, and looked up again in each pass.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from agent.config.model import Mode, Offering
from agent.core.account_names import fold
from agent.core.actions import Action, Effect, wholly_shown
from agent.core.errors import (
    BackendError,
    BackendUnavailable,
    ClusterBusy,
    PlanRefused,
    SiteAgentError,
    StateError,
)
from agent.core.homes import NOTHING, Home, HomeRecord, HomeRules
from agent.core.host_actions import HomeAction
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from agent.plan import homes as planner
from agent.plan.policy.rules import PolicyContext
from agent.run import engine
from agent.run.engine import Portion, Steps, Work
from agent.run.gate import Pass
from agent.run.site import Site
from agent.state.homes import HomeState
from backends import registry
from backends.base import UserHomes
from backends.lock import WriteLock
from backends.process import CommandMissing
from backends.storage import passwd
from backends.storage.homes import HeadNode, RootNeeded, observe_home

log = logging.getLogger(__name__)

KEY = "homes"
USERS_AT_MOST = 200
BUDGET_S = 60.0
LOCK_WAIT_S = 5.0
NAMED_AT_MOST = 5
FAILURES_IN_A_ROW = 20
MEMBERS_MODES = (Mode.MEMBERSHIP_SYNC, Mode.ORDER_PROCESS)


@dataclass(slots=True)
class HomesReport:
    """Users by what became of their homes. `waiting`: not known to the head node; `unknown`: could not be looked up;
    `later`: left for the next pass; `problems`: errors that stopped more than one user; `news`: users who wait or
    cannot have a home, logged now for the first time.
    """

    kept: int = 0
    made: list[str] = field(default_factory=list)
    limited: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    failed: dict[str, SiteAgentError] = field(default_factory=dict)
    problems: list[SiteAgentError] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    commands: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Return whether nothing failed: waiting and later are no faults."""
        return not self.failed and not self.problems

    @property
    def refused(self) -> dict[str, SiteAgentError]:
        """Return those of the failed who can never have a home here: users of the system, wrong names."""
        return {user: error for user, error in self.failed.items() if isinstance(error, PlanRefused)}

    def counted(self) -> dict[str, int]:
        """Return how many users there are of each kind, without zeros."""
        found = {"kept": self.kept, "failed": len(self.failed)}
        for name in ("made", "limited", "waiting", "unknown", "later"):
            found[name] = len(getattr(self, name))
        return {name: count for name, count in sorted(found.items()) if count}

    def as_json(self) -> dict[str, Any]:
        return {
            "kept": self.kept,
            "made": self.made,
            "quotas": self.limited,
            "waiting": self.waiting,
            "unknown": self.unknown,
            "later": self.later,
            "failed": {user: str(error) for user, error in self.failed.items()},
            "problems": [str(problem) for problem in self.problems],
            "actions": [
                {**o.action.as_json(), "error": str(o.error) if o.error else None} for o in self.outcomes
            ],
            "commands": dict(self.commands),
        }


def reason_for_none(offering: Offering) -> str:
    """Return why no homes are made for this offering; empty when they are."""
    if not offering.homes.create:
        return "enable_user_homedir_account_creation is false"
    backends = {name for name in map(offering.backend_of, MEMBERS_MODES) if name} & set(registry.installed())
    for name in backends:
        try:
            plugin = registry.load(name)
        except registry.BackendNotInstalled:
            continue
        if isinstance(plugin, UserHomes) and plugin.homes_on_head_node:
            return ""
    return "its backend has no home directories"


def head_node(site: Site) -> HeadNode:
    """Return this host, with the lock that keeps two passes over one offering's homes apart."""
    lock = WriteLock(site.state_dir, f"homes-{site.offering.uuid}", wait_s=LOCK_WAIT_S)
    return HeadNode(lock)


@dataclass(frozen=True)
class HomeFacts:
    """Homes as the head node has them, and the remembered state of their users."""

    homes: Sequence[Home]
    remembered: Mapping[str, HomeRecord]
    again: bool = False


@dataclass(frozen=True)
class PlannedHomes:
    """The actions of each user, in their order."""

    facts: HomeFacts
    of_user: Mapping[str, Sequence[HomeAction]]
    snapshot: Snapshot
    context: PolicyContext = field(default_factory=PolicyContext)
    # Of some users only: a held plan that it lacks may be needed still.
    is_whole: bool = False
    # What cannot be planned, for people; and users with something to do that nobody was shown.
    told: Sequence[str] = ()
    unshown: Collection[str] = ()

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        return tuple(dict.fromkeys(action for several in self.of_user.values() for action in several))


def plan(
    site: Site,
    usernames: Collection[str],
    *,
    host: HeadNode | None = None,
    budget_s: float = BUDGET_S,
) -> PlannedHomes:
    """Return what `provision` would do for all of these users, however many. Changes nothing, and starts no process;
    users who are not looked up within `budget_s` are `told`.
    """
    snapshot = Snapshot(site.backend.cluster)
    if not usernames or reason_for_none(site.offering):
        return PlannedHomes(HomeFacts((), {}), {}, snapshot)
    host, deadline_s = host or head_node(site), time.monotonic() + budget_s
    rules = site.offering.homes
    state = HomeState(site.state_dir, site.offering.uuid)
    due = planner.sort(_names(site, usernames), state.users, rules).due
    known = passwd.resolve(due, host.lookup, in_time=lambda: time.monotonic() < deadline_s)
    homes = [observe_home(entry, rules) for entry in known.entries]
    told = []
    if known.unknown:
        why = known.trouble or f"{budget_s:g} s were not enough"
        told.append(f"{len(known.unknown)} users could not be looked up: {why}")
    return replace(planned(HomeFacts(homes, state.users), rules, snapshot), told=told)


def planned(facts: HomeFacts, rules: HomeRules, snapshot: Snapshot) -> PlannedHomes:
    """Plan the homes to be made and the quotas to be set. Pure."""
    of_user = {
        home.user: planner.actions(home, facts.remembered.get(home.user, NOTHING), rules, again=facts.again)
        for home in facts.homes
    }
    return PlannedHomes(facts, {user: actions for user, actions in of_user.items() if actions}, snapshot)


def provision(  # noqa: PLR0913  each bounds what one caller wants done
    run: Pass,
    usernames: Collection[str],
    *,
    host: HeadNode | None = None,
    at_most: int = USERS_AT_MOST,
    budget_s: float = BUDGET_S,
    again: bool = False,
    shown: Collection[Action] | None = None,
    is_whole: bool = False,
) -> HomesReport:
    """Make the homes that are missing and set the quotas that are not set. Raises nothing. `is_whole`: these are all
    users of the offering, so that a held plan which is not made again is gone.

    At most `at_most` users are worked on and no new step is begun after `budget_s`; the rest is `later` and comes with
    the next pass. `again`: ignore what is remembered of these users. `shown`: what somebody has looked at and
    waits for; all of that is done, and a user who needs anything else is `later`.
    """
    if not usernames or reason_for_none(run.site.offering):
        return HomesReport()
    host = host or head_node(run.site)
    if shown is not None:
        at_most, budget_s = len(shown), math.inf
    deadline_s = time.monotonic() + budget_s
    provisioning = _HomeProvisioning(
        run, host, at_most, lambda: time.monotonic() < deadline_s, shown, is_whole=is_whole
    )
    provisioning.run(_names(run.site, usernames), again=again)
    provisioning.log()
    return provisioning.report


def _names(site: Site, usernames: Iterable[str]) -> list[str]:
    """Return the names as the cluster spells them, without users whom the policy protects."""
    return sorted({fold(name) for name in usernames if not site.offering.policy.spares(name)})


class _HomeProvisioning:
    """One call of `provision`: the remembered state of each user, and the report."""

    def __init__(
        self,
        run: Pass,
        host: HeadNode,
        at_most: int,
        in_time: Callable[[], bool],
        shown: Collection[Action] | None,
        *,
        is_whole: bool,
    ) -> None:
        self.report = HomesReport()
        self._is_whole = is_whole
        self._run = run
        self._offering = run.site.offering
        self._rules = run.site.offering.homes
        self._host = host
        self._room = at_most
        self._in_time = in_time
        self._shown = None if shown is None else frozenset(shown)
        self._state_dir = run.site.state_dir
        self._state = HomeState(self._state_dir, self._offering.uuid)
        self._useless: set[str] = set()
        self._in_a_row: Counter[str] = Counter()
        self._news: dict[str, list[str]] = {}

    def run(self, names: Collection[str], *, again: bool) -> None:
        """Run the loop. Where nobody is due there is no lock, no look-up and no process."""
        users = planner.sort(names, {} if again else self._state.users, self._rules)
        if not users.due and not any(not self._state[name].told for name in users.refused):
            self.report.kept = len(users.kept)
            self._refuse(users.refused)
            return
        before = self._host.executed.copy()
        steps: Steps[HomeFacts, PlannedHomes] = Steps(
            key=KEY,
            observe=lambda: self._observe(names, again=again),
            plan=self._plan,
            announce=self._announce,
            portions=self._portions,
            apply=self._apply,
            read_back=self._note_outcomes,
            failed=lambda _work, portion, _error: self.report.later.append(portion.actions[0].user),
            tell=engine.nothing_to_tell,
        )
        try:
            with self._host.lock:
                try:
                    engine.reconcile(self._run, steps)
                finally:
                    if not self._state.save():
                        self.report.problems.append(
                            BackendError(
                                f"cannot write {self._state.path}: homes and quotas are set again in every pass "
                                "until state_dir can be written"
                            )
                        )
        except ClusterBusy as busy:
            self.report.later += users.due
            self.report.problems.append(
                BackendUnavailable(
                    f"homes of {self._offering.name}: another pass is at work, or hangs: {busy}"
                )
            )
        except (BackendError, StateError) as error:
            self.report.later += users.due
            self.report.problems.append(error)
        self.report.commands = self._host.executed - before

    def _observe(self, names: Collection[str], *, again: bool) -> HomeFacts:
        """Look users and homes up. Called under the lock, so the remembered state is read once more."""
        self._state = HomeState(self._state_dir, self._offering.uuid)
        if again:
            for name in names:
                self._state[name] = replace(self._state[name], home="", failures=0)
        users = planner.sort(names, self._state.users, self._rules)
        self.report.kept = len(users.kept)
        self._refuse(users.refused)
        known = passwd.resolve(users.due, self._host.lookup, in_time=self._in_time)
        if known.trouble:
            self.report.unknown += known.unknown
            self.report.problems.append(known.trouble)
        else:
            self.report.later += known.unknown
        for name in known.absent:
            self.report.waiting.append(name)
            self._note(name, "waiting")
        homes = []
        for entry in known.entries:
            if self._in_time():
                homes.append(observe_home(entry, self._rules))
            else:
                self.report.later.append(entry.name)
        return HomeFacts(homes, dict(self._state.users), again)

    def _plan(self, facts: HomeFacts) -> PlannedHomes:
        found = planned(facts, self._rules, Snapshot(self._run.site.backend.cluster))
        of_user = wholly_shown(found.of_user, self._shown)
        is_whole = self._is_whole and self._shown is None and not (self.report.later or self.report.unknown)
        unshown = found.of_user.keys() - of_user.keys()
        return replace(found, of_user=of_user, unshown=unshown, is_whole=is_whole)

    def _announce(self, work: Work[PlannedHomes]) -> None:
        """Note the users who need nothing, those of whom nobody was shown what they need, and homes that cannot be
        used.
        """
        self.report.later += sorted(work.plan.unshown)
        for home in work.plan.facts.homes:
            if home.trouble:
                self.report.failed[home.user] = PlanRefused(f"{home.user}: {home.trouble}")
                self._note(home.user, home.trouble)
                continue
            if home.exists:
                remembered = replace(self._state[home.user], home=self._rules.home_mark(), told="")
                self._state[home.user] = remembered
            if home.user not in work.plan.of_user and home.user not in work.plan.unshown:
                self.report.kept += 1

    def _portions(self, work: Work[PlannedHomes]) -> Iterator[Portion]:
        """Yield the actions of one user after the other. Users beyond the limit of number or time are `later`, and so
        are those who wait for an approval.
        """
        held = {action for plan in work.decision.held for action in plan.actions}
        for user, actions in work.plan.of_user.items():
            allowed = tuple(action for action in actions if work.allows(action))
            if not allowed:
                self.report.later += [] if held.isdisjoint(actions) else [user]
                continue
            if not self._in_time() or self._room <= 0:
                self.report.later.append(user)
                continue
            self._room -= 1
            yield Portion(allowed)

    def _apply(self, actions: Sequence[HomeAction]) -> Sequence[Outcome]:
        """Carry out the actions of one user. After one that fails the others wait."""
        outcomes: list[Outcome] = []
        for action in actions:
            if action.program in self._useless:
                self.report.later.append(action.user)
                break
            outcome = self._host.apply(action)
            if isinstance(outcome.error, CommandMissing | RootNeeded):
                # Nothing was tried: a fault of the host, logged once, and no outcome of this user's action.
                self._blame_host(action, outcome.error)
                break
            outcomes.append(outcome)
            if not outcome.done:
                break
        return outcomes

    def _note_outcomes(self, _work: object, _portion: Portion, outcomes: Sequence[Outcome]) -> None:
        self.report.outcomes += outcomes
        for outcome in outcomes:
            action, error = outcome.action, outcome.error
            assert isinstance(action, HomeAction)
            user, program, remembered = action.user, action.program, self._state[action.user]
            if isinstance(error, BackendUnavailable):
                self._blame_host(action, error)
            elif error is not None:
                self.report.failed[user] = error
                self._state[user] = replace(remembered, failures=remembered.failures + 1)
                self._in_a_row[program] += 1
                if self._in_a_row[program] >= FAILURES_IN_A_ROW:
                    # No longer the fault of single users.
                    self._useless.add(program)
                    self.report.problems.append(
                        BackendError(
                            f"{program} failed {FAILURES_IN_A_ROW} times in a row, the other users are left for later"
                        )
                    )
            elif action.effect is Effect.CHANGE:
                self._in_a_row[program] = 0
                self.report.limited.append(user)
                self._state[user] = replace(remembered, failures=0, told="", quota=self._rules.quota_mark())
            else:
                self._in_a_row[program] = 0
                self.report.made.append(user)
                self._state[user] = replace(remembered, failures=0, told="", home=self._rules.home_mark())

    def _blame_host(self, action: HomeAction, error: SiteAgentError) -> None:
        """Note a fault of the host: all actions that need the same program are left for the next pass."""
        self.report.problems.append(error)
        self.report.later.append(action.user)
        self._useless.add(action.program)

    def _refuse(self, names: Iterable[str]) -> None:
        for name in names:
            why = "not a name that a home can have ([a-z_][a-z0-9_.-]*)"
            self.report.failed[name] = PlanRefused(f"{name!r} is {why}")
            self._note(name, why)

    def _note(self, name: str, what: str) -> None:
        """Remember what is logged of a user, unless it was logged before."""
        if self._state[name].told != what:
            self._state[name] = replace(self._state[name], told=what)
            self._news.setdefault(what, []).append(name)
            self.report.news.append(name)

    def log(self) -> None:
        """Log who waits or cannot have a home since this pass, and problems."""
        name = self._offering.name
        for what, users in self._news.items():
            named = ", ".join(repr(user)[1:-1] for user in users[:NAMED_AT_MOST])
            more = f" and {len(users) - NAMED_AT_MOST} more" if len(users) > NAMED_AT_MOST else ""
            if what == "waiting":
                log.warning(
                    "homes of %s wait for users that this head node does not know yet: %s%s (%d in all)",
                    name, named, more, len(self.report.waiting),
                )  # fmt: skip
            else:
                log.warning("homes of %s: none for %s%s: %s", name, named, more, what)
        for problem in self.report.problems:
            log.error("homes of %s: %s", name, problem)
        if self.report.outcomes or self.report.problems:
            counts = ", ".join(f"{count} {word}" for word, count in self.report.counted().items())
            log.info("homes of %s: %s", name, counts)
