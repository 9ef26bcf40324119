# SPDX-License-Identifier: MIT
"""Submit what was used with each key of a resource, where the backend makes keys: after the usage of the resources.

The present month in every report; the month before it as well in the first days of a month
(`api_key_final_report_days`): what was used in its last hours is known only then. Only what changed is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation

from agent.core.account_names import fold
from agent.core.actions import Action
from agent.core.errors import SiteAgentError
from agent.core.key_actions import ReportKeyUsage
from agent.core.model import Component, Snapshot
from agent.core.periods import Month
from agent.core.units import reported_amount
from agent.core.usage import Counts, KeyUsageRecord, UsageQuery
from agent.plan.policy.rules import PolicyContext
from agent.plan.usage import planning as planner
from agent.run import engine, gate
from agent.run.engine import Steps, Work
from agent.run.gate import Pass
from agent.run.site import Site
from agent.waldur import api_keys, offerings, resources
from backends.base import KeyPower

KEY = "usage of keys"
Counted = Mapping[str, Mapping[str, Counts]]


@dataclass(frozen=True)
class KeyUsageFacts:
    """The keys that Waldur knows, the accounts of their resources by uuid, and what was counted by month."""

    records: list[KeyUsageRecord]
    accounts: Mapping[str, str]
    counted: Mapping[Month, Counted]
    components: tuple[Component, ...] = ()


@dataclass(frozen=True)
class PlannedKeyUsage:
    actions: tuple[ReportKeyUsage, ...]
    snapshot: Snapshot
    context: PolicyContext = field(default_factory=PolicyContext)
    is_whole: bool = False


def submit(run: Pass, now: Callable[[], datetime]) -> None:
    """Submit what changed. What fails is noted as a problem, and tried again by the next report."""
    if not isinstance(run.site.backend, KeyPower) or not gate.may_tell(run.rules) or run.rules.paused:
        return
    try:
        engine.reconcile(run, _steps(run.site, now))
    except SiteAgentError as error:
        run.report.problems.append(f"usage of keys: {error}")
        run.report.later = run.report.later or (error if error.retryable else None)


def plan(site: Site, now: Callable[[], datetime]) -> tuple[Action, ...]:
    """Return what `submit` would tell now. Changes nothing. Raises SiteAgentError."""
    if not isinstance(site.backend, KeyPower) or not gate.may_tell(gate.rules_of(site)):
        return ()
    return engine.plan_of(_steps(site, now)).actions


def _steps(site: Site, now: Callable[[], datetime]) -> Steps[KeyUsageFacts, PlannedKeyUsage]:
    def tell(work: Work[PlannedKeyUsage]) -> None:
        for action, error in work.send(work.plan.actions).items():
            if error.retryable:
                raise error
            if isinstance(action, ReportKeyUsage):
                # Waldur may have closed that month, or forgotten the key: this process leaves it alone.
                site.cache.told_key_usage[action.key, action.month] = action.after

    return engine.only_telling(
        KEY,
        lambda: _observe(site, now()),
        lambda facts: PlannedKeyUsage(tuple(_changes(site, facts)), Snapshot(site.backend.cluster)),
        tell,
        {ReportKeyUsage: lambda _client, a: _send(site, a)},
    )


def _send(site: Site, action: ReportKeyUsage) -> None:
    usages = {name: amount for name, amount in action.after if amount is not None}
    api_keys.report_usage(site.client, action.key, action.month, usages)
    site.cache.told_key_usage[action.key, action.month] = action.after


def _observe(site: Site, now: datetime) -> KeyUsageFacts:
    """Return the keys and what was counted. No key at all asks the cluster nothing. Raises SiteAgentError."""
    records = [each for each in api_keys.all_keys(site.client) if each.client_id]
    if not records:
        return KeyUsageFacts([], {}, {})
    accounts = resources.accounts_of(site.client, {each.resource for each in records})
    present = Month.of(now)
    months = [present.previous] if now.day <= site.key_final_report_days else []
    assert isinstance(site.backend, KeyPower)
    counted = {
        month: site.backend.keys.usage(UsageQuery(month, site.zone.key, site.offering.usage_source))
        for month in (*months, present)
    }
    billing_types = {
        c.type: str(c.fields.get("billing_type") or "") for c in offerings.facts(site.client).components
    }
    components, _ = planner.accountable(site.offering.components.values(), billing_types)
    return KeyUsageFacts(records, accounts, counted, components)


def _changes(site: Site, facts: KeyUsageFacts) -> Iterator[ReportKeyUsage]:
    present = max(facts.counted, default=None)
    for month, counted in facts.counted.items():
        by_account = {fold(account): keys for account, keys in counted.items()}
        for each in facts.records:
            account = facts.accounts.get(each.resource, "")
            counts = by_account.get(fold(account), {}).get(each.client_id)
            is_known = each.month == str(month)
            # A key that the backend lists no more: what was told of it stays.
            if not account or (counts is None and is_known):
                continue
            after = tuple((c.name, str(reported_amount(c, counts or {}, 1))) for c in facts.components)
            before = tuple((name, each.usages.get(name)) for name, _ in after) if is_known else ()
            is_same = is_known and all(
                _is_same(was, amount) for (_, was), (_, amount) in zip(before, after, strict=True)
            )
            is_told = site.cache.told_key_usage.get((each.uuid, str(month))) == after
            # Nothing was used in a month that is over: Waldur has no figure of it, or the same.
            is_idle = month != present and all(Decimal(amount) == 0 for _, amount in after)
            if after and not (is_same or is_told or is_idle):
                yield ReportKeyUsage(
                    key=each.uuid, resource=each.resource, account=account, client_id=each.client_id,
                    month=str(month), before=before, after=after,
                )  # fmt: skip


def _is_same(was: str | None, amount: str) -> bool:
    try:
        return was is not None and Decimal(was) == Decimal(amount)
    except InvalidOperation:
        return False
