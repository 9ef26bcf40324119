# SPDX-License-Identifier: MIT
"""Authentication, visibility and permissions of the caller.

An object that the caller may not see is answered with 404, a forbidden action with 403. `store.denied` takes single
permissions away from single users, so that a test can meet a 403 anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from simulator.rules.errors import forbidden, unauthenticated
from simulator.world.identifiers import role_uuid
from simulator.world.records import Offering, Order, Project, Resource, Role, User
from simulator.world.store import Store

Scope = tuple[str, str]

_PROVIDER_OWNER = frozenset(
    {
        "OFFERING.UPDATE",
        "OFFERING.CREATE",
        "OFFERING.CREATE_USER",
        "OFFERING.UPDATE_USER",
        "OFFERING.UPDATE_COMPONENTS",
        "ORDER.APPROVE",
        "ORDER.REJECT",
        "ORDER.CANCEL",
        "ORDER.DESTROY",
        "PROVIDER.LIST_PERMISSIONS",
        "RESOURCE.SET_BACKEND_ID",
        "RESOURCE.SET_BACKEND_METADATA",
        "RESOURCE.SET_LIMITS",
        "RESOURCE.SET_PLAN",
        "RESOURCE.SET_USAGE",
        "RESOURCE.SUBMIT_REPORT",
        "RESOURCE.TERMINATE",
    }
)
# Of the server's own definition of the role: it approves nothing.
_OFFERING_MANAGER = frozenset(
    {
        "OFFERING.UPDATE",
        "OFFERING.UPDATE_COMPONENTS",
        "RESOURCE.SET_BACKEND_ID",
        "RESOURCE.SET_BACKEND_METADATA",
        "RESOURCE.SET_USAGE",
    }
)
# A role of a provider's own making, with what orders, members, reports and components need.
_SITE_AGENT = frozenset(
    {
        "OFFERING.UPDATE",
        "OFFERING.UPDATE_COMPONENTS",
        "ORDER.APPROVE",
        "ORDER.REJECT",
        "RESOURCE.SET_BACKEND_ID",
        "RESOURCE.SET_BACKEND_METADATA",
        "RESOURCE.SET_USAGE",
    }
)
_CONSUMER = frozenset(
    {
        "ORDER.APPROVE",
        "ORDER.CANCEL",
        "ORDER.DESTROY",
        "RESOURCE.SET_LIMITS",
        "RESOURCE.SET_PLAN",
        "RESOURCE.TERMINATE",
    }
)
_ROLE_PERMISSIONS: dict[str, frozenset[str]] = {
    "CUSTOMER.OWNER": _PROVIDER_OWNER,
    "CUSTOMER.MANAGER": _PROVIDER_OWNER,
    "OFFERING.MANAGER": _OFFERING_MANAGER,
    "CUSTOMER.SITE_AGENT": _SITE_AGENT,
    "PROJECT.MANAGER": _CONSUMER - {"ORDER.APPROVE", "ORDER.CANCEL", "ORDER.DESTROY"},
    "PROJECT.ADMIN": frozenset(),
    "PROJECT.MEMBER": frozenset(),
}
# An owner could not set resource states in 2024 (403 on the recorded server); later owners can.
_SINCE_8 = frozenset({"RESOURCE.SET_STATE", "OFFERING.MANAGE_BACKEND_RESOURCES"})
_PROVIDER_ROLES = ("CUSTOMER.OWNER", "CUSTOMER.MANAGER", "OFFERING.MANAGER", "CUSTOMER.SITE_AGENT")


def authenticate(store: Store, header: str | None, query_token: str) -> User:
    """Return the user of `Token <key>` or, from 8.0 on, `Bearer <key>`. Raises ApiError 401 for anything else."""
    words = (header or query_token or "").split()
    schemes = ("token", "bearer") if store.age.is_modern else ("token",)
    if not words or words[0].lower() not in schemes:
        raise unauthenticated("Authentication credentials were not provided.")
    if len(words) != 2:
        raise unauthenticated("Invalid token header: one token, no spaces.")
    token = store.tokens.get(words[1])
    if token is None or token.scheme.lower() != words[0].lower():
        raise unauthenticated("Invalid token.")
    if token.expires_at is not None and token.expires_at <= store.clock.now():
        raise unauthenticated("Token has expired.")
    user = store.users[token.user_uuid]
    if not user.is_active:
        raise unauthenticated("User inactive or deleted.")
    return user


def may(store: Store, user: User, permission: str, scopes: Iterable[Scope]) -> bool:
    if (user.username, permission) in store.denied:
        return False
    if user.is_staff:
        return True
    wanted = set(scopes)
    return any(
        (grant.scope_type, grant.scope_uuid) in wanted and permission in permissions_of(store, grant.role)
        for grant in store.active_roles(user.uuid)
    )


def require(store: Store, user: User, permission: str, scopes: Iterable[Scope]) -> None:
    if not may(store, user, permission, scopes):
        raise forbidden()


def require_owner(store: Store, user: User, offering: Offering) -> None:
    """Raise ApiError 403 for whoever is not an owner of the provider; no permission of a role replaces that."""
    roles = {g.role for g in store.active_roles(user.uuid) if g.scope_uuid == offering.customer_uuid}
    if not user.is_staff and "CUSTOMER.OWNER" not in roles:
        raise forbidden()


def customer_scope(offering: Offering) -> list[Scope]:
    return [("customer", offering.customer_uuid)]


def offering_scopes(offering: Offering) -> list[Scope]:
    return [("offering", offering.uuid), ("customer", offering.customer_uuid)]


def project_scopes(project: Project) -> list[Scope]:
    return [("project", project.uuid), ("customer", project.customer_uuid)]


def provides(store: Store, user: User, offering: Offering) -> bool:
    """Return whether the caller is on the provider's side of this offering."""
    if user.is_staff or user.is_support:
        return True
    scopes = {offering.uuid, offering.customer_uuid}
    known = {*_PROVIDER_ROLES, *store.made_roles}
    return any(g.role in known and g.scope_uuid in scopes for g in store.active_roles(user.uuid))


