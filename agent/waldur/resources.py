# SPDX-License-Identifier: MIT
"""Resources (allocations): their facts, the name of their account, their limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.core.errors import WaldurError, WaldurLacks
from agent.core.model import Resource, ResourceState
from agent.waldur import pool, records
from agent.waldur.client import WaldurClient

# One list page costs less than this many single requests.
LIST_FROM = 3
IN_PROGRESS = (ResourceState.CREATING, ResourceState.UPDATING, ResourceState.TERMINATING)

PATH = "marketplace-provider-resources/"
FIELDS = (
    "uuid", "name", "slug", "state", "backend_id", "project_uuid", "project_slug", "project_name",
    "customer_uuid", "customer_slug", "customer_name", "limits", "attributes", "offering_plugin_options",
    "restrict_member_access", "resource_type", "created", "end_date",
)  # fmt: skip


def listed(client: WaldurClient, states: Iterable[ResourceState]) -> list[Resource]:
    params = [("offering_uuid", client.offering_uuid), *(("state", s.value) for s in states)]
    params += [("field", name) for name in FIELDS]
    return [records.resource(item) for item in client.pages(PATH, params)]


def get(client: WaldurClient, resource_uuid: str) -> Resource:
    params = [("offering_uuid", client.offering_uuid), *(("field", name) for name in FIELDS)]
    return records.resource(client.get(f"{PATH}{resource_uuid}/", params))


def by_uuid(client: WaldurClient, uuids: Iterable[str]) -> dict[str, Resource | WaldurError]:
    """Resources by uuid: those in progress from one listing, the others one by one; what failed as the error."""
    wanted = set(uuids)
    read: dict[str, Resource | WaldurError] = {}
    if len(wanted) >= LIST_FROM:
        read = {r.uuid: r for r in listed(client, IN_PROGRESS) if r.uuid in wanted}
    return {**read, **pool.each(sorted(wanted - set(read)), lambda uuid: get(client, uuid))}


def holders_of(client: WaldurClient, account: str) -> frozenset[str]:
    """Uuids of the offering's resources, ended ones too, that have this account's name as their backend id."""
    params = [
        ("offering_uuid", client.offering_uuid),
        ("backend_id", account),
        ("field", "uuid"),
        ("field", "state"),
    ]
    return frozenset(records.uuid(item, "a resource") for item in client.pages(PATH, params))


def set_backend_id(client: WaldurClient, resource_uuid: str, account: str) -> None:
    client.post(f"{PATH}{resource_uuid}/set_backend_id/", {"backend_id": account}, repeatable=True)


def set_limits(client: WaldurClient, resource_uuid: str, limits: Mapping[str, Any]) -> None:
    """Show limits in Waldur, without an order. Servers before mid-2025 have no such call."""
    if not client.if_supported("set_limits"):
        return
    try:
        client.post(f"{PATH}{resource_uuid}/set_limits/", {"limits": dict(limits)}, repeatable=True)
    except WaldurLacks as error:
        client.note_missing("set_limits", error)


def settle_allocation(client: WaldurClient, resource_uuid: str) -> None:
    """Set the object behind a resource of a 2024 server to OK; else that server fails the next update by itself."""
    path = f"marketplace-slurm-remote/{resource_uuid}/set_state/"
    for state in ("creating", "ok"):
        client.post(path, {"state": state})
