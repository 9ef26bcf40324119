# SPDX-License-Identifier: MIT
"""The accounts that a resource stands for on a cluster: its own, its project's and its customer's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.core.account_names import NameRules
from agent.core.errors import PlanRefused
from agent.core.model import AccountSpec, AllocationSpec, Component, RequestedState, Resource


@dataclass(frozen=True, slots=True)
class OfferingRules:
    """What the site wants for every allocation of one offering. `default_account`: where those of users go back to.
    `can_show_limits`: Waldur takes limits without an order; servers before mid-2025 do not.
    """

    names: NameRules
    components: tuple[Component, ...]
    soft_delete: bool = False
    default_account: str = "root"
    offering_partitions: tuple[str, ...] = ()
    offering_qos: tuple[str, ...] = ()
    partition_qos: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    offering_enforces_qos: bool = False
    can_show_limits: bool = True


def allocation(
    resource: Resource,
    rules: OfferingRules,
    account: str,
    *,
    project_slug: str = "",
    limits: Mapping[str, int] | None = None,
    members: tuple[str, ...] = (),
) -> AllocationSpec:
    """Return what a resource needs on the cluster. The topmost account's parent is left to the backend, and so is a
    customer for whom Waldur gives no slug and who has no name then: not every cluster has an account of it.

    Raises PlanRefused where Waldur gives no slug to name the project's account by.
    """
    project_slug = resource.project_slug or project_slug
    if not project_slug:
        raise PlanRefused(f"Waldur gives no slug for the project of resource {resource.name!r}")
    customer = resource.customer_slug and rules.names.customer_prefix + resource.customer_slug
    project = rules.names.project_prefix + project_slug
    return AllocationSpec(
        account=AccountSpec(account, project, description=resource.name, organization=project),
        ancestors=(
            AccountSpec(customer, "", description=resource.customer_name, organization=customer),
            AccountSpec(project, customer, description=resource.project_name, organization=project),
        ),
        limits=dict(limits or {}),
        members=members,
        requested=requested_state(resource, rules),
    )


def requested_state(resource: Resource, rules: OfferingRules) -> RequestedState:
    """Return what Waldur says about the associations and the state of a resource's account."""
    return RequestedState(
        qos=_word(resource.attributes.get("qos")),
        partition=_word(resource.attributes.get("partition")),
        offering_partitions=rules.offering_partitions,
        offering_qos=rules.offering_qos,
        partition_qos=rules.partition_qos,
        offering_enforces_qos=rules.offering_enforces_qos,
        paused=resource.paused,
        downscaled=resource.downscaled,
    )


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""
