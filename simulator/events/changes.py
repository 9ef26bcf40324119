# SPDX-License-Identifier: MIT
"""Changes of the store since the last look, as the messages that the real server sends about them.

Messages carry the payloads of 8.0; what one look sees as a single change is one message, even where several calls
made it. Nothing here sends anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from simulator.world.records import (
    JsonObject,
    OfferingUser,
    OfferingUserState,
    Order,
    OrderState,
    Resource,
    ResourceState,
)
from simulator.world.store import Store

# Waldur sends no message about executing, erred, canceled and rejected orders.
ANNOUNCED_STATES = (OrderState.PENDING_CONSUMER, OrderState.PENDING_PROVIDER, OrderState.DONE)


@dataclass(frozen=True, slots=True)
class Message:
    object_type: str
    offering_uuid: str
    payload: JsonObject


@dataclass(slots=True)
class _Seen:
    orders: dict[str, Any] = field(default_factory=dict)
    grants: dict[str, Any] = field(default_factory=dict)
    users: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)
    accounts: dict[str, Any] = field(default_factory=dict)
    requests: frozenset[str] = frozenset()
    keys: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)


class Changes:
    """Compare the store with its state at the last call; rows present at the start are no change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sequence = 0
        self._seen = self._look()

    def take(self) -> list[Message]:
        """Return the messages about all changes since the last call. The caller holds the store's lock."""
        before, now = self._seen, self._look()
        self._seen = now
        return [
            *self._of_orders(before, now),
            *self._of_grants(before, now),
            *self._of_users(before, now),
            *self._of_resources(before, now),
            *self._of_accounts(before, now),
            *self._of_requests(before, now),
            *self._of_keys(before, now),
            *self._of_groups(before, now),
        ]

    def _look(self) -> _Seen:
        store = self._store
        return _Seen(
            orders={o.uuid: o.state for o in store.orders},
            grants={
                g.uuid: (g.user_uuid, g.scope_uuid, g.role) for g in store.grants if g.scope_type == "project"
            },
            users={u.uuid: (u.username, u.state) for u in store.offering_users},
            resources={r.uuid: (r.paused, r.downscaled, r.restrict_member_access) for r in store.resources},
            accounts={a.uuid: (a.username, a.state) for a in store.accounts},
            requests=frozenset(r.uuid for r in store.import_requests),
            keys={k.uuid: k.state for k in store.api_keys},
            groups={g.uuid: (g.provider_uuid, g.project_uuid, g.name, g.gid) for g in store.project_groups},
        )

    def _of_orders(self, before: _Seen, now: _Seen) -> Iterator[Message]:
        for uuid, state in now.orders.items():
            if state != before.orders.get(uuid) and state in ANNOUNCED_STATES:
                yield order_message(self._store.orders[uuid])

    def _of_grants(self, before: _Seen, now: _Seen) -> Iterator[Message]:
        for uuid in before.grants.keys() ^ now.grants.keys():
            granted = uuid in now.grants
            user_uuid, project_uuid, role = (now if granted else before).grants[uuid]
            payload = {
                "user_uuid": user_uuid,
                "user_username": self._store.users[user_uuid].username,
                "project_uuid": project_uuid,
                "project_name": self._store.projects[project_uuid].name,
                "role_name": role,
                "granted": granted,
            }
            for offering_uuid in self._offerings_of(project_uuid):
                yield Message("user_role", offering_uuid, payload)

    def _of_users(self, before: _Seen, now: _Seen) -> Iterator[Message]:
        for uuid, (username, state) in now.users.items():
            known = before.users.get(uuid)
            if known == (username, state):
                continue
            row = self._store.offering_users[uuid]
            if known is None:
                yield _user_message(row, action="create")
                continue
            if username and username != known[0]:
                yield self._username_message(row)
            names = [
                name for name, old, new in zip(("username", "state"), known, (username, state), strict=True)
                if old != new
            ]  # fmt: skip
            yield _user_message(row, action="update", changed_fields=names)

    def _of_resources(self, before: _Seen, now: _Seen) -> Iterator[Message]:
        for uuid, flags in now.resources.items():
            if uuid in before.resources and flags != before.resources[uuid]:
                self._sequence += 1
                yield resource_message(self._store.resources[uuid], self._sequence)

    def _of_accounts(self, before: _Seen, now: _Seen) -> Iterator[Message]:
        for uuid, (username, state) in now.accounts.items():
            if before.accounts.get(uuid) == (username, state) or not username:
                continue
            row = self._store.accounts[uuid]
            payload = {
                "account_uuid": uuid,
                "account_username": username,
                "scope_type": "project",
                "project_uuid": row.project_uuid,
                "project_name": self._store.projects[row.project_uuid].name,
                "action": "delete" if state == "Closed" else "create",
            }
            kind = "course_account" if row.kind == "course" else "service_account"
            for offering_uuid in self._offerings_of(row.project_uuid):
                yield Message(kind, offering_uuid, payload)

    def _of_requests(self, before: _Seen, now: _Seen) -> Iterator[Message]:
        for uuid in sorted(now.requests - before.requests):
            offering_uuid = self._store.import_requests[uuid].offering_uuid
            yield Message("importable_resources", offering_uuid, {"backend_resource_request_uuid": uuid})

    def _of_keys(self, before: _Seen, now: _Seen) -> Iterator[Message]:
        for uuid, state in now.keys.items():
            if state != "Updating" or before.keys.get(uuid) == state:
                continue
            key = self._store.api_keys[uuid]
            resource = self._store.resources[key.resource_uuid]
            payload = {
                "action": "rotate",
                "resource_uuid": resource.uuid,
                "resource_backend_id": resource.backend_id,
                "api_key_uuid": uuid,
                "client_id": key.client_id,
            }
            yield Message("resource_api_key_rotation", resource.offering_uuid, payload)

    def _of_groups(self, before: _Seen, now: _Seen) -> Iterator[Message]:
        """One message for each offering of the provider."""
        for uuid in sorted({*before.groups, *now.groups}):
            old, new = before.groups.get(uuid), now.groups.get(uuid)
            if old == new:
                continue
            provider_uuid, project_uuid, name, gid = before.groups[uuid] if new is None else new
            customer_uuid = self._store.providers[provider_uuid].customer_uuid
            payload = {
                "action": "create" if old is None else "delete" if new is None else "update",
                "service_provider_uuid": provider_uuid,
                "customer_uuid": customer_uuid,
                "project_group_uuid": uuid,
                "project_uuid": project_uuid,
                "name": name,
                "gid": gid,
            }
            for offering in self._store.offerings.where("customer", customer_uuid):
                yield Message("service_provider_project_group", offering.uuid, payload)

    def _username_message(self, row: OfferingUser) -> Message:
        projects = {g.scope_uuid for g in self._store.active_roles(row.user_uuid)}
        named = [
            r.backend_id for r in self._store.resources
            if r.project_uuid in projects and r.offering_uuid == row.offering_uuid and r.backend_id
        ]  # fmt: skip
        payload = {
            "username": row.username,
            "offering_user_uuid": row.uuid,
            "user_uuid": row.user_uuid,
            "state": row.state.number,
            "action": "username_set",
            "resource_backend_ids": named,
        }
        return Message("offering_user", row.offering_uuid, payload)

    def _offerings_of(self, project_uuid: str) -> list[str]:
        """Return offerings where the project has a live resource."""
        return sorted(
            {
                resource.offering_uuid
                for resource in self._store.resources.where("project", project_uuid)
                if resource.state in (ResourceState.OK, ResourceState.ERRED, ResourceState.UPDATING)
            }
        )


def order_message(order: Order) -> Message:
    payload = {"order_uuid": order.uuid, "order_state": order.state.value}
    return Message("order", order.offering_uuid, payload)


def resource_message(resource: Resource, sequence: int) -> Message:
    payload = {
        "resource_uuid": resource.uuid,
        "resource_backend_id": resource.backend_id,
        "downscaled": resource.downscaled,
        "restrict_member_access": resource.restrict_member_access,
        "paused": resource.paused,
        "sequence_number": sequence,
    }
    return Message("resource", resource.offering_uuid, payload)


def _user_message(row: OfferingUser, *, action: str, changed_fields: list[str] | None = None) -> Message:
    if row.state is OfferingUserState.DELETED:
        action = "delete"
    payload: JsonObject = {
        "offering_user_uuid": row.uuid,
        "user_uuid": row.user_uuid,
        "username": row.username,
        "state": row.state.value,
        "action": action,
    }
    if changed_fields is not None:
        payload["changed_fields"] = changed_fields
    return Message("offering_user", row.offering_uuid, payload)
