# SPDX-License-Identifier: MIT
"""The accounts that a resource stands for on a cluster: its own, its project's and its customer's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from agent.core.account_names import NameRules, fold
from agent.core.errors import PlanRefused
from agent.core.model import AccountSpec, AllocationSpec, Component, RequestedState, Resource, Snapshot


@dataclass(frozen=True, slots=True)
class OfferingRules:
    """What the site wants for every allocation of one offering."""

    names: NameRules
    components: tuple[Component, ...]
    soft_delete: bool = False
    # Where those of users go back to.
    default_account: str = "root"
    offering_partitions: tuple[str, ...] = ()
    offering_qos: tuple[str, ...] = ()
    partition_qos: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    offering_enforces_qos: bool = False
    # Waldur takes limits without an order; servers before mid-2025 do not.
    can_show_limits: bool = True
    # What Waldur says of limits counts without an order, too.
    limits_from_waldur: bool = False
    # The accounts that stand for projects and customers, by uuid, as they were seen before.
    known_names: Mapping[str, str] = field(default_factory=dict)
    _holders: Mapping[str, Set[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        holders: dict[str, set[str]] = {}
        for uuid, name in self.known_names.items():
            holders.setdefault(fold(name), set()).add(uuid)
        object.__setattr__(self, "_holders", holders)

    def hierarchy_names(self, prefix: str, uuid: str, slugs: Iterable[str]) -> list[str]:
        """Return the names that the account of a project or customer may have, the best first. The account that stands
        for another one is none of them, though this one has the other's slug now; by its uuid it always has a name.
        """
        names = []
        for tail in dict.fromkeys(filter(None, slugs)):
            holders = self._holders.get(fold(prefix + tail), {uuid})
            if not uuid or tail == uuid or uuid in holders:
                names.append(prefix + tail)
        known = self.known_names.get(uuid, "")
        return [*names, *([known] if known else [])]


_BY_UUID = re.compile(r"[0-9a-f]{32}")


def allocation(
    resource: Resource,
    rules: OfferingRules,
    account: str,
    snapshot: Snapshot,
    *,
    project_slug: str = "",
    members: tuple[str, ...] = (),
) -> AllocationSpec:
    """Return what a resource needs on the cluster. The topmost account's parent is left to the backend, and so is a
    customer for whom Waldur gives no slug and who has no name then: not every cluster has an account of it.

    Raises PlanRefused where Waldur gives no slug to name the project's account by.
    """
    if not (resource.project_slug or project_slug):
        raise PlanRefused(f"Waldur gives no slug for the project of resource {resource.name!r}")
    project = project_account(resource, rules, account, snapshot, project_slug=project_slug)
    customer = customer_account(resource, rules, project, snapshot)
    return AllocationSpec(
        account=AccountSpec(account, project, description=resource.name, organization=project),
        ancestors=(
            AccountSpec(customer, "", description=resource.customer_name, organization=customer),
            AccountSpec(project, customer, description=resource.project_name, organization=project),
        ),
        members=members,
        requested=requested_state(resource, rules),
    )


def project_account(
    resource: Resource, rules: OfferingRules, account: str, snapshot: Snapshot, *, project_slug: str = ""
) -> str:
    """Return the account of the resource's project: the one that the `account` of the resource stands below, by
    whatever name Waldur's server gave it then; else one that stands; else a new one. `project_slug`: of its order.
    """
    prefix, uuid = rules.names.project_prefix, resource.project_uuid
    slug = resource.project_slug or project_slug
    parent = _parent(account, snapshot)
    is_unreported = slug == uuid and fold(resource.backend_id) == fold(account)
    if is_unreported and _is_by_slug(prefix, parent, snapshot):
        return parent
    return _standing(rules.hierarchy_names(prefix, uuid, (slug, uuid, project_slug)), parent, snapshot)


def customer_account(resource: Resource, rules: OfferingRules, project: str, snapshot: Snapshot) -> str:
    """Return the account of the resource's customer in the same way; empty where Waldur gives no slug."""
    prefix, slug, uuid = rules.names.customer_prefix, resource.customer_slug, resource.customer_uuid
    if not slug:
        return ""
    parent = _parent(project, snapshot)
    if slug == uuid and _is_by_slug(prefix, parent, snapshot):
        return parent
    return _standing(rules.hierarchy_names(prefix, uuid, (slug, uuid)), parent, snapshot)


def _standing(names: Iterable[str], parent: str, snapshot: Snapshot) -> str:
    """Return which of its names an account of the hierarchy has: what is below it already decides, then what stands,
    then the first. Servers of 2024 give a resource no slugs, and what stands is named by uuid; newer ones do; and
    people change slugs. None of it moves or renames anything.
    """
    accounts = {name: fold(name) for name in names}
    for name, folded in accounts.items():
        if folded == parent:
            return name
    stands = (name for name, folded in accounts.items() if folded in snapshot.accounts)
    return next(stands, next(iter(accounts)))


def _is_by_slug(prefix: str, parent: str, snapshot: Snapshot) -> bool:
    """Return whether an account that others stand below was named by a slug. Where the server reports none (the old one
    replies in the middle of an upgrade) that is no reason to move them.
    """
    above = _parent(parent, snapshot)
    return (
        bool(above)
        and parent.startswith(fold(prefix))
        and not _BY_UUID.fullmatch(parent.removeprefix(fold(prefix)))
    )


def _parent(account: str, snapshot: Snapshot) -> str:
    standing = snapshot.accounts.get(fold(account))
    return (standing.parent or "") if standing else ""


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


def allocation_names(base: str, *, max_length: int | None, counted: bool, attempts: int) -> Iterator[str]:
    """Yield names to try for an allocation, best first: `base`, then `base-0`, `base-1` ... when `counted`.

    `max_length` cuts the base, never the counter. Cutting makes two slugs alike, so a cut base is counted too.
    """
    cut = fold(base)[:max_length] if max_length else fold(base)
    yield cut
    if not counted and cut == fold(base):
        return
    for number in range(attempts - 1):
        suffix = f"-{number}"
        room = max_length - len(suffix) if max_length else None
        if room is not None and room < 1:
            return
        yield cut[:room] + suffix


def derived(
    resource: Resource, rules: OfferingRules, spec: AllocationSpec, snapshot: Snapshot
) -> dict[str, bool]:
    """Return those of the accounts of a resource that stand where this agent puts them and under the name that it gives
    them, each with whether that name has a prefix. Whatever account Waldur names, the name is made of the resource's
    slug or its project's, and the place of the project and the customer.
    """
    names, account = rules.names, fold(spec.account.name)
    prefixes = (names.allocation_prefix, names.project_prefix, names.customer_prefix)
    found: dict[str, bool] = {}
    if not _is_derived(account, resource, names):
        return found
    for each, prefix in zip((spec.account, *reversed(spec.ancestors)), prefixes, strict=False):
        standing = snapshot.accounts.get(fold(each.name))
        if standing is None or standing.parent != fold(each.parent):
            break
        found[standing.name] = bool(fold(prefix))
    return found


def _is_derived(account: str, resource: Resource, names: NameRules) -> bool:
    slugs = [slug for slug in (resource.slug, resource.project_slug) if slug]
    bases = [names.allocation_prefix + slug for slug in slugs]
    return account in map(fold, bases) or any(
        account
        in allocation_names(base, max_length=names.max_length, counted=True, attempts=names.max_attempts)
        for base in bases
    )
