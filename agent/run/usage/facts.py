# SPDX-License-Identifier: MIT
"""What a report is made of: usage of whole months from the cluster, and what Waldur holds for them.

One command per month, whatever the number of accounts, and list pages of Waldur; nothing is asked by resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from agent.core.account_names import fold
from agent.core.errors import ConfigError
from agent.core.model import Component, OfferingFacts, OfferingUser, Part, Resource, ResourceState, Snapshot
from agent.core.periods import Month
from agent.core.usage import Usage, UsageQuery
from agent.plan.usage import planning as planner
from agent.plan.usage.planning import Ledger, UsageRules
from agent.run.site import Site
from agent.state import reported_accounts
from agent.waldur import members, offerings, resources, usages
from backends.base import Scope, UsageReader

STATES = (ResourceState.OK, ResourceState.ERRED, ResourceState.UPDATING, ResourceState.TERMINATING)
FIELDS = ("uuid", "name", "state", "backend_id", "project_name", "customer_name", "limits")


@dataclass(frozen=True)
class OfferingPicture:
    """What does not depend on the month. `links`: uuids of the offering's users by the name that they have there; those
    of restricted ones are left out. `names`: how all of them are spelled, by folded name.
    """

    facts: OfferingFacts
    resources: Sequence[Resource]
    snapshot: Snapshot
    components: tuple[Component, ...]
    missing: tuple[str, ...] = ()
    nameless: Sequence[Resource] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def billing_type(self, component: str) -> str:
        found = (c.fields.get("billing_type") for c in self.facts.components if c.type == component)
        return str(next(found, ""))

    def has_limit(self, component: str) -> bool:
        """Whether it is billed by its limit, and not by usage."""
        return self.billing_type(component) == "limit"


@dataclass(frozen=True)
class MonthPicture:
    month: Month
    usage: Usage
    ledger: Ledger


def offering(site: Site, *, with_users: bool = True) -> OfferingPicture:
    """Raises SiteAgentError."""
    client = site.client
    facts = offerings.facts(client)
    billing_types = {c.type: str(c.fields.get("billing_type") or "") for c in facts.components}
    components, missing = planner.accountable(site.offering.components.values(), billing_types)
    listed = resources.listed(client, STATES, fields=FIELDS)
    users = members.offering_users(client) if with_users else []
    linked = sorted((u for u in users if u.username and u.uuid and not u.is_restricted), key=_last_wins)
    return OfferingPicture(
        facts=facts,
        resources=[resource for resource in listed if resource.backend_id],
        nameless=[r for r in listed if not r.backend_id and r.state is ResourceState.OK],
        snapshot=site.backend.observe(Scope(parts=frozenset({Part.ACCOUNTS}))),
        components=components,
        missing=missing,
        links={user.username: user.uuid for user in linked},
        names={fold(user.username): user.username for user in (*users, *linked) if user.username},
    )


def month(site: Site, which: Month, *, with_users: bool = True) -> MonthPicture:
    """One month of all accounts, from the cluster and Waldur at once. Raises SiteAgentError: half a month is none."""
    with ThreadPoolExecutor(max_workers=1) as beside:
        counted = beside.submit(reader(site).usage, query(site, which))
        records = usages.of_month(site.client, which)
        shares = usages.of_users(site.client, which) if with_users else []
        return MonthPicture(which, counted.result(), Ledger.of(records, shares))


def rules(
    site: Site, picture: OfferingPicture, components: Sequence[Component], *, with_users: bool = True
) -> UsageRules:
    """`components`: those that are told of in this month."""
    picture.snapshot.require(Part.ACCOUNTS)
    return UsageRules(
        components=tuple(components),
        known=frozenset(map(fold, picture.snapshot.accounts)),
        names=picture.names,
        elsewhere=reported_accounts.of_others(site.state_dir, site.backend.cluster, site.counting_alike),
        with_users=with_users,
        in_full=site.client.features.lacks(usages.DATES),
    )


def tracked(site: Site, components: Sequence[Component], usage: Usage) -> dict[str, str]:
    """Components whose TRES the cluster does not track, with the TRES. Asked only where nobody had any of it."""
    if not planner.untracked(components, planner.counted(usage)):
        return {}
    return planner.untracked(components, all_tracked(site))


def all_tracked(site: Site) -> frozenset[str]:
    """Raises BackendError."""
    seen = site.backend.observe(Scope(parts=frozenset({Part.TRES})))
    seen.require(Part.TRES)
    return seen.tres


def _last_wins(user: OfferingUser) -> tuple[bool, str]:
    """Of several users with one name the one that is well; a person who left and came back has two."""
    return user.state == "OK", user.uuid


def reader(site: Site) -> UsageReader:
    """Raises ConfigError where the backend cannot tell what was used."""
    if isinstance(site.backend, UsageReader):
        return site.backend
    raise ConfigError(
        f"offering {site.offering.name}: its reporting_backend does not tell what was used; take one that does, such "
        "as slurm or moab, or leave reporting_backend empty"
    )


def query(site: Site, which: Month) -> UsageQuery:
    return UsageQuery(which, site.zone.key, site.offering.usage_source)
