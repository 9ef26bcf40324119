# SPDX-License-Identifier: MIT
"""Keys of resources: made, paused and ended by a backend that has them, as Waldur asks; refused where it has none.

An event names one key; polls look for those whose event was lost: of a backend with keys in each pass over orders,
of others in membership passes, where a resource has keys at all. In a pause a request waits; in mode `observe` it is
left to whoever serves the offering. A secret goes from the backend into the request to Waldur, and nowhere else. Where
Waldur does not get it, the key waits there, and the next try makes another secret.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from agent.config.model import Mode
from agent.core.account_names import fold
from agent.core.actions import Action
from agent.core.errors import BackendError, OfferingPaused, SiteAgentError
from agent.core.key_actions import (
    ConfirmKey,
    EndKey,
    IssueKey,
    KeyAction,
    PauseKey,
    ReportKey,
    ResumeKey,
)
from agent.core.model import KeyCommand, Resource, Snapshot
from agent.core.plans import Outcome
from agent.core.waldur_actions import ConfirmKeyDeletion, RefuseKey, WaldurAction
from agent.plan import api_keys as planner
from agent.plan.policy.rules import PolicyContext
from agent.run import engine, gate
from agent.run.engine import Portion, Work
from agent.run.gate import Pass
from agent.run.site import Site
from agent.run.waldur_facts import MembershipFacts
from agent.waldur import api_keys, resources
from agent.waldur.client import WaldurClient
from backends.base import KeyKeeper, KeyPower, MadeKey

KEY = "api_keys"
VERBS: Mapping[type[Action], str] = {
    IssueKey: "issue",
    PauseKey: "pause",
    ResumeKey: "resume",
    EndKey: "end",
}


@dataclass(frozen=True)
class KeyFacts:
    """What Waldur wants done with keys."""

    commands: Sequence[KeyCommand]
    # Of their resources, by uuid.
    accounts: Mapping[str, str]
    # With all keys of the offering.
    is_whole: bool = False


@dataclass(frozen=True)
class PlannedAnswers:
    """What is done about the keys, on the cluster and in Waldur."""

    actions: Sequence[Action]
    snapshot: Snapshot
    is_whole: bool = False

    @property
    def context(self) -> PolicyContext:
        """Return the accounts of the keys: Waldur names them."""
        return PolicyContext(
            named=frozenset(fold(key.account) for key in self.actions if isinstance(key, KeyAction))
        )


def keeper_of(site: Site) -> KeyKeeper | None:
    """Return what makes keys of the site's backend, None where it makes none."""
    return site.backend.keys if isinstance(site.backend, KeyPower) else None


def answer(site: Site, key_uuid: str) -> str:
    """Answer what Waldur wants of one key. Return a sentence on it. Raises SiteAgentError."""
    with engine.passing(site, Mode.ORDER_PROCESS, is_recorded=False) as pass_:
        pass_.cause = f"key {key_uuid}"
        if pass_.rules.paused:
            raise OfferingPaused(f"the offering is paused {pass_.rules.paused_why}: the key waits")
        if not gate.may_report(pass_.rules):
            return f"mode {pass_.rules.mode}: the key is left as it is"
        work = engine.reconcile(pass_, OneKey(pass_, key_uuid))
    if pass_.report.error is not None:
        raise pass_.report.error
    assert work is not None
    if work.decision.held:
        return "; ".join(f"is held as plan {plan.short_id}: {plan.reason}" for plan in work.decision.held)
    if not work.plan.actions:
        return "nothing is done about the key: Waldur wants nothing of it, or its resource has no account yet"
    return "; ".join(
        outcome.action.line() + (f" failed: {outcome.error}" if outcome.error else "")
        for outcome in pass_.report.outcomes
    )


def going(planned: Sequence[Action], allowed: Set[Action]) -> list[Action]:
    """Return what is done of a plan: a key that the cluster may not change is not reported."""
    stopped = {each.key for each in planned if isinstance(each, KeyAction) and each not in allowed}
    return [each for each in planned if each in allowed and getattr(each, "key", "") not in stopped]


def _facts(site: Site, commands: Sequence[KeyCommand], *, is_whole: bool = False) -> KeyFacts:
    """Return the commands with the accounts of their resources, which only a backend with keys needs."""
    if keeper_of(site) is None or not commands:
        return KeyFacts(commands, {}, is_whole)
    found = resources.by_uuid(site.client, {each.resource_uuid for each in commands})
    accounts = {uuid: each.backend_id for uuid, each in found.items() if isinstance(each, Resource)}
    return KeyFacts(commands, accounts, is_whole)


