# SPDX-License-Identifier: MIT
"""Keys of resources: no backend here makes any, which Waldur is told, so that nobody waits for one.

In a pause a request waits; in mode `observe` it is left to whoever serves the offering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.config.model import Mode
from agent.core.errors import OfferingPaused
from agent.core.model import Snapshot
from agent.core.waldur_actions import RefuseKey, WaldurAction
from agent.plan.policy.rules import PolicyContext
from agent.run import engine, gate
from agent.run.engine import Request, Work
from agent.run.site import Site
from agent.waldur import api_keys

KEY = "api_keys"
REQUESTS: Mapping[type[WaldurAction], Request] = {
    RefuseKey: lambda client, a: api_keys.fail(client, a.key, a.message),
}
REFUSAL = "The site's cluster has no keys that could be rotated."


@dataclass(frozen=True)
class PlannedRefusal:
    """The refusal of one key."""

    actions: Sequence[RefuseKey]
    snapshot: Snapshot
    context: PolicyContext = field(default_factory=PolicyContext)
    is_whole: bool = False


def refuse(site: Site, key_uuid: str) -> str:
    """Set the key erred with a reason. Return a sentence on it. Raises SiteAgentError where another try may help."""

    def tell(work: Work[PlannedRefusal]) -> None:
        for error in work.send(work.plan.actions).values():
            if error.retryable:
                raise error

    with engine.passing(site, Mode.ORDER_PROCESS, is_recorded=False) as pass_:
        pass_.cause = f"key {key_uuid}"
        if pass_.rules.paused:
            raise OfferingPaused(f"the offering is paused {pass_.rules.paused_why}: the key waits")
        if not gate.may_tell(pass_.rules):
            return f"mode {pass_.rules.mode}: the key is left as it is"
        refusal = RefuseKey(key=key_uuid, message=REFUSAL)
        steps = engine.only_telling(
            KEY,
            lambda: Snapshot(site.backend.cluster),
            lambda snapshot: PlannedRefusal((refusal,), snapshot),
            tell,
            REQUESTS,
        )
        engine.reconcile(pass_, steps)
    if pass_.report.error is not None:
        raise pass_.report.error
    return REFUSAL
