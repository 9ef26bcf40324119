# SPDX-License-Identifier: MIT
"""Keys of resources: made, paused and ended by a backend that has them, as Waldur asks; refused where it has none.

An event tells of one key; polls look for those whose event was lost: of a backend with keys in each pass over orders,
of others in membership passes, where a resource has keys at all. In a pause a request waits; in mode `observe` it is
left to whoever serves the offering. A secret goes from the backend into the request to Waldur, and nowhere else. Where
Waldur does not get it, the key waits there, and the next try makes another secret.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
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
from agent.run.engine import Portion, Steps, Work
from agent.run.gate import Pass
from agent.run.site import Site
from agent.waldur import api_keys, resources
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
    """What Waldur wants done with keys, and the accounts of their resources, by uuid. `is_whole`: with all keys of the
    offering.
    """

    commands: Sequence[KeyCommand]
    accounts: Mapping[str, str]
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

    def observe() -> KeyFacts:
        command = api_keys.get(site.client, key_uuid)
        return _facts(site, [command] if command.state in api_keys.WAITING else [])

    with engine.passing(site, Mode.ORDER_PROCESS, is_recorded=False) as pass_:
        pass_.cause = f"key {key_uuid}"
        if pass_.rules.paused:
            raise OfferingPaused(f"the offering is paused {pass_.rules.paused_why}: the key waits")
        if not gate.may_tell(pass_.rules):
            return f"mode {pass_.rules.mode}: the key is left as it is"
        work = engine.reconcile(pass_, Keys(site, observe).steps())
    if pass_.report.error is not None:
        raise pass_.report.error
    if work.decision.held:
        return "; ".join(f"is held as plan {plan.short_id}: {plan.reason}" for plan in work.decision.held)
    if not work.plan.actions:
        return "nothing is done about the key: Waldur wants nothing of it, or its resource has no account yet"
    return "; ".join(_told(outcome) for outcome in pass_.report.outcomes)


def answer_all(run: Pass, known: Iterable[Resource]) -> None:
    """Answer what Waldur wants of the keys of these resources, as far as they have any. What fails is tried again."""
    with_keys = {resource.uuid: resource.backend_id for resource in known if resource.has_api_keys}
    if with_keys and not _others_make_keys(run.site):
        _answer(run, lambda: KeyFacts(api_keys.waiting(run.site.client), with_keys, is_whole=True))


def answer_pending(run: Pass) -> None:
    """Answer what Waldur wants of any key, where the backend makes keys. What fails is tried again."""
    if keeper_of(run.site) is not None and gate.may_tell(run.rules) and not run.rules.paused:
        _answer(run, lambda: _facts(run.site, api_keys.waiting(run.site.client), is_whole=True))


def plan(site: Site, known: Iterable[Resource]) -> PlannedAnswers:
    """Return what `answer_all` would do now. Changes nothing. Raises SiteAgentError."""
    with_keys = {resource.uuid: resource.backend_id for resource in known if resource.has_api_keys}
    is_asked = with_keys and not _others_make_keys(site)
    found = api_keys.waiting(site.client) if is_asked else []
    return engine.plan_of(Keys(site, lambda: KeyFacts(found, with_keys)).steps())


def plan_pending(site: Site) -> PlannedAnswers:
    """Return what `answer_pending` would do now. Changes nothing. Raises SiteAgentError."""
    commands = api_keys.waiting(site.client) if keeper_of(site) else []
    return engine.plan_of(Keys(site, lambda: _facts(site, commands)).steps())


def going(planned: Sequence[Action], allowed: Set[Action]) -> list[Action]:
    """Return what is done of a plan: Waldur is not told of a key that the cluster may not change."""
    stopped = {each.key for each in planned if isinstance(each, KeyAction) and each not in allowed}
    return [each for each in planned if each in allowed and getattr(each, "key", "") not in stopped]


def _others_make_keys(site: Site) -> bool:
    """Return whether the backend of orders, another one than that of members, answers for keys."""
    other = site.offering.backend_of(Mode.ORDER_PROCESS)
    return bool(other) and other != site.offering.backend_of(Mode.MEMBERSHIP_SYNC)


def _answer(run: Pass, observe: Callable[[], KeyFacts]) -> None:
    try:
        engine.reconcile(run, Keys(run.site, observe).steps())
    except SiteAgentError as error:
        run.report.problems.append(f"keys of resources: {error}")
        run.report.later = run.report.later or (error if error.retryable else None)


def _facts(site: Site, commands: Sequence[KeyCommand], *, is_whole: bool = False) -> KeyFacts:
    """Return the commands with the accounts of their resources, which only a backend with keys needs."""
    if keeper_of(site) is None or not commands:
        return KeyFacts(commands, {}, is_whole)
    found = resources.by_uuid(site.client, {each.resource_uuid for each in commands})
    accounts = {uuid: each.backend_id for uuid, each in found.items() if isinstance(each, Resource)}
    return KeyFacts(commands, accounts, is_whole)


def _told(outcome: Outcome) -> str:
    return outcome.action.line() + (f" failed: {outcome.error}" if outcome.error else "")


class Keys:
    """One run of the loop over keys; secrets live as long as it."""

    def __init__(self, site: Site, observe: Callable[[], KeyFacts]) -> None:
        self._site = site
        self._observe = observe
        self._keeper = keeper_of(site)
        self._made: dict[str, MadeKey] = {}
        self._done: dict[str, Outcome] = {}

    def steps(self) -> Steps[KeyFacts, PlannedAnswers]:
        return Steps(
            key=KEY,
            observe=self._observe,
            plan=self._plan,
            apply=self._apply,
            portions=lambda work: [
                Portion((action,))
                for action in work.plan.actions
                if isinstance(action, KeyAction) and work.allows(action)
            ],
            read_back=lambda _work, _portion, _outcomes: None,
            failed=self._failed,
            tell=self._tell,
            requests={
                RefuseKey: lambda client, a: api_keys.fail(client, a.key, a.message),
                ConfirmKeyDeletion: lambda client, a: api_keys.set_deleted(client, a.key),
                ConfirmKey: lambda client, a: api_keys.confirm(client, a.key, a.state),
                ReportKey: lambda client, a: api_keys.set_key(
                    client, a.key, self._made[a.key].client_id, self._made[a.key].secret
                ),
            },
        )

    def _plan(self, facts: KeyFacts) -> PlannedAnswers:
        found = planner.answers(facts.commands, facts.accounts, makes_keys=self._keeper is not None)
        snapshot = Snapshot(self._site.backend.cluster)
        return PlannedAnswers(tuple(found), snapshot, is_whole=facts.is_whole)

    def _apply(self, actions: Sequence[KeyAction]) -> list[Outcome]:
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

    def _failed(self, work: Work[PlannedAnswers], portion: Portion, error: SiteAgentError) -> None:
        for action in portion.actions:
            self._done.setdefault(action.key, Outcome(action, error))

    def _tell(self, work: Work[PlannedAnswers]) -> None:
        """Tell what became of each key. What may succeed later waits. Raises the error of one that waits."""
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
        """End keys that were issued and that Waldur does not take: it may have forgotten them meanwhile."""
        keys = {action.key for action in unwanted if isinstance(action, ReportKey)}
        ends = [
            EndKey(key=a.key, resource=a.resource, account=a.account, client_id=self._made[a.key].client_id,
                   is_unused=True, reason="Waldur does not take it")
            for a in work.plan.actions
            if isinstance(a, IssueKey) and a.key in keys
        ]  # fmt: skip
        if ends:
            steps = self.steps()
            steps.tell = engine.nothing_to_tell
            engine.carry_out(work.run, steps, PlannedAnswers(ends, work.plan.snapshot))


def _refusals(key: str, outcome: Outcome) -> list[WaldurAction]:
    """Return what the owner of a key is told that the cluster refused for good; nothing where an operator must act."""
    error = outcome.error
    if not isinstance(error, BackendError) or error.retryable or error.of_host:
        return []
    verb = VERBS[type(outcome.action)]
    return [RefuseKey(key=key, message=planner.FAILED.format(verb), reason="the cluster refused")]
