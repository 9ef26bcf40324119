# SPDX-License-Identifier: MIT
"""Decide which account belongs to which resource: names of new allocations, contested claims, lost backend ids.

A name is free when neither the cluster nor a resource in Waldur has it. It is claimed in Waldur before the account
is made, so a resource that has a backend id keeps it. Where the server lost the claim again, the account below the
right project that no other resource names is the one that was begun: it is adopted, not made twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from agent.core.account_names import fold
from agent.core.errors import ConfigError, PlanRefused, SiteAgentError, WaldurError
from agent.core.model import AllocationSpec, OrderState, RequestedState, Resource, ResourceState, Snapshot
from agent.core.waldur_actions import ReleaseAccount
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
    """Two resources name one account. Neither goes on until one of them has given it up, which takes seconds."""

    retryable = True


class AccountUnknown(SiteAgentError):
    """A resource has no backend id in Waldur, and only an operator can know which account belongs to it."""


class AccountNaming:
    """Chooses the accounts of one pass from what the cluster has and what resources in Waldur name."""

    def __init__(self, site: Site, rules: OfferingRules, snapshot: Snapshot) -> None:
        self._site = site
        self._rules = rules
        self._snapshot = snapshot
        # Names that other orders of this pass will use.
        self._reserved: set[str] = set()

    def choose(self, case: OrderCase) -> AllocationSpec:
        """Return the allocation with its final name. Raises PlanRefused when every name that may be used is taken,
        ConfigError where the site has to correct something first, and WaldurError.
        """
        own = case.resource.backend_id
        taken = ""
        for name in [own] if own else account_names(case, self._rules.names):
            spec = self._site.backend.canonical(
                allocation(case, self._rules, name, self._snapshot), self._snapshot
            )
            taken = "" if own else self._taken(case, spec)
            if not taken and spec.unplaced:
                raise ConfigError(spec.unplaced)
            if not taken:
                self._reserved.add(spec.account.name)
                return spec
        raise PlanRefused(taken)

    def with_lost_accounts(
        self, cases: Sequence[OrderCase]
    ) -> tuple[list[OrderCase], dict[str, SiteAgentError]]:
        """Return the cases, with the account of each existing resource whose backend id Waldur lost; and, by order
        uuid, why orders have to wait because it is unknown which account that is.
        """
        known: list[OrderCase] = []
        waiting: dict[str, SiteAgentError] = {}
        for case in cases:
            if case.resource.backend_id or case.order.type in CREATING:
                known.append(case)
                continue
            try:
                account = self._lost_account(case)
            except (WaldurError, AccountUnknown) as error:
                waiting[case.order.uuid] = error
                continue
            if account:
                log.warning(
                    "resource %s has no backend id in Waldur: account %s is its own",
                    case.resource.uuid,
                    account,
                    extra={"order": case.order.uuid, "resource": case.resource.uuid},
                )
            known.append(replace(case, resource=replace(case.resource, backend_id=account)))
        return known, waiting

    def _taken(self, case: OrderCase, spec: AllocationSpec) -> str:
        """Return why the name cannot be used, empty when it can."""
        client, names, name = self._site.client, self._rules.names, spec.account.name
        if name in self._reserved or name in {ancestor.name for ancestor in spec.ancestors}:
            return f"account name {name} is in use for another account of the same order or pass"
        existing = self._snapshot.accounts.get(name)
        if existing is None:
            others = _others(self._site, case, name)
            if others := [r for r in others if r.state is not ResourceState.TERMINATED]:
                return f"account name {name} belongs to resource {_first(others)}"
            if names.check_uniqueness:
                free = offerings.name_is_free(client, name, all_offerings=names.check_all_offerings)
                return "" if free else f"Waldur says that the account name {name} is not unique"
            return ""
        if existing.parent != fold(spec.account.parent):
            return f"account {name} exists already, below {existing.parent or 'nothing'} and not {spec.account.parent}"
        if owner := self._owner(case, name):
            return owner
        # Older servers cannot say whether an offering that we do not see has the name. The account may then be the one
        # that we began only if the order was begun: approval comes first.
        is_begun = case.order.state is not OrderState.PENDING_PROVIDER
        if is_begun or offerings.can_say_what_is_free(client):
            return ""
        return f"account {name} exists already, and was not made for this order"

    def _owner(self, case: OrderCase, name: str) -> str:
        """Return whose the existing account is, when a resource of any offering names it; empty where none does."""
        if others := _others(self._site, case, name, everywhere=True):
            return f"account {name} exists already and belongs to resource {_first(others)}"
        if not offerings.name_is_free(self._site.client, name, all_offerings=True):
            return f"account {name} exists already and Waldur says that it belongs to another offering's resource"
        return ""

    def _lost_account(self, case: OrderCase) -> str:
        """Return the account under a name that this resource would get, below its project, and that no resource names.

        Empty where there is none. Raises AccountUnknown where it may be another resource's: names that are numbered
        or cut are certain only as long as just one resource of the project lacks its backend id. Raises WaldurError.
        """
        site, accounts, fits = self._site, self._snapshot.accounts, []
        try:
            candidates = account_names(case, self._rules.names)
            for candidate in candidates:
                spec = allocations.allocation(
                    case.resource,
                    self._rules,
                    candidate,
                    self._snapshot,
                    project_slug=case.order.project_slug,
                )
                spec = site.backend.canonical(replace(spec, requested=RequestedState()), self._snapshot)
                name, parent = spec.account.name, fold(spec.account.parent)
                if name in accounts and accounts[name].parent == parent:
                    fits.append(name)
        except PlanRefused:
            return ""  # no slug to make a name of
        fits = [name for name in fits if not self._owner(case, name)]
        if not fits:
            return ""
        if len(fits) == 1:
            nameless = {case.resource.uuid}
            if not is_named_after_itself(case, self._rules.names):
                nameless |= resources.nameless(site.client, case.resource.project_uuid)
            if nameless == {case.resource.uuid}:
                return fits[0]
        raise AccountUnknown(
            f"resource {case.resource.name!r} has no backend id in Waldur, and it is unknown which of "
            f"{', '.join(fits)} and other resources' accounts is its own: write it there (set_backend_id)"
        )


@dataclass(frozen=True, slots=True)
class Contest:
    """A creation that waits because another resource names its account, or because that could not be read."""

    plan: OrderPlan
    error: SiteAgentError
    # The claim that it gives up.
    release: ReleaseAccount | None = None


def contested(site: Site, plans: Iterable[OrderPlan]) -> list[Contest]:
    """Return the creations whose account another resource names as well.

    Called after claiming and before the cluster is changed: of two that chose one name at once, the later claim sees
    the earlier one. An order that sees another does not build. It gives its claim up, to be planned anew with another
    name, where the other resource exists or is older.
    """
    building = {
        p.case.resource.uuid: p for p in plans if p.spec is not None and p.case.order.type in CREATING
    }
    found = resources.holders_of_each(
        site.client, {plan.account for plan in building.values()}, everywhere=_looks_everywhere(site)
    )
    waiting: list[Contest] = []
    for uuid, plan in building.items():
        holders = found[plan.account]
        if isinstance(holders, WaldurError):
            waiting.append(Contest(plan, holders))
            continue
        others = [r for r in holders if r.uuid != uuid and r.state is not ResourceState.TERMINATED]
        if not others:
            continue
        rival = min(others, key=_age)
        exists = any(other.state is not ResourceState.CREATING for other in others)
        words = f"account name {plan.account} belongs to resource {rival.uuid} as well"
        if not exists and _age(plan.case.resource) < _age(rival):
            waiting.append(Contest(plan, NameContested(f"{words}: waiting until that one has given it up")))
            continue
        release = ReleaseAccount(
            order=plan.case.order.uuid, resource=uuid, account=plan.account, reason=words
        )
        has_claim = any(holder.uuid == uuid for holder in holders)
        given_up = NameContested(f"{words}: given up, another name is looked for")
        waiting.append(Contest(plan, given_up, release if has_claim else None))
    return waiting


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
