# SPDX-License-Identifier: MIT
"""What the site wants of every allocation of an offering: its configuration, with what only Waldur knows of it."""

from __future__ import annotations

from math import isfinite

from agent.core.model import AccountingType, Component, OfferingFacts, WaldurComponent
from agent.plan.allocations import OfferingRules
from agent.run.site import Site


def rules_of(site: Site, facts: OfferingFacts) -> OfferingRules:
    """The site's rules; components that only Waldur has are added to the configured ones.

    Not those with a factor that makes no limit: what is asked of them is left out, as for any unknown component.
    """
    offering = site.offering
    added = [_component(c) for c in facts.components if c.type not in offering.components]
    added = [
        component for component in added if isfinite(component.unit_factor) and component.unit_factor > 0
    ]
    return OfferingRules(
        names=offering.names,
        components=(*offering.components.values(), *added),
        soft_delete=offering.soft_delete,
        offering_partitions=facts.partitions,
        offering_enforces_qos=bool(facts.plugin_options.get("enforce_qos")),
        default_account=site.backend.default_account,
    )


def _component(component: WaldurComponent) -> Component:
    """A component that only Waldur has. Its billing type may be one that the configuration does not offer."""
    fields = component.fields
    amount, factor = fields.get("limit_amount"), fields.get("unit_factor")
    billing = fields.get("billing_type")
    return Component(
        name=component.type,
        measured_unit=str(fields.get("measured_unit") or ""),
        accounting_type=AccountingType(billing) if billing in list(AccountingType) else AccountingType.FIXED,
        label=str(fields.get("name") or component.type),
        unit_factor=float(factor) if isinstance(factor, int | float) and factor else 1.0,
        limit=float(amount) if isinstance(amount, int | float) else None,
    )
