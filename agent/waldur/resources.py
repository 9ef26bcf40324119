# SPDX-License-Identifier: MIT
"""Resources (allocations): their facts, the name of their account, their limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from agent.core.errors import WaldurError
from agent.core.model import Resource, ResourceState
from agent.core.waldur_actions import (
    ClaimAccount,
    FailResource,
    MarkAllocationOk,
    MarkResourceOk,
    MemberStatus,
    RefreshLastSync,
    ReleaseAccount,
    ReportLimits,
    ReportMembers,
    WaldurAction,
)
from agent.http.client import Params
from agent.http.connections import POOL_SIZE
from agent.waldur import pool, records
from agent.waldur.client import OLDEST_FIRST, Request, WaldurClient

# One list page costs less than this many single requests.
LIST_FROM = 3
# The same where the listing is of all resources: of 5,000 it is 17 pages.
LIST_ALL_FROM = 20
# Kept in step by passes over members.
HANDLED = (ResourceState.OK, ResourceState.ERRED)
# An order is at work on these.
IN_PROGRESS = (ResourceState.CREATING, ResourceState.UPDATING, ResourceState.TERMINATING)

PATH = "marketplace-provider-resources/"
FIELDS = (
    "uuid", "name", "slug", "state", "backend_id", "project_uuid", "project_slug", "project_name",
    "customer_uuid", "customer_slug", "customer_name", "limits", "attributes", "offering_plugin_options",
    "restrict_member_access", "resource_type", "created", "end_date", "offering_uuid", "spending_limits",
)  # fmt: skip
METADATA_FIELDS = ("uuid", "state", "backend_metadata")
HOLDER_FIELDS = ("uuid", "state", "backend_id", "created", "offering_uuid")

# What keeping a resource in step needs beyond that.
SYNC_FIELDS = (
    *FIELDS, "backend_metadata", "paused", "downscaled", "last_sync", "error_message", "has_api_keys",
)  # fmt: skip


def listed(
    client: WaldurClient,
    states: Iterable[ResourceState],
    *,
    fields: Iterable[str] = FIELDS,
    project_uuid: str = "",
) -> list[Resource]:
    params = [("offering_uuid", client.offering_uuid), *(("state", s.value) for s in states)]
    params += [("project_uuid", project_uuid)] if project_uuid else []
    params += [("field", name) for name in fields]
    found: list[Resource] = []
    for item in client.pages(PATH, params, order=OLDEST_FIRST):
        before = found[-1] if found else None
        found.append(records.resource(records.of_offering(item, client.offering_uuid), before))
    return found


def get(client: WaldurClient, resource_uuid: str, *, fields: Iterable[str] = FIELDS) -> Resource:
    params = [("offering_uuid", client.offering_uuid), *(("field", name) for name in fields)]
    answer = client.get(f"{PATH}{resource_uuid}/", params)
    return records.resource(records.of_offering(answer, client.offering_uuid))


def by_uuid(client: WaldurClient, uuids: Iterable[str]) -> dict[str, Resource | WaldurError]:
    """Return resources by uuid: those in progress from one listing, the others one by one; what failed as the error."""
    wanted = set(uuids)
    read: dict[str, Resource | WaldurError] = {}
    if len(wanted) >= LIST_FROM:
        read = {r.uuid: r for r in listed(client, IN_PROGRESS) if r.uuid in wanted}
    return {**read, **pool.each(sorted(wanted - set(read)), lambda uuid: get(client, uuid))}


def accounts_of(client: WaldurClient, uuids: Iterable[str]) -> Mapping[str, str]:
    """Return the names of the accounts of resources in whatever state, by uuid, as far as they can be read: of a few
    one by one, of many from one listing. Raises WaldurError.
    """
    wanted = set(uuids)
    if len(wanted) >= LIST_ALL_FROM:
        listed = _holders(client, [], everywhere=False)
        return {each.uuid: each.backend_id for each in listed if each.uuid in wanted}
    read = pool.each(sorted(wanted), lambda uuid: get(client, uuid, fields=HOLDER_FIELDS))
    return {uuid: each.backend_id for uuid, each in read.items() if isinstance(each, Resource)}


def holders_of(client: WaldurClient, account: str, *, everywhere: bool = False) -> list[Resource]:
    """Return resources that have this account's name as their backend id, ended ones too.

    The offering's own; with `everywhere` those of all offerings that the token's user sees.
    """
    return _holders(client, [("backend_id", account)], everywhere=everywhere)


def holders_of_each(
    client: WaldurClient, accounts: Iterable[str], *, everywhere: bool = False
) -> Mapping[str, list[Resource] | WaldurError]:
    """Return the same for several names: a request for each, or one listing where they are more than go out at once."""
    names = sorted(set(accounts))
    if len(names) <= POOL_SIZE:
        return pool.each(names, lambda name: holders_of(client, name, everywhere=everywhere))
    try:
        listing = _holders(client, [], everywhere=everywhere)
    except WaldurError as error:
        return dict.fromkeys(names, error)
    return {name: [r for r in listing if r.backend_id == name] for name in names}


def nameless(client: WaldurClient, project_uuid: str) -> frozenset[str]:
    """Return uuids of a project's resources that have not ended and have no backend id."""
    found = _holders(client, [("project_uuid", project_uuid)], everywhere=False)
    return frozenset(r.uuid for r in found if not r.backend_id and r.state is not ResourceState.TERMINATED)