class Keys(engine.Mode[KeyFacts, PlannedAnswers]):
    """The keys of a pass over everything: all of a backend that makes keys in one over orders, those of the resources
    that have any in one over members. Secrets live as long as it.
    """

    key = KEY
    optional_name = "keys of resources"
    is_of_whole_passes = True

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self._keeper = keeper_of(run.site)
        self._made: dict[str, MadeKey] = {}
        self._done: dict[str, Outcome] = {}
        self.requests = {ReportKey: self._set_key}

    def observe(self) -> KeyFacts | None:
        run, client = self.run, self.site.client
        if run.mode is Mode.ORDER_PROCESS:
            return (
                None if self._keeper is None else _facts(self.site, api_keys.waiting(client), is_whole=True)
            )
        waldur = run.result(MembershipFacts)
        known = waldur.resources if waldur else ()
        with_keys = {each.uuid: each.backend_id for each in known if each.has_api_keys}
        # The backend of orders answers for keys, where it is another one than that of members.
        of_orders = self.site.offering.backend_of(Mode.ORDER_PROCESS)
        if not with_keys or of_orders not in ("", self.site.offering.backend_of(Mode.MEMBERSHIP_SYNC)):
            return None
        return KeyFacts(api_keys.waiting(client), with_keys, is_whole=True)

    def portions(self, work: Work[PlannedAnswers]) -> Iterator[Portion]:
        for action in work.plan.actions:
            if isinstance(action, KeyAction) and work.allows(action):
                yield Portion((action,))

    def shows(self, work: Work[PlannedAnswers]) -> Sequence[Action]:
        return going(work.plan.actions, frozenset(work.decision.allowed))

    def read_back(self, work: Work[PlannedAnswers], portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Believe the backend: nothing shows a key."""

    def _set_key(self, client: WaldurClient, action: ReportKey) -> None:
        made = self._made[action.key]
        api_keys.set_key(client, action.key, made.client_id, made.secret)

    def plan(self, facts: KeyFacts) -> PlannedAnswers:
        found = planner.actions(facts.commands, facts.accounts, makes_keys=self._keeper is not None)
        snapshot = Snapshot(self.site.backend.cluster)
        return PlannedAnswers(tuple(found), snapshot, is_whole=facts.is_whole)

    def apply(self, actions: Sequence[KeyAction]) -> list[Outcome]:
        """Carry one action out. What a backend answers is in no outcome: it may be the secret."""
        (action,) = actions
        assert self._keeper is not None
        started_s, error = time.monotonic(), None
        try:
            match action:
                case IssueKey():
                    self._made[action.key] = self._keeper.issue(action.account, action.client_id)
                case PauseKey() | ResumeKey():
                    self._keeper.set_paused(action.account, action.client_id, isinstance(action, PauseKey))
                case _:
                    self._keeper.end(action.account, action.client_id)
        except BackendError as raised:
            error = raised
        outcome = Outcome(action, error, (), time.monotonic() - started_s)
        self._done[action.key] = outcome
        return [outcome]

    def failed(self, work: Work[PlannedAnswers], portion: Portion, error: SiteAgentError) -> None:
        for action in portion.actions:
            self._done.setdefault(action.key, Outcome(action, error))

    def tell(self, work: Work[PlannedAnswers]) -> None:
        """Report what became of each key. What may succeed later waits. Raises the error of one that waits."""
        on_cluster = {action.key for action in work.plan.actions if isinstance(action, KeyAction)}
        actions: list[WaldurAction] = []
        waiting: list[SiteAgentError] = []
        for action in work.plan.actions:
            if isinstance(action, ReportKey | ConfirmKey | ConfirmKeyDeletion | RefuseKey):
                outcome = self._done.get(action.key)
                if action.key not in on_cluster or (outcome and outcome.error is None):
                    actions.append(action)
                elif outcome and outcome.error:
                    actions += _refusals(action.key, outcome)
                    waiting += [outcome.error] if outcome.error.retryable else []
        errors = work.send(actions)
        self._withdraw(work, [action for action, error in errors.items() if not error.retryable])
        for error in (*errors.values(), *waiting):
            if error.retryable:
                raise error

    def _withdraw(self, work: Work[PlannedAnswers], unwanted: Sequence[Action]) -> None:
        """End keys that were issued and that Waldur does not take: it may have deleted them since."""
        keys = {action.key for action in unwanted if isinstance(action, ReportKey)}
        ends = [
            EndKey(key=a.key, resource=a.resource, account=a.account, client_id=self._made[a.key].client_id,
                   is_unused=True, reason="Waldur does not take it")
            for a in work.plan.actions
            if isinstance(a, IssueKey) and a.key in keys
        ]  # fmt: skip
        if ends:
            engine.carry_out(work.run, Withdrawn(work.run), PlannedAnswers(ends, work.plan.snapshot))


class OneKey(Keys):
    """What Waldur wants of one key, which an event named."""

    def __init__(self, run: Pass, key_uuid: str) -> None:
        super().__init__(run)
        self._uuid = key_uuid

    def observe(self) -> KeyFacts:
        command = api_keys.get(self.site.client, self._uuid)
        return _facts(self.site, [command] if command.state in api_keys.WAITING else [])


class Withdrawn(Keys):
    """The end of keys that were issued just now and not reported: no part of what was shown."""

    def tell(self, work: Work[PlannedAnswers]) -> None:
        """Waldur knows none of them."""

    def was_shown(self, action: Action, shown: Set[Action]) -> bool:
        return True


def _refusals(key: str, outcome: Outcome) -> list[WaldurAction]:
    """Return the report to the owner of a key that the cluster refused; nothing where it may succeed later, or an
    operator must act.
    """
    error = outcome.error
    if not isinstance(error, BackendError) or error.retryable or error.of_host:
        return []
    verb = VERBS[type(outcome.action)]
    return [RefuseKey(key=key, message=planner.FAILED.format(verb), reason="the cluster refused")]
