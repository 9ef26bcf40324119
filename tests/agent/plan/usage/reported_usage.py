# SPDX-License-Identifier: MIT
"""Usage of a cluster, what Waldur holds of it, and the plans that come of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from agent.core.model import AccountingType, Component, Resource, ResourceState
from agent.core.periods import Month
from agent.core.usage import AccountUsage, Usage, UsageQuery, UsageRecord, UserUsageRecord
from agent.plan.usage import planning as planner
from agent.plan.usage.planning import Ledger, UsagePlan, UsageRules

MONTH = Month(2026, 11)
HOUR = 3600


def component(name: str, factor: float = 60, **targets: float) -> Component:
    return Component(name, "h", AccountingType.USAGE, name, unit_factor=factor, targets=targets)


CPU, GPU = component("cpu"), component("gres/gpu")
RULES = UsageRules((CPU, GPU), known=frozenset({"a", "b", "c"}))


def resource(uuid: str, account: str, state: ResourceState = ResourceState.OK) -> Resource:
    return Resource(uuid=uuid, name=f"resource {uuid}", slug=uuid, state=state, backend_id=account)


def used(**accounts: Mapping[str, Mapping[str, float]]) -> Usage:
    """Hours by account, user and TRES (`_` for `/`)."""
    found = {}
    for account, users in accounts.items():
        counts = {
            user: {tres.replace("_", "/"): round(hours * HOUR) for tres, hours in had.items()}
            for user, had in users.items()
        }
        names = {tres for had in counts.values() for tres in had}
        total = {tres: sum(had.get(tres, 0) for had in counts.values()) for tres in names}
        found[account] = AccountUsage(total, counts)
    return Usage(UsageQuery(MONTH), found, records=len(found) or 1)


class Holding:
    """What Waldur holds; `take` carries a plan out as Waldur would."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], UsageRecord] = {}
        self.shares: dict[tuple[str, str], UserUsageRecord] = {}

    def total(self, resource: str, component: str, amount: str | None) -> Holding:
        value = None if amount is None else Decimal(amount)
        uuid = f"{resource}-{component}"
        self.records[resource, component] = UsageRecord(uuid, resource, component, value)
        return self

    def share(self, resource: str, component: str, user: str, amount: str | None) -> Holding:
        record = f"{resource}-{component}"
        value = None if amount is None else Decimal(amount)
        self.shares[record, user] = UserUsageRecord(record, user, value)
        return self

    def take(self, plans: Iterable[UsagePlan]) -> None:
        for plan in plans:
            for name, amount in plan.totals.after if plan.totals else ():
                self.total(plan.resource.uuid, name, amount)
            for share in plan.shares:
                for user, amount in share.after:
                    self.share(share.resource, share.component, user, amount)

    def ledger(self) -> Ledger:
        return Ledger.of(self.records.values(), self.shares.values())


def plan(
    resources: Sequence[Resource], usage: Usage, held: Holding | None = None, **rules: Any
) -> list[UsagePlan]:
    ledger = (held or Holding()).ledger()
    return planner.plan_month(resources, usage, ledger, replace(RULES, **rules))


def lines(plans: Iterable[UsagePlan]) -> list[str]:
    """What would be reported, and why something is not."""
    found = []
    for each in plans:
        found += [action.render().removeprefix("report ") for action in each.actions]
        found += [f"{each.account}: {each.skipped}"] if each.skipped else []
    return found


ONE = [resource("r", "a")]
ANN = used(a={"ann": {"cpu": 2}})