def _holders(client: WaldurClient, filters: Params, *, everywhere: bool) -> list[Resource]:
    own = [] if everywhere else [("offering_uuid", client.offering_uuid)]
    params = [*own, *filters, *(("field", name) for name in HOLDER_FIELDS)]
    items = client.pages(PATH, params, order=OLDEST_FIRST)
    ours = items if everywhere else (records.of_offering(item, client.offering_uuid) for item in items)
    return [records.resource(item) for item in ours]


def set_backend_id(client: WaldurClient, resource_uuid: str, account: str) -> None:
    client.post(f"{PATH}{resource_uuid}/set_backend_id/", {"backend_id": account}, repeatable=True)


def set_limits(client: WaldurClient, resource_uuid: str, limits: Mapping[str, Any]) -> None:
    """Show limits in Waldur, without an order. Raises WaldurLacks with servers before mid-2025."""
    _post_if_there(client, resource_uuid, "set_limits", {"limits": dict(limits)})


def allocation_state(client: WaldurClient, resource_uuid: str) -> str:
    """Return the state of the object behind a resource of a 2024 server; newer ones have none (WaldurLacks)."""
    details = client.get(f"{PATH}{resource_uuid}/details/", [("field", "state")])
    return str(details.get("state") or "")


def mark_allocation_ok(client: WaldurClient, resource_uuid: str) -> None:
    """Set the object behind a resource of a 2024 server to OK; else that server fails the next update by itself.

    `ok` alone: legal in every state, and twice. `creating` before it is not, after an update (409).
    """
    path = f"marketplace-slurm-remote/{resource_uuid}/set_state/"
    client.post_if_there(MarkAllocationOk.feature, path, {"state": "ok"}, repeatable=True)


def metadata_of(client: WaldurClient, uuids: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
    """Return what Waldur shows now of the backend of many resources, from one listing; of a few, and of those that an
    order is at work on, nothing. Raises WaldurError.
    """
    wanted = set(uuids)
    if len(wanted) < LIST_ALL_FROM:
        return {}
    read = listed(client, HANDLED, fields=METADATA_FIELDS)
    return {resource.uuid: resource.backend_metadata for resource in read if resource.uuid in wanted}


def set_metadata(
    client: WaldurClient,
    resource_uuid: str,
    metadata: Mapping[str, Any],
    read: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> None:
    """Set these keys of what Waldur shows of the resource's backend. The call replaces all keys, and the server has
    some of its own that orders change: so they are read right before, unless `read` has them from a moment ago.
    """
    now = read.get(resource_uuid)
    if now is None:
        now = get(client, resource_uuid, fields=METADATA_FIELDS).backend_metadata
    wanted = {**now, **metadata}
    if wanted != now:
        body = {"backend_metadata": wanted}
        client.post(f"{PATH}{resource_uuid}/set_backend_metadata/", body, repeatable=True)


def report_members(client: WaldurClient, resource_uuid: str, statuses: Iterable[MemberStatus]) -> None:
    """Report to Waldur how far single members are on the cluster; others keep what was reported of them (8.1). Raises
    WaldurError: 409 where the offering does not want it.
    """
    entries = [
        {
            "user_uuid": each.person,
            "scope_type": "resource",
            "role_name": each.role,
            "state": each.state,
            "message": each.message,
        }
        for each in statuses
    ]
    _post_if_there(client, resource_uuid, ReportMembers.feature, {"statuses": entries})


def fail(client: WaldurClient, resource_uuid: str, message: str) -> None:
    body = {"error_message": message, "error_traceback": ""}
    client.post(f"{PATH}{resource_uuid}/set_as_erred/", body, repeatable=True)


def _post_if_there(client: WaldurClient, resource_uuid: str, action: str, body: Mapping[str, Any]) -> None:
    client.post_if_there(action, f"{PATH}{resource_uuid}/{action}/", dict(body), repeatable=True)


ACTIONS: Mapping[type[WaldurAction], Request] = {
    ClaimAccount: lambda client, a: set_backend_id(client, a.resource, a.account),
    ReleaseAccount: lambda client, a: set_backend_id(client, a.resource, ""),
    ReportLimits: lambda client, a: set_limits(client, a.resource, dict(a.limits)),
    MarkAllocationOk: lambda client, a: mark_allocation_ok(client, a.resource),
    FailResource: lambda client, a: fail(client, a.resource, a.message),
    # Both with servers since mid-2025; the first forgets the error, too.
    MarkResourceOk: lambda client, a: _post_if_there(client, a.resource, "set_as_ok", {}),
    RefreshLastSync: lambda client, a: _post_if_there(client, a.resource, "refresh_last_sync", {}),
    ReportMembers: lambda client, a: report_members(client, a.resource, a.statuses),
}
