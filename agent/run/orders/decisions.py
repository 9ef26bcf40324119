# SPDX-License-Identifier: MIT
"""Ask the site's own hook about orders that wait for approval.

A hook that fails decides nothing: the order waits, is never accepted or rejected for that, and is asked about again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from agent.config.model import OrderHookSettings
from agent.config.secret import MASK, without_secrets
from agent.core.account_names import fold
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.model import OrderState
from agent.plan.orders import OrderCase
from agent.run.results import OrderResult, Result, postponed
from agent.run.site import Site
from backends.order_hook import Decision, HookAnswer, OrderHook

log = logging.getLogger(__name__)

AT_ONCE = 4
# For all orders of a pass.
ALL_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Decided:
    """Orders after the site's hook was asked about the pending ones."""

    accepted: Sequence[OrderCase]
    rejected: Sequence[OrderCase] = ()
    # Why those are rejected, by order uuid.
    why: Mapping[str, str] = field(default_factory=dict)
    # Of those that wait.
    results: Sequence[OrderResult] = ()


def decide(site: Site, settings: OrderHookSettings, cases: Sequence[OrderCase]) -> Decided:
    """Return what the site decides about the pending ones of these orders; those that are executing go on."""
    pending = [case for case in cases if case.order.state is OrderState.PENDING_PROVIDER]
    if not pending:
        return Decided(cases)
    hook = OrderHook(settings.command, settings.timeout_s)
    until_s = time.monotonic() + ALL_WITHIN_S
    failed: set[str] = set()

    def ask(case: OrderCase) -> HookAnswer | BackendError:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return BackendUnavailable(
                f"the hook took {ALL_WITHIN_S:.0f} s for other orders: asked in the next pass"
            )
        try:
            return hook.ask(document(site, case), timeout_s=left_s)
        except BackendError as error:
            failed.add(case.order.uuid)
            return error

    # Those whose turn did not go well last time come last: one order that makes the hook hang keeps back no other.
    pending.sort(key=lambda case: case.order.uuid in site.cache.unanswered)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        answers = dict(zip((case.order.uuid for case in pending), threads.map(ask, pending), strict=True))
    site.cache.unanswered = failed
    accepted, rejected, reasons, results = [], [], {}, []
    for case in cases:
        order, answer = case.order, answers.get(case.order.uuid)
        if isinstance(answer, BackendError):
            why = f"the site's hook did not decide: {answer}"
            _log_once(site, case, why)
            result = postponed(answer)
            results.append(OrderResult(order.uuid, order.type, result, message=why, error=answer))
            continue
        if answer is None:
            accepted.append(case)
        elif answer.decision is Decision.ACCEPT:
            words = f"accepted by the site's hook{_said(answer)}"
            accepted.append(replace(case, decided=words))
        elif answer.decision is Decision.REJECT:
            reasons[order.uuid] = answer.message
            rejected.append(case)
        else:
            why = f"the site's hook lets it wait{_said(answer)}"
            _log_once(site, case, why)
            results.append(OrderResult(order.uuid, order.type, Result.WAITING, message=why))
    return Decided(accepted, rejected, reasons, results)


def document(site: Site, case: OrderCase) -> dict[str, Any]:
    """Return what the hook is given of an order: nothing of the agent's own, and no value whose key names a secret."""
    order, resource = case.order, case.resource
    return {
        "order": {
            "uuid": order.uuid,
            "type": order.type.value,
            "state": order.state.value,
            "created": order.created.isoformat() if order.created else None,
            "plan_uuid": order.plan_uuid,
            "plan_quotas": dict(case.plan_quotas or {}),
            "limits": dict(order.limits),
            "attributes": without_secrets(dict(order.attributes), MASK),
        },
        "resource": {
            "uuid": resource.uuid,
            "name": resource.name,
            "slug": resource.slug,
            "state": resource.state.value,
            "account": fold(resource.backend_id),
            "limits": dict(resource.limits),
            "end_date": resource.end_date.date().isoformat() if resource.end_date else None,
        },
        "project": {
            "uuid": resource.project_uuid,
            "slug": resource.project_slug or order.project_slug,
            "name": resource.project_name,
        },
        "customer": {
            "uuid": resource.customer_uuid,
            "slug": resource.customer_slug,
            "name": resource.customer_name,
        },
        "offering": {"uuid": site.offering.uuid, "name": site.offering.name},
    }


def _said(answer: HookAnswer) -> str:
    return f": {answer.message}" if answer.message else ""


def _log_once(site: Site, case: OrderCase, why: str) -> None:
    """Log why an order waits when that is new: it may wait for days."""
    uuid = case.order.uuid
    if site.cache.said.news(uuid, why):
        ids = {"order": uuid, "resource": case.resource.uuid}
        log.warning(
            "order %s (%s, resource %s): %s", uuid, case.order.type, case.resource.name, why, extra=ids
        )
