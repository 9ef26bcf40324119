# SPDX-License-Identifier: MIT
"""Read what Waldur says about the allocations of an offering, in bulk: the number of requests does not grow with
resources.

Teams come from one listing of all project permissions of the provider. Where that is not allowed (403, or a server
without it), or in a pass over a single resource or project, they come from each resource's own team.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from agent.core.account_names import fold
from agent.core.errors import WaldurError
from agent.core.members import ProjectAccounts
from agent.core.model import (
    OfferingFacts,
    OfferingUser,
    OrderType,
    Resource,
    Snapshot,
    TeamMember,
)
from agent.core.policy import LimitsSource
from agent.core.scope import PassScope
from agent.plan import posix_accounts
from agent.plan.membership import MembershipRules
from agent.plan.shared_limits import LimitRules
from agent.run.cluster_facts import require_accounts
from agent.run.gate import Pass
from agent.run.site import Site, offering_facts, offering_rules
from agent.state import ledger, listings
from agent.state.listings import Listing
from agent.state.store import stamp
from agent.waldur import members, orders, pool, resources, teams
from agent.waldur.client import WaldurClient
from agent.waldur.teams import UserLimits
from backends.base import BULK_PARTS, Scope
from backends.usernames import registry

log = logging.getLogger(__name__)

# So many that events named are read one by one at most; more, and more than this share of the offering's accounts,
# are a pass over everything. Few of them are read faster than everything.
SINGLE_READS_AT_MOST, SINGLE_READS_SHARE, ALWAYS_SINGLE_READS = 100, 0.25, 5
BULK_TEAMS = "project_permissions"
# Two answers that a listing is not there, more than this apart, are believed.
AGREED_AFTER = timedelta(hours=1)
# Listings that are read at the same time as the resources.
LISTINGS_AT_ONCE = 4
# With these a resource has members of its own, fewer than its project (8.1).
NARROWING = ("enable_resource_projects",)


@dataclass(frozen=True, slots=True)
class MembershipFacts:
    """What Waldur says for a membership pass."""

    offering: OfferingFacts
    resources: Sequence[Resource]
    # Resources that an order is at work on.
    in_progress: Sequence[Resource]
    users: Sequence[OfferingUser]
    # By resource uuid, failed reads as the error.
    teams: Mapping[str, Sequence[TeamMember] | WaldurError]
    # None where they are unknown.
    accounts: Mapping[str, ProjectAccounts] | None
    orders: Mapping[str, frozenset[OrderType]]
    user_limits: UserLimits | None
    # The failed reads of resources and of whole projects that events named, by uuid.
    unlisted: Mapping[str, WaldurError] = field(default_factory=dict)
    # As it was read in between; None without resources, or where it was not asked for.
    cluster: Snapshot | None = None
    # Why the names that the site's directory has are unknown, empty where they are known.
    names_unknown: str = ""
    # Why the accounts are unknown.
    accounts_unknown: str = ""
    # What is to be remembered of the listings of accounts.
    listings: Mapping[str, Listing] = field(default_factory=dict)


def is_whole_cheaper(site: Site, scope: PassScope, *, is_whole_due: bool) -> bool:
    """Return whether a pass over everything should cover what events named: where that is much, or where such a pass
    is due anyway.
    """
    if len(scope) <= ALWAYS_SINGLE_READS:
        return False
    accounts = ledger.of_offering(site.state_dir, site.backend.cluster, site.offering.uuid)
    return is_whole_due or len(scope) > min(SINGLE_READS_AT_MOST, SINGLE_READS_SHARE * len(accounts))


def gather(
    site: Site, scope: PassScope = PassScope(), *, read_cluster: Callable[[], Snapshot] | None = None
) -> MembershipFacts:
    """Read everything that a membership pass needs. Raises WaldurError where what concerns all resources is unreadable,
    and what `read_cluster` raises.

    Listings are read at once, but orders before resources: the limits of an order that ends in between are in the
    resource. The cluster comes after both, at the same time as the teams: so it has the limits that such an order has
    set, and none that would be reported to Waldur are older than Waldur's.
    """
    client = site.client
    facts = offering_facts(site)
    seen = _seen_listings(site)  # by this thread, which keeps the state file open
    with pool.calls_in_threads(LISTINGS_AT_ONCE) as start:
        users = start(lambda: _users(site))
        accounts = start(lambda: _listed_accounts(site, seen))
        limits = start(lambda: teams.user_limits(client))
        in_orders = _orders_under_way(client)
        listed, unlisted = _listed(client, scope)
        found = [resource for resource in listed if resource.state in resources.HANDLED]
        named = [resource for resource in found if resource.backend_id]
        cluster = start(read_cluster) if found and read_cluster else None
        of_project = _bulk_teams(site, scope, named)
        return MembershipFacts(
            offering=facts,
            resources=found,
            in_progress=[resource for resource in listed if resource.state in resources.IN_PROGRESS],
            users=users.result(),
            teams=_teams(site, named, users.result(), of_project),
            accounts=accounts.result().by_project,
            accounts_unknown=accounts.result().unknown,
            listings=accounts.result().news,
            orders=in_orders,
            user_limits=limits.result(),
            unlisted=unlisted,
            cluster=cluster.result() if cluster else None,
        )


def without_people(site: Site) -> MembershipFacts:
    """Return what `gather` reads of resources and the cluster, in the same order, without anybody in them. Raises
    SiteAgentError.
    """
    facts, in_orders = offering_facts(site), _orders_under_way(site.client)
    listed, _ = _listed(site.client, PassScope())
    found = [resource for resource in listed if resource.state in resources.HANDLED]
    return MembershipFacts(
        offering=facts,
        resources=found,
        in_progress=[resource for resource in listed if resource.state in resources.IN_PROGRESS],
        users=(),
        teams={},
        accounts=None,
        orders=in_orders,
        user_limits=None,
        cluster=site.backend.observe(Scope(BULK_PARTS)) if found else None,
    )


def _orders_under_way(client: WaldurClient) -> dict[str, frozenset[OrderType]]:
    """Return the kinds of orders that are under way by resource uuid. Raises WaldurError."""
    found: dict[str, frozenset[OrderType]] = {}
    for order in orders.actionable(client):
        found[order.resource_uuid] = found.get(order.resource_uuid, frozenset()) | {order.type}
    return found


def _listed(client: WaldurClient, scope: PassScope) -> tuple[list[Resource], Mapping[str, WaldurError]]:
    """Return the resources of a scope, and the failed reads of single resources and projects by uuid. Raises
    WaldurError where the only read failed.
    """
    states, fields = (*resources.HANDLED, *resources.IN_PROGRESS), resources.SYNC_FIELDS
    if scope.is_everything or len(scope) > resources.LIST_ALL_FROM:
        found = resources.listed(client, states, fields=fields)
        return [resource for resource in found if scope.covers(resource)], {}

    def read(uuid: str) -> list[Resource]:
        if uuid in scope.resources:
            return [resources.get(client, uuid, fields=fields)]
        return resources.listed(client, states, fields=fields, project_uuid=uuid)

    answers = pool.each([*scope.resources, *scope.projects], read)
    failed = {uuid: answer for uuid, answer in answers.items() if isinstance(answer, WaldurError)}
    if len(failed) == len(answers) == 1:
        raise next(iter(failed.values()))
    several = (answer for answer in answers.values() if not isinstance(answer, WaldurError))
    return list({resource.uuid: resource for some in several for resource in some}.values()), failed


@dataclass(frozen=True, slots=True)
class ListedAccounts:
    """Service and course accounts by project uuid."""

    # None while it is unknown whether there are any.
    by_project: Mapping[str, ProjectAccounts] | None
    # Why it is unknown.
    unknown: str = ""
    # The listings as they are to be remembered, empty where that is known.
    news: Mapping[str, Listing] = field(default_factory=dict)


def _seen_listings(site: Site) -> Mapping[str, Listing]:
    return listings.known(site.state_dir, site.offering.uuid, site.client.url)


def _listed_accounts(site: Site, seen: Mapping[str, Listing]) -> ListedAccounts:
    """Return the service and course accounts of all projects. `seen`: the listings as they are remembered."""
    try:
        accounts = teams.accounts_of_projects(site.client)
    except WaldurError as error:
        log.warning(
            "service and course accounts could not be read, so no member is removed in this pass: %s", error
        )
        return ListedAccounts(None, f"service and course accounts could not be read: {error}")
    doubts, news = _doubts(site, seen)
    return ListedAccounts(None if doubts else accounts, "; ".join(doubts), news)


def _doubts(site: Site, before: Mapping[str, Listing]) -> tuple[list[str], Mapping[str, Listing]]:
    """Return why a listing of such accounts that is not there may be there yet, for each, and what is to be remembered:
    a server may have no such listings, or a gateway only lose them, and who is in them leaves the accounts where they
    are believed to be gone.

    A pass that applies remembers each answer, so that a fresh process knows it; one that only shows what would be done
    does not. A listing that was there once is never lacking; one that was never seen lacks only when two answers more
    than an hour apart say so.
    """
    now = datetime.now(UTC)
    after: dict[str, Listing] = {}
    doubtful: dict[str, str] = {}
    for name in members.ACCOUNT_LISTS:
        known = before.get(name)
        if not site.client.features.lacks(name) or known == Listing():
            after[name] = Listing()
        else:
            since = known.lacking_since if known else None
            # A clock that was put back says nothing about the time since. Stored to the millisecond.
            since = since if since and since <= now else now
            after[name] = Listing(since.replace(microsecond=since.microsecond // 1000 * 1000))
        if not site.client.features.lacks(name):
            continue
        since = after[name].lacking_since
        if since is None:
            doubtful[name] = (
                f"Waldur had {name} once and lacks it now; where it is gone permanently: `forget listings --offering "
                f"{site.offering.uuid}`"
            )
            log.warning("%s", doubtful[name])
        elif now - since < AGREED_AFTER:
            doubtful[name] = (
                f"Waldur has no {name}; a gateway may have lost it, so this is believed when an answer after "
                f"{stamp(since + AGREED_AFTER)} says the same"
            )
            if before.get(name) != after[name]:
                log.warning("no member is removed: %s", doubtful[name])
    for name in doubtful:
        # Only a new answer confirms the first one.
        site.client.features.forget(name)
    return list(doubtful.values()), after if after != before else {}


def _users(site: Site) -> list[OfferingUser]:
    return members.offering_users(site.client, with_persons=site.offering.username_backend != "base")


def _bulk_teams(site: Site, scope: PassScope, named: Sequence[Resource]) -> teams.Teams | None:
    """Return the people of all projects from one listing; None where teams are to be read one by one."""
    client = site.client
    is_bulk = scope.is_everything or len({each.project_uuid for each in named}) > resources.LIST_ALL_FROM
    if not (is_bulk and named and not _is_narrowed(site) and client.if_supported(BULK_TEAMS)):
        return None
    cache, customer_uuid = site.cache, offering_facts(site).customer_uuid
    try:
        if cache.provider_uuid is None:
            cache.provider_uuid = teams.provider_uuid(client, customer_uuid)
        return teams.of_projects(client, cache.provider_uuid) if cache.provider_uuid else None
    except WaldurError as error:
        if error.status not in (403, 404, 405):
            raise
        client.note_missing(BULK_TEAMS, error)
        return None


def _teams(
    site: Site, named: Sequence[Resource], users: Iterable[OfferingUser], of_project: teams.Teams | None
) -> dict[str, Sequence[TeamMember] | WaldurError]:
    """Return teams by resource, from the listing of all or read one by one; both lead to the same plan.

    The listing does not have the names of people whose account at the offering the token may not see, nor projects
    without anybody: those teams are read one by one, and again when the listing says something else of the project,
    or after an hour. No member is removed for what was read earlier: removals are confirmed.
    """
    client = site.client
    if of_project is None:
        return _single_teams(client, named, narrowed=_is_narrowed(site))
    seen = {user.user_uuid for user in users}
    whole = {
        project: team for project, team in of_project.items() if seen >= {member.user_uuid for member in team}
    }
    asked = [resource for resource in named if resource.project_uuid not in whole]
    listed = {r.uuid: whole[r.project_uuid] for r in named if r.project_uuid in whole}
    return {**listed, **_incomplete_teams(site, asked, of_project)}


def _incomplete_teams(
    site: Site, asked: Sequence[Resource], of_project: teams.Teams
) -> dict[str, Sequence[TeamMember] | WaldurError]:
    """Return teams that the listing does not have whole: as they were read before, where it says the same of them."""
    known, found = site.cache.teams, dict[str, Sequence[TeamMember] | WaldurError]()
    for resource in asked:
        kept = known.of(resource.project_uuid, of_project.get(resource.project_uuid, ()))
        if kept is not None:
            found[resource.uuid] = kept
    read = _single_teams(site.client, [r for r in asked if r.uuid not in found], narrowed=False)
    for resource in asked:
        team = read.get(resource.uuid)
        if team is not None and not isinstance(team, WaldurError):
            known.note(resource.project_uuid, of_project.get(resource.project_uuid, ()), team)
    return {**found, **read}


def confirm_people(site: Site, facts: MembershipFacts, concerned: Sequence[Resource]) -> MembershipFacts:
    """Return the facts with everything read again that decides who is a member of these; a directory that follows
    Waldur has the names of the first look. Raises WaldurError.
    """
    client = site.client
    users = _users(site)
    if registry.follows_waldur(site.offering):
        users = posix_accounts.as_before(users, facts.users)
    read = _single_teams(client, concerned, narrowed=_is_narrowed(site))
    accounts = _listed_accounts(site, _seen_listings(site))
    return replace(
        facts,
        users=users,
        teams={**facts.teams, **read},
        accounts=accounts.by_project,
        accounts_unknown=accounts.unknown,
        listings=accounts.news,
    )


def _is_narrowed(site: Site) -> bool:
    return any(offering_facts(site).plugin_options.get(option) for option in NARROWING)


def _single_teams(
    client: WaldurClient, named: Sequence[Resource], *, narrowed: bool
) -> dict[str, Sequence[TeamMember] | WaldurError]:
    """Read a team for each project, or for each resource where these are `narrowed`."""
    place = {resource.uuid: resource.uuid if narrowed else resource.project_uuid for resource in named}
    asked = {place[resource.uuid]: resource.uuid for resource in named}
    answers = teams.of_resources(client, asked.values())
    return {resource.uuid: answers[asked[place[resource.uuid]]] for resource in named}


def sync_rules(site: Site, facts: MembershipFacts, *, unrecorded: str = "") -> MembershipRules:
    """Return the rules of a plan. `unrecorded`: an offering on the same cluster whose accounts are unknown."""
    rules = offering_rules(site, facts.offering)
    limits = LimitRules(
        rules.components,
        from_waldur=site.offering.limits_source is LimitsSource.WALDUR,
        periodic=site.offering.periodic_limits_enabled,
    )
    waiting = (
        f"offering {unrecorded} on the same cluster has not recorded yet which accounts it names"
        if unrecorded
        else ""
    )
    return MembershipRules(
        rules,
        limits,
        no_removal_reason=waiting or facts.names_unknown or facts.accounts_unknown,
        keeps_unmanaged=bool(site.offering.keeps_unmanaged),
        with_details=site.exposes_details,
    )


def named_accounts(found: Iterable[Resource]) -> frozenset[str]:
    """Return the accounts that these resources name."""
    return frozenset(fold(resource.backend_id) for resource in found if resource.backend_id)


def limits_by_username(
    limits: Mapping[str, Mapping[str, object]], users: Iterable[OfferingUser]
) -> dict[str, dict[str, Any]] | None:
    """Return a resource's limits of single users by username, without users who have none here, or whose name is
    another user's.

    None where one belongs to a user whom the token may not see: then it is unknown whose limits are lifted.
    """
    if not limits:
        return {}
    names = {user.uuid: "" if user.is_name_taken else fold(user.username) for user in users}
    if not set(limits) <= set(names):
        return None
    return {names[uuid]: dict(values) for uuid, values in limits.items() if names[uuid]}


def read(run: Pass) -> MembershipFacts:
    """Return what Waldur says about the resources of a pass, and its cluster, read at the same time; once in a pass.
    Raises SiteAgentError.
    """
    known = run.result(MembershipFacts)
    if known is None:
        site = run.site
        known = gather(site, run.scope, read_cluster=lambda: site.backend.observe(Scope(BULK_PARTS)))
        if known.cluster is not None and not run.scope.is_everything:
            require_accounts(site, known.cluster)
        run.leave(known)
    return known


def members_of(facts: MembershipFacts, snapshot: Snapshot) -> frozenset[str]:
    """Return who is in the offering's accounts on the cluster, without service and course accounts that are known."""
    others: set[str] = set()
    for accounts in (facts.accounts or {}).values():
        others |= accounts.active | accounts.in_transition | accounts.ended
    named = named_accounts([*facts.resources, *facts.in_progress])
    inside = {user for account, user in snapshot.members() if account in named}
    return frozenset(inside - others)
