# SPDX-License-Identifier: MIT
"""Submit what was used with each key of a resource, where the backend makes keys: after the usage of the resources.

The present month in every report; the month before it as well in the first days of a month
(`api_key_final_report_days`): what was used in its last hours is known only then. Only what changed is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation

from agent.core.account_names import fold
from agent.core.key_actions import ReportKeyUsage
from agent.core.model import Component, Snapshot
from agent.core.periods import Month
from agent.core.units import reported_amount
from agent.core.usage import Counts, KeyUsageRecord, UsageQuery, require_counts
from agent.plan.policy.rules import PolicyContext
from agent.plan.usage import planning as planner
from agent.run.engine import Mode, Work
from agent.run.gate import Pass
from agent.run.site import Site, offering_facts
from agent.waldur import api_keys, resources
from agent.waldur.client import WaldurClient
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


class KeyUsage(Mode[KeyUsageFacts, PlannedKeyUsage]):
    """What was used with each key. What fails is tried again by the next report."""

    key = KEY
    optional_name = "usage of keys"

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self.requests = {ReportKeyUsage: self._report}

    def observe(self) -> KeyUsageFacts | None:
        return _observe(self.site, self.run.now()) if isinstance(self.site.backend, KeyPower) else None

    def plan(self, facts: KeyUsageFacts) -> PlannedKeyUsage:
        return PlannedKeyUsage(tuple(_changes(self.site, facts)), Snapshot(self.site.backend.cluster))

    def tell(self, work: Work[PlannedKeyUsage]) -> None:
        for action, error in work.send(work.plan.actions).items():
            if error.retryable:
                raise error
            if isinstance(action, ReportKeyUsage):
                # Waldur may have closed that month, or forgotten the key: this process leaves it alone.
                self.site.cache.reported_key_usage[action.key, action.month] = action.after

    def _report(self, client: WaldurClient, action: ReportKeyUsage) -> None:
        usages = {name: amount for name, amount in action.after if amount is not None}
        api_keys.report_usage(client, action.key, action.month, usages)
        self.site.cache.reported_key_usage[action.key, action.month] = action.after


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
    for month, account, keys in (
        (m, a, keys) for m, of_month in counted.items() for a, keys in of_month.items()
    ):
        for key, counts in keys.items():
            require_counts(counts, f"key {key} of account {account}", month)
    billing_types = offering_facts(site).billing_types
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
            # A key that the backend lists no more: what was reported of it stays.
            if not account or (counts is None and is_known):
                continue
            after = tuple((c.name, str(reported_amount(c, counts or {}, 1))) for c in facts.components)
            before = tuple((name, each.usages.get(name)) for name, _ in after) if is_known else ()
            is_same = is_known and all(
                _is_same(was, amount) for (_, was), (_, amount) in zip(before, after, strict=True)
            )
            is_reported = site.cache.reported_key_usage.get((each.uuid, str(month))) == after
            # Nothing was used in a month that is over: Waldur has no figure of it, or the same.
            is_idle = month != present and all(Decimal(amount) == 0 for _, amount in after)
            if after and not (is_same or is_reported or is_idle):
                yield ReportKeyUsage(
                    key=each.uuid, resource=each.resource, account=account, client_id=each.client_id,
                    month=str(month), before=before, after=after,
                )  # fmt: skip


def _is_same(was: str | None, amount: str) -> bool:
    try:
        return was is not None and Decimal(was) == Decimal(amount)
    except InvalidOperation:
        return False
