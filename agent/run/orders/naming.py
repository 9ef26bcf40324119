# SPDX-License-Identifier: MIT
"""Which account belongs to which resource: names for new allocations, contested claims, and backend ids that got lost.

A name is free when neither the cluster nor a resource in Waldur has it. It is claimed in Waldur before the account
is made, so a resource that has a backend id keeps it. Where the server lost the claim again, the account that stands
below the right project and that no other resource names is the one we began: it is taken over, not made twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from agent.core.account_names import fold
from agent.core.errors import PlanRefused, SiteAgentError, WaldurError
from agent.core.model import AllocationSpec, OrderState, RequestedState, Resource, ResourceState, Snapshot
from agent.plan import allocations
from agent.plan.allocations import OfferingRules
from agent.plan.orders import (
    CREATING,
    OrderCase,
    OrderPlan,
    account_names,
    allocation,
    is_named_after_itself,
)
from agent.run.site import Site
from agent.waldur import offerings, resources

log = logging.getLogger(__name__)


class NameContested(SiteAgentError):
    """Two resources name one account: neither goes on until one of them has given it up, which takes seconds."""

    retryable = True


class AccountUnknown(SiteAgentError):
    """A resource has no backend id in Waldur, and nobody but an operator can tell which account is its own."""


def chosen_spec(
    site: Site, case: OrderCase, rules: OfferingRules, snapshot: Snapshot, reserved: set[str]
) -> AllocationSpec:
    """The allocation with its final name. Raises PlanRefused when every name that may be used is taken.

    `reserved`: names that other orders of this pass will use; the chosen one is added.
    """
    if case.resource.backend_id:
        spec = site.backend.canonical(allocation(case, rules, case.resource.backend_id), snapshot)
        reserved.add(spec.account.name)
        return spec
    taken = ""
    for name in account_names(case, rules.names):
        spec = site.backend.canonical(allocation(case, rules, name), snapshot)
        taken = _taken(site, case, rules, snapshot, spec, reserved)
        if not taken:
            reserved.add(spec.account.name)
            return spec
    raise PlanRefused(taken)


def contested(site: Site, plans: Iterable[OrderPlan]) -> list[tuple[OrderPlan, SiteAgentError]]:
    """Creations whose account another resource names as well, each with the error that it waits with.

    Asked after claiming and before the cluster is changed: of two that chose one name at once, the later claim sees
    the earlier one. Who sees another does not build; the younger of the two gives its claim up and is planned anew.
    """
    building = {
        p.case.resource.uuid: p for p in plans if p.spec is not None and p.case.order.type in CREATING
    }
    found = resources.holders_of_each(
        site.client, {plan.account for plan in building.values()}, everywhere=_looks_everywhere(site)
    )
    waiting: list[tuple[OrderPlan, SiteAgentError]] = []
    for uuid, plan in building.items():
        holders = found[plan.account]
        if isinstance(holders, WaldurError):
            waiting.append((plan, holders))
        elif others := [r for r in holders if r.uuid != uuid and r.state is not ResourceState.TERMINATED]:
            is_claimed = any(holder.uuid == uuid for holder in holders)
            waiting.append((plan, _given_up(site, plan, others, is_claimed=is_claimed)))
    return waiting


def found_again(
    site: Site, cases: Sequence[OrderCase], rules: OfferingRules, snapshot: Snapshot
) -> tuple[list[OrderCase], Mapping[str, SiteAgentError]]:
    """The cases, with the account of each standing resource whose backend id Waldur lost; and the orders that have to
    wait because it cannot be told which account that is.
    """
    known: list[OrderCase] = []
    waiting: dict[str, SiteAgentError] = {}
    for case in cases:
        if case.resource.backend_id or case.order.type in CREATING:
            known.append(case)
            continue
        try:
            account = _lost_account(site, case, rules, snapshot)
        except (WaldurError, AccountUnknown) as error:
            waiting[case.order.uuid] = error
            continue
        if account:
            log.warning(
                "resource %s has no backend id in Waldur: account %s is its own", case.resource.uuid, account
            )
        known.append(replace(case, resource=replace(case.resource, backend_id=account)))
    return known, waiting


def _taken(
    site: Site,
    case: OrderCase,
    rules: OfferingRules,
    snapshot: Snapshot,
    spec: AllocationSpec,
    reserved: set[str],
) -> str:
    """Why the name cannot be used, empty when it can."""
    name = spec.account.name
    if name in reserved or name in {ancestor.name for ancestor in spec.ancestors}:
        return f"account name {name} is in use for another account of the same order or pass"
    standing = snapshot.accounts.get(name)
    if standing is not None:
        if standing.parent != fold(spec.account.parent):
            return f"account {name} exists already, below {standing.parent or 'nothing'} and not {spec.account.parent}"
        return _owner(site, case, name) or _cannot_be_ours(site, case, name)
    others = [r for r in _others(site, case, name) if r.state is not ResourceState.TERMINATED]
    if others:
        return f"account name {name} belongs to resource {_first(others)}"
    if rules.names.check_uniqueness:
        free = offerings.name_is_free(site.client, name, all_offerings=rules.names.check_all_offerings)
        return "" if free else f"Waldur says that the account name {name} is not unique"
    return ""


def _owner(site: Site, case: OrderCase, name: str) -> str:
    """Whose the standing account is, when a resource of any offering names it: a cluster may serve several."""
    if others := _others(site, case, name, everywhere=True):
        return f"account {name} exists already and belongs to resource {_first(others)}"
    if not offerings.name_is_free(site.client, name, all_offerings=True):
        return f"account {name} exists already and Waldur says that it belongs to another offering's resource"
    return ""


def _cannot_be_ours(site: Site, case: OrderCase, name: str) -> str:
    """Older servers cannot say whether an offering that we do not see has the name. The account may then be the one
    that we began only if the order was begun: approval comes first.
    """
    if offerings.can_say_what_is_free(site.client) or case.order.state is not OrderState.PENDING_PROVIDER:
        return ""
    return f"account {name} exists already, and was not made for this order"


def _lost_account(site: Site, case: OrderCase, rules: OfferingRules, snapshot: Snapshot) -> str:
    """The account that stands under a name that this resource would get, below its project, and that nobody names.

    Empty where there is none. Raises AccountUnknown where it may be another resource's: names that are counted or
    cut tell whose they are only as long as just one resource of the project lacks its backend id.
    """
    fits = [
        name
        for name, parent in _possible_accounts(site, case, rules, snapshot)
        if name in snapshot.accounts
        and snapshot.accounts[name].parent == parent
        and not _owner(site, case, name)
    ]
    if not fits:
        return ""
    if len(fits) == 1:
        nameless = {case.resource.uuid}
        if not is_named_after_itself(case, rules.names):
            nameless |= resources.nameless(site.client, case.resource.project_uuid)
        if nameless == {case.resource.uuid}:
            return fits[0]
    raise AccountUnknown(
        f"resource {case.resource.name!r} has no backend id in Waldur, and it cannot be told which of "
        f"{', '.join(fits)} and other resources' accounts is its own: write it there (set_backend_id)"
    )


def _possible_accounts(
    site: Site, case: OrderCase, rules: OfferingRules, snapshot: Snapshot
) -> list[tuple[str, str]]:
    """Names and parents that the resource's account may have; none where there is no slug to make one of."""
    found = []
    try:
        for name in account_names(case, rules.names):
            spec = allocations.allocation(case.resource, rules, name, project_slug=case.order.project_slug)
            spec = site.backend.canonical(replace(spec, requested=RequestedState()), snapshot)
            found.append((spec.account.name, fold(spec.account.parent)))
    except PlanRefused:
        return []
    return found


