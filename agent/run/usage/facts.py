# SPDX-License-Identifier: MIT
"""Read what a report needs: usage of whole months from the cluster, and what Waldur has for them.

One command per month, whatever the number of accounts, and list pages of Waldur; nothing is asked by resource.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agent.core.account_names import fold
from agent.core.errors import ConfigError
from agent.core.model import Component, OfferingFacts, OfferingUser, Part, Resource, ResourceState, Snapshot
from agent.core.periods import Month
from agent.core.policy import UsageDecreases
from agent.core.usage import Usage, UsageQuery, require_whole
from agent.plan.usage import planning as planner
from agent.plan.usage.planning import Ledger, UsageRules
from agent.run.site import Site, offering_facts
from agent.state import ledger as account_ledger
from agent.state import reported_accounts
from agent.waldur import members, pool, resources, usages
from agent.waldur.client import WaldurClient
from backends.base import Scope, UsageCount, UsageReader

STATES = (ResourceState.OK, ResourceState.ERRED, ResourceState.UPDATING, ResourceState.TERMINATING)
FIELDS = (
    "uuid", "name", "state", "backend_id", "project_name", "customer_name", "limits", "created", "end_date",
)  # fmt: skip


# All resources of the offering.
ALL: tuple[str, ...] = ()
ASKED_ONE_BY_ONE = 3

Found = TypeVar("Found")


@dataclass(frozen=True)
class ObservedOffering:
    """What does not depend on the month."""

    facts: OfferingFacts
    resources: Sequence[Resource]
    snapshot: Snapshot
    components: tuple[Component, ...]
    missing: tuple[str, ...] = ()
    nameless: Sequence[Resource] = ()
    # Uuids of the offering's users by username, without restricted ones.
    links: Mapping[str, str] = field(default_factory=dict)
    # The spelling of all usernames, by folded name.
    names: Mapping[str, str] = field(default_factory=dict)

    def has_limit(self, component: str) -> bool:
        """Return whether it is billed by its limit, and not by usage."""
        return self.facts.billing_types.get(component) == "limit"


@dataclass(frozen=True)
class ObservedMonth:
    month: Month
    usage: Usage
    ledger: Ledger


def offering(site: Site, *, with_users: bool = True) -> ObservedOffering:
    """Read resources, accounts and users of the offering. Raises SiteAgentError."""
    client = site.client
    facts = offering_facts(site, valid_s=0)
    with pool.calls_in_threads(2) as start:
        reading = start(lambda: resources.listed(client, STATES, fields=FIELDS))
        of_offering = start(lambda: members.offering_users(client) if with_users else [])
        snapshot = site.backend.observe(Scope(parts=frozenset({Part.ACCOUNTS})))
        listed, users = reading.result(), of_offering.result()
    observed = of_resources(site, facts, [resource for resource in listed if resource.backend_id], snapshot)
    nameless = [r for r in listed if not r.backend_id and r.state is ResourceState.OK]
    return with_users_of(replace(observed, nameless=nameless), users)


def of_resources(
    site: Site, facts: OfferingFacts, listed: Sequence[Resource], snapshot: Snapshot
) -> ObservedOffering:
    """Return what is known of these resources, without the users."""
    components, missing = planner.accountable(site.offering.components.values(), facts.billing_types)
    return ObservedOffering(facts, listed, snapshot, components, missing)


def with_users_of(observed: ObservedOffering, users: Iterable[OfferingUser]) -> ObservedOffering:
    """Return the offering with its users."""
    users = list(users)
    # Of several users with one name the OK one wins; a person who left and came back has two.
    linked = [user for user in users if user.username and user.uuid and not user.is_restricted]
    linked.sort(key=lambda user: (user.state == "OK", user.uuid))
    return replace(
        observed,
        links={user.username: user.uuid for user in linked},
        names={fold(user.username): user.username for user in (*users, *linked) if user.username},
    )


def month(
    site: Site,
    which: Month,
    observed: ObservedOffering,
    *,
    with_users: bool = True,
    count: UsageCount | None = None,
    only: Collection[str] = ALL,
) -> ObservedMonth:
    """Read one month of all accounts, from the cluster and Waldur at once; in full where there is no `count`. `only`:
    the resources of which Waldur is asked. Raises SiteAgentError where one fails.
    """
    # One listing of all costs less than these requests for many.
    asked = list(only) if len(only) <= ASKED_ONE_BY_ONE else list(ALL)

    def of_each(ask: Callable[[WaldurClient, Month, str], list[Found]]) -> list[Found]:
        return [each for uuid in asked or [""] for each in ask(site.client, which, uuid)]

    with pool.calls_in_threads(2) as start:
        records = start(lambda: of_each(usages.of_month))
        shares = start(lambda: of_each(usages.of_users) if with_users else [])
        asked_for = query(site, which, observed.facts, observed.resources)
        counted = counted_of(site, asked_for) if count is None else require_whole(count.usage(asked_for))
        return ObservedMonth(which, counted, Ledger.of(records.result(), shares.result()))


def rules(
    site: Site, observed: ObservedOffering, components: Sequence[Component], *, with_users: bool = True
) -> UsageRules:
    """Return the rules of a month's plan. `components`: those that are submitted in this month."""
    observed.snapshot.require(Part.ACCOUNTS)
    return UsageRules(
        components=tuple(components),
        known=frozenset(map(fold, observed.snapshot.accounts)),
        names=observed.names,
        elsewhere=reported_accounts.of_others(site.state_dir, site.backend.cluster, site.counting_alike),
        asked=account_ledger.asked(site.state_dir, site.backend.cluster, site.offering.uuid),
        with_users=with_users,
        in_full=site.client.features.lacks(usages.DATES),
        omits_lower=site.offering.omits_lower_usage
        and site.offering.policy.usage_decreases is UsageDecreases.HOLD,
        configured=tuple(site.offering.components.values()),
    )


