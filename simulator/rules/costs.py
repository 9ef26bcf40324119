# SPDX-License-Identifier: MIT
"""What an order or a resource costs: plan price times limit, for the limit components that have a number."""

from __future__ import annotations

from decimal import Decimal

from simulator.world.records import JsonObject, Offering, Plan


def estimate(offering: Offering, plan: Plan | None, limits: JsonObject) -> Decimal:
    total = Decimal(0)
    if plan is None:
        return total
    for component in offering.components:
        amount = limits.get(component.type)
        is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if component.billing_type == "limit" and is_number:
            total += Decimal(str(plan.prices.get(component.type, 0))) * Decimal(str(amount))
    return total


def wire_cost(cost: Decimal | None) -> str | None:
    return None if cost is None else f"{cost:.10f}"
