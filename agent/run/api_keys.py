# SPDX-License-Identifier: MIT
"""Keys of resources: no backend here makes any, which Waldur is told, so that nobody waits for one.

An event tells of one key; a membership pass looks for those whose event was lost, where a resource has keys at all. In
a pause a request waits; in mode `observe` it is left to whoever serves the offering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.config.model import Mode
from agent.core.errors import OfferingPaused, SiteAgentError
from agent.core.model import KeyCommand, Resource, Snapshot
from agent.core.waldur_actions import ConfirmKeyDeletion, RefuseKey, WaldurAction
from agent.plan import api_keys as planner
from agent.plan.policy.rules import PolicyContext
from agent.run import engine, gate
from agent.run.engine import Request, Steps, Work
from agent.run.gate import Pass
from agent.run.site import Site
from agent.waldur import api_keys

KEY = "api_keys"
REQUESTS: Mapping[type[WaldurAction], Request] = {
    RefuseKey: lambda client, a: api_keys.fail(client, a.key, a.message),
    ConfirmKeyDeletion: lambda client, a: api_keys.set_deleted(client, a.key),
}


@dataclass(frozen=True)
class PlannedAnswers:
    """The answers to what Waldur wants done with keys."""

    actions: Sequence[WaldurAction]
    snapshot: Snapshot
    context: PolicyContext = field(default_factory=PolicyContext)
    is_whole: bool = False


def answer(site: Site, key_uuid: str) -> str:
    """Answer what Waldur wants of one key. Return a sentence on it. Raises SiteAgentError."""
    said = "nothing is wanted of the key any more"

    def observe() -> Sequence[KeyCommand]:
        command = api_keys.get(site.client, key_uuid)
        return [command] if command.state in api_keys.WAITING else []

    with engine.passing(site, Mode.ORDER_PROCESS, is_recorded=False) as pass_:
        pass_.cause = f"key {key_uuid}"
        if pass_.rules.paused:
            raise OfferingPaused(f"the offering is paused {pass_.rules.paused_why}: the key waits")
        if not gate.may_tell(pass_.rules):
            return f"mode {pass_.rules.mode}: the key is left as it is"
        for action in engine.reconcile(pass_, _steps(site, observe)).plan.actions:
            said = action.line()
    if pass_.report.error is not None:
        raise pass_.report.error
    return said


def answer_all(run: Pass, resources: Iterable[Resource]) -> None:
    """Answer what Waldur wants of the keys of these resources, as far as they have any. What fails is tried again."""
    if not any(resource.has_api_keys for resource in resources):
        return
    try:
        engine.reconcile(run, _steps(run.site, lambda: api_keys.waiting(run.site.client)))
    except SiteAgentError as error:
        run.report.problems.append(f"keys of resources: {error}")
        run.report.later = run.report.later or (error if error.retryable else None)


def plan(site: Site, resources: Iterable[Resource]) -> PlannedAnswers:
    """Return what `answer_all` would do now. Changes nothing. Raises SiteAgentError."""
    found = api_keys.waiting(site.client) if any(each.has_api_keys for each in resources) else []
    return engine.plan_of(_steps(site, lambda: found))


def _steps(
    site: Site, observe: Callable[[], Sequence[KeyCommand]]
) -> Steps[Sequence[KeyCommand], PlannedAnswers]:
    def planned(commands: Sequence[KeyCommand]) -> PlannedAnswers:
        return PlannedAnswers(tuple(planner.answers(commands)), Snapshot(site.backend.cluster))

    def tell(work: Work[PlannedAnswers]) -> None:
        for error in work.send(work.plan.actions).values():
            if error.retryable:
                raise error

    return engine.only_telling(KEY, observe, planned, tell, REQUESTS)