def untracked(site: Site, components: Sequence[Component], usages: Iterable[Usage]) -> dict[str, str]:
    """Return components whose TRES the cluster does not track, with the TRES. Asked only where no job had any of it in
    any month of which the cluster names jobs.
    """
    known = [usage for usage in usages if usage.records]
    if not known or not planner.untracked(components, known):
        return {}
    return planner.untracked(components, known, all_tracked(site))


def notes_of_untracked(untracked: Mapping[str, str]) -> list[str]:
    return [
        f"{name}: the cluster does not count {tres}, so its usage is unknown"
        for name, tres in untracked.items()
    ]


def all_tracked(site: Site) -> frozenset[str]:
    """Return the TRES that the cluster tracks. Raises BackendError."""
    seen = site.backend.observe(Scope(parts=frozenset({Part.TRES})))
    seen.require(Part.TRES)
    return seen.tres


def reader(site: Site) -> UsageReader:
    """Return the backend as a reader of usage. Raises ConfigError where it is none."""
    if isinstance(site.backend, UsageReader):
        return site.backend
    raise ConfigError(
        f"offering {site.offering.name}: its reporting_backend does not report what was used; take one that does, such "
        "as slurm or moab, or leave reporting_backend empty"
    )


def counted_of(site: Site, query: UsageQuery) -> Usage:
    """Return what the cluster has counted of one month, in full. Raises ConfigError, and BackendError."""
    return require_whole(reader(site).usage(query))


def query(
    site: Site, which: Month, facts: OfferingFacts | None = None, holders: Iterable[Resource] = ()
) -> UsageQuery:
    """Return what is asked of the cluster; `holders`: the resources whose accounts are of interest."""
    accounts = tuple(dict.fromkeys(resource.backend_id for resource in holders if resource.backend_id))
    return UsageQuery(
        which,
        site.zone.key,
        site.offering.usage_source,
        accounts=accounts,
        offering_backend_id=facts.backend_id if facts else "",
    )
