# SPDX-License-Identifier: MIT
"""Provision the home directories of an offering's users: each is made once and gets its quota once. No failure here
affects anything else.

A user whom the head node does not know waits: counted, logged once, and looked up again in each pass.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from agent.config.homes import HOMES_KEY
from agent.config.model import Mode as PassMode
from agent.config.model import Offering
from agent.core.account_names import fold
from agent.core.actions import Action, Effect, fully_shown
from agent.core.circuit_breaker import CircuitBreaker
from agent.core.errors import (
    BackendError,
    BackendUnavailable,
    ClusterBusy,
    PlanRefused,
    SiteAgentError,
)
from agent.core.homes import NOTHING, Home, HomeRecord
from agent.core.host_actions import HomeAction
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from agent.core.printable import shortlist
from agent.plan import homes as planner
from agent.plan.policy.rules import PolicyContext
from agent.run.engine import Mode, Portion, Work
from agent.run.gate import Pass
from agent.run.handed_on import AccountsInStep
from agent.run.site import Site
from agent.state.hints import HOMES
from agent.state.store import Store
from backends import registry
from backends.base import UserHomes
from backends.lock import WriteLock
from backends.plugins import PluginMissing
from backends.process import CommandMissing
from backends.storage import passwd
from backends.storage.homes import HeadNode, RootNeeded, observe_home

log = logging.getLogger(__name__)

KEY = "homes"
USERS_AT_MOST = 200
BUDGET_S = 60.0
LOCK_WAIT_S = 5.0
NAMED_AT_MOST = 5
# What is noted of a user whom the head node does not know.
WAITING = "waiting"
FAILURES_IN_A_ROW = 20
FAULTS_OF_HOST = (BackendUnavailable, CommandMissing, RootNeeded)
MEMBERS_MODES = (PassMode.MEMBERSHIP_SYNC, PassMode.ORDER_PROCESS)


@dataclass(slots=True)
class HomesReport:
    """Users by what became of their homes."""

    kept: int = 0
    made: list[str] = field(default_factory=list)
    limited: list[str] = field(default_factory=list)
    # Not known to the head node.
    waiting: list[str] = field(default_factory=list)
    # Could not be looked up.
    unknown: list[str] = field(default_factory=list)
    # Left for the next pass.
    later: list[str] = field(default_factory=list)
    failed: dict[str, SiteAgentError] = field(default_factory=dict)
    # Errors that stopped more than one user.
    problems: list[SiteAgentError] = field(default_factory=list)
    # Users who wait or cannot have a home, logged now for the first time.
    newly_logged: list[str] = field(default_factory=list)
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
    is_asked, why = HOMES_KEY in offering.backend_settings, "its backend has no home directories"
    for name in sorted(backends):
        try:
            plugin = registry.load(name)
        except PluginMissing:
            continue
        if isinstance(plugin, UserHomes) and plugin.homes_on_head_node:
            if is_asked or plugin.homes_unasked:
                return ""
            why = f"{HOMES_KEY} is not written, and {name} makes homes only where it is true"
    return why


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
    # How many users could not be looked up, and why.
    unplanned: Sequence[str] = ()


@dataclass(frozen=True)
class PlannedHomes:
    """The actions of each user, in their order."""

    facts: HomeFacts
    of_user: Mapping[str, Sequence[HomeAction]]
    snapshot: Snapshot
    context: PolicyContext = field(default_factory=PolicyContext)
    # Of some users only: a held plan that it lacks may be needed still.
    is_whole: bool = False
    # Sentences on what cannot be planned; and users with something to do that no person was shown.
    unplanned: Sequence[str] = ()
    unshown: Collection[str] = ()

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        return tuple(dict.fromkeys(action for several in self.of_user.values() for action in several))


class Homes(Mode[HomeFacts, PlannedHomes]):
    """The homes that are missing and the quotas that are not set, of the users of the accounts in step.

    At most `at_most` users are worked on and no new step is begun after `budget_s`; the rest is `later` and comes with
    the next pass. `again`: ignore what is remembered of these users. Where a person was shown what is to be done, and
    waits for it, all of that is done, and a user who needs anything else is `later`. In a pass that does not apply all
    users are looked at, however many: no state is written and no process started.
    """

    key = KEY
    optional_name = "homes"
    needs = AccountsInStep

    def __init__(
        self,
        run: Pass,
        *,
        host: HeadNode | None = None,
        at_most: int = USERS_AT_MOST,
        budget_s: float = BUDGET_S,
        again: bool = False,
    ) -> None:
        super().__init__(run)
        self.report = HomesReport()
        self._offering = run.site.offering
        self._rules = run.site.offering.homes
        self._host = host or head_node(run.site)
        self._executed = self._host.executed.copy()
        self._room = at_most if run.shown is None else len(run.shown)
        self._budget_s = budget_s if run.shown is None else math.inf
        self._deadline_s = math.inf
        self._again = again
        self._due: Sequence[str] = ()
        # Of each program: a fault of the host, or so many failures that they are not those of single users.
        self._breakers = defaultdict[str, CircuitBreaker[SiteAgentError]](
            lambda: CircuitBreaker(FAILURES_IN_A_ROW, opens=lambda error: isinstance(error, FAULTS_OF_HOST))
        )
        self._newly_logged: dict[str, list[str]] = {}

    def observe(self) -> HomeFacts | None:
        """Look users and homes up. Where no user is due there is no lock, no look-up and no process. Where all who are
        due still wait for the head node there is no lock.
        """
        in_step = self.run.result(AccountsInStep)
        if in_step is None or not in_step.users or reason_for_none(self._offering):
            return None
        self._deadline_s = time.monotonic() + self._budget_s
        self._recall()
        policy = self._offering.policy
        names = sorted({fold(name) for name in in_step.users if not policy.spares(name)})
        users = planner.sort(names, {} if self._again else self._known, self._rules)
        self._due = users.due
        if not self.run.applies:
            known = passwd.resolve(users.due, self._host.lookup, in_time=self._in_time)
            homes = [observe_home(entry, self._rules) for entry in known.entries]
            unplanned = []
            if known.unknown:
                why = known.trouble or f"{self._budget_s:g} s were not enough"
                unplanned.append(f"{len(known.unknown)} users could not be looked up: {why}")
            return HomeFacts(homes, self._known, unplanned=unplanned)
        is_new = self._again or any(not self._record(name).logged for name in users.refused)
        if users.due or is_new:
            known = passwd.resolve(users.due, self._host.lookup, in_time=self._in_time)
            is_new = is_new or any(self._record(name).logged != WAITING for name in known.absent)
            if is_new or known.entries or known.unknown:
                self.open.enter_context(self._host.lock)
                self.open.callback(self._save)
                return self._observed(names, known)
            self.report.waiting += known.absent
        self.report.kept = len(users.kept)
        self._refuse(users.refused)
        return HomeFacts((), self._known)  # for the gate to forget plans that nothing asks for any more

    def _observed(self, names: Collection[str], known: passwd.Resolved) -> HomeFacts:
        """Look at as many homes as there is time for. Called under the lock, so the remembered state is read once more:
        whose home another pass has made meanwhile is not due any more.
        """
        self._recall()
        if self._again:
            for name in names:
                self._known[name] = replace(self._record(name), home="", failures=0)
        users = planner.sort(names, self._known, self._rules)
        self.report.kept = len(users.kept)
        self._refuse(users.refused)
        due, looked = set(users.due), set(self._due)
        unknown = [name for name in known.unknown if name in due]
        if known.trouble:
            self.report.unknown += unknown
            self.report.problems.append(known.trouble)
        else:
            self.report.later += unknown
        self.report.later += [name for name in users.due if name not in looked]
        for name in filter(due.__contains__, known.absent):
            self.report.waiting.append(name)
            self._note(name, WAITING)
        homes = []
        for entry in known.entries:
            if entry.name not in due:
                continue
            if self._in_time():
                homes.append(observe_home(entry, self._rules))
            else:
                self.report.later.append(entry.name)
        return HomeFacts(homes, dict(self._known), self._again)

    def _in_time(self) -> bool:
        return time.monotonic() < self._deadline_s

    def _recall(self) -> None:
        self._known = HOMES.all(self.site.state_dir, self._offering.uuid) or {}
        self._saved = dict(self._known)

    def _record(self, user: str) -> HomeRecord:
        return self._known.get(user, NOTHING)

    def _save(self) -> None:
        kept = {user: record for user, record in self._known.items() if record != NOTHING}
        if not HOMES.change(self.site.state_dir, self._offering.uuid, self._saved, kept):
            self.report.problems.append(
                BackendError(
                    f"cannot write {Store(self.site.state_dir).path}: homes and quotas are set again in every pass "
                    "until state_dir can be written"
                )
            )

    def plan(self, facts: HomeFacts) -> PlannedHomes:
        found = {
            home.user: planner.actions(
                home, facts.remembered.get(home.user, NOTHING), self._rules, again=facts.again
            )
            for home in facts.homes
        }
        needed = {user: actions for user, actions in found.items() if actions}
        of_user = fully_shown(needed, self.run.shown)
        in_step, shown = self.run.result(AccountsInStep), self.run.shown
        is_whole = in_step is not None and in_step.is_whole and self.run.applies and shown is None
        return PlannedHomes(
            facts,
            of_user,
            Snapshot(self.site.backend.cluster),
            is_whole=is_whole and not (self.report.later or self.report.unknown),
            unplanned=facts.unplanned,
            unshown=needed.keys() - of_user.keys(),
        )

    def notes(self, plan: PlannedHomes) -> Sequence[str]:
        return [f"homes: {words}" for words in plan.unplanned]

    def announce(self, work: Work[PlannedHomes]) -> None:
        """Note the users who need nothing, those whose actions no person was shown, and homes that cannot be
        used.
        """
        self.report.later += sorted(work.plan.unshown)
        for home in work.plan.facts.homes:
            if home.trouble:
                self.report.failed[home.user] = PlanRefused(f"{home.user}: {home.trouble}")
                self._note(home.user, home.trouble)
                continue
            if home.exists:
                remembered = replace(self._record(home.user), home=self._rules.home_mark(), logged="")
                self._known[home.user] = remembered
            if home.user not in work.plan.of_user and home.user not in work.plan.unshown:
                self.report.kept += 1

    def portions(self, work: Work[PlannedHomes]) -> Iterator[Portion]:
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

    def apply(self, actions: Sequence[HomeAction]) -> Sequence[Outcome]:
        """Carry out the actions of one user. After one that fails the others wait."""
        outcomes: list[Outcome] = []
        for action in actions:
            if self._breakers[action.program].error is not None:
                self.report.later.append(action.user)
                break
            outcome = self._host.apply(action)
            self._breakers[action.program].record(outcome.error)
            if isinstance(outcome.error, CommandMissing | RootNeeded):
                # Nothing was tried: logged once, and no outcome of this user's action.
                self._blame_host(action, outcome.error)
                break
            outcomes.append(outcome)
            if not outcome.done:
                break
        return outcomes

    def read_back(self, work: Work[PlannedHomes], portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Count and remember what became of one user: a program that ends well has done its work."""
        self.report.outcomes += outcomes
        for outcome in outcomes:
            action, error = outcome.action, outcome.error
            assert isinstance(action, HomeAction)
            user, program, remembered = action.user, action.program, self._record(action.user)
            if isinstance(error, BackendUnavailable):
                self._blame_host(action, error)
            elif error is not None:
                self.report.failed[user] = error
                self._known[user] = replace(remembered, failures=remembered.failures + 1)
                if self._breakers[program].error is error:
                    self.report.problems.append(
                        BackendError(
                            f"{program} failed {FAILURES_IN_A_ROW} times in a row, the other users are left for later"
                        )
                    )
            elif action.effect is Effect.CHANGE:
                self.report.limited.append(user)
                self._known[user] = replace(remembered, failures=0, logged="", quota=self._rules.quota_mark())
            else:
                self.report.made.append(user)
                self._known[user] = replace(remembered, failures=0, logged="", home=self._rules.home_mark())

    def failed(self, work: Work[PlannedHomes], portion: Portion, error: SiteAgentError) -> None:
        self.report.later.append(portion.actions[0].user)

    def _blame_host(self, action: HomeAction, error: SiteAgentError) -> None:
        """Note a fault of the host: all actions that need the same program are left for the next pass."""
        self.report.problems.append(error)
        self.report.later.append(action.user)

    def _refuse(self, names: Iterable[str]) -> None:
        for name in names:
            why = "not a name that a home can have ([a-z_][a-z0-9_.-]*)"
            self.report.failed[name] = PlanRefused(f"{name!r} is {why}")
            self._note(name, why)

    def _note(self, name: str, what: str) -> None:
        """Remember what is logged of a user, unless it was logged before."""
        if self._record(name).logged != what:
            self._known[name] = replace(self._record(name), logged=what)
            self._newly_logged.setdefault(what, []).append(name)
            self.report.newly_logged.append(name)

    def conclude(self, error: SiteAgentError | None) -> None:
        """Count and log what became of homes: no failure of theirs makes a pass a failed one."""
        done, report = self.report, self.run.report
        if error is not None:
            done.later += self._due
            done.problems.append(
                BackendUnavailable(
                    f"homes of {self._offering.name}: another pass is at work, or hangs: {error}"
                )
                if isinstance(error, ClusterBusy)
                else error
            )
        done.commands = self._host.executed - self._executed
        self._log()
        # As HomesReport counts them, with users apart who can never have a home here.
        counts = {**done.counted(), "refused": len(done.refused)}
        counts["failed"] = len(done.failed) - len(done.refused)
        report.homes = {name: count for name, count in sorted(counts.items()) if count}
        report.home_problems += [f"homes: {problem}" for problem in done.problems]
        # Users who can never have a home here fail the first pass only.
        failed = {u: e for u, e in done.failed.items() if u not in done.refused or u in done.newly_logged}
        if failed:
            user, why = next(iter(failed.items()))
            report.home_problems.append(f"homes of {len(failed)} users failed, the first of {user}: {why}")

    def _log(self) -> None:
        """Log who waits or cannot have a home since this pass, and problems."""
        name = self._offering.name
        for what, users in self._newly_logged.items():
            named = shortlist((repr(user)[1:-1] for user in users), NAMED_AT_MOST)
            if what == WAITING:
                log.warning(
                    "homes of %s wait for users that this head node does not know yet: %s (%d in all)",
                    name, named, len(self.report.waiting),
                )  # fmt: skip
            else:
                log.warning("homes of %s: none for %s: %s", name, named, what)
        for problem in self.report.problems:
            log.error("homes of %s: %s", name, problem)
        if self.report.outcomes or self.report.problems:
            counts = ", ".join(f"{count} {word}" for word, count in self.report.counted().items())
            log.info("homes of %s: %s", name, counts)