def provided(store: Store, user: User) -> frozenset[str]:
    """Return the offerings on whose provider's side the caller is."""
    return frozenset(offering.uuid for offering in store.offerings if provides(store, user, offering))


def consumed(store: Store, user: User) -> frozenset[str]:
    """Return the projects that the caller belongs to, by a role in them or at their customer."""
    if user.is_staff or user.is_support:
        return frozenset(project.uuid for project in store.projects)
    scopes = {grant.scope_uuid for grant in store.active_roles(user.uuid)}
    return frozenset(p.uuid for p in store.projects if p.uuid in scopes or p.customer_uuid in scopes)


def consumes(store: Store, user: User, row: Resource | Order) -> bool:
    """Return whether the caller belongs to the row's project or to the project's customer."""
    if user.is_staff or user.is_support:
        return True
    project = store.projects[row.project_uuid]
    scopes = {project.uuid, project.customer_uuid}
    return any(g.scope_uuid in scopes for g in store.active_roles(user.uuid))


def sees_order(store: Store, user: User, order: Order) -> bool:
    return provides(store, user, store.offering_of(order)) or consumes(store, user, order)


def roles(store: Store) -> list[Role]:
    """Return the roles of the server, its own and those that were made."""
    own = [*_ROLE_PERMISSIONS, *(name for name in store.made_roles if name not in _ROLE_PERMISSIONS)]
    return [Role(uuid=role_uuid(name), name=name, permissions=permissions_of(store, name)) for name in own]


def permissions_of(store: Store, role: str) -> frozenset[str]:
    if role in store.made_roles:
        return store.made_roles[role]
    granted = _ROLE_PERMISSIONS.get(role, frozenset())
    if store.age.is_modern and role in _PROVIDER_ROLES:
        return granted | _SINCE_8
    return granted