def _given_up(site: Site, plan: OrderPlan, others: Sequence[Resource], *, is_claimed: bool) -> SiteAgentError:
    """The error to wait with; the claim is taken back first where another's is better: settled, or older."""
    resource = plan.case.resource
    rival = min(others, key=_age)
    settled = any(other.state is not ResourceState.CREATING for other in others)
    words = f"account name {plan.account} belongs to resource {rival.uuid} as well"
    if not settled and _age(resource) < _age(rival):
        return NameContested(f"{words}: waiting until that one has given it up")
    try:
        if is_claimed:
            resources.set_backend_id(site.client, resource.uuid, "")
    except WaldurError as error:
        return error
    return NameContested(f"{words}: given up, another name is looked for")


def _age(resource: Resource) -> tuple[datetime, str]:
    return resource.created or datetime.max.replace(tzinfo=UTC), resource.uuid


def _others(site: Site, case: OrderCase, name: str, *, everywhere: bool = False) -> list[Resource]:
    holders = resources.holders_of(site.client, name, everywhere=everywhere or _looks_everywhere(site))
    return [resource for resource in holders if resource.uuid != case.resource.uuid]


def _looks_everywhere(site: Site) -> bool:
    """Offerings on different clusters may have accounts of one name, unless the site says that they may not."""
    names = site.offering.names
    return names.check_uniqueness and names.check_all_offerings


def _first(others: Iterable[Resource]) -> str:
    return min(resource.uuid for resource in others)
