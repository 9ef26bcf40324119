# SPDX-License-Identifier: MIT
"""Service providers with their keys, projects and grants; projects and their roles; integration statuses."""

from __future__ import annotations

from datetime import datetime

from simulator.api.filters import Filters, text_has, text_is, uuid_is
from simulator.render.offerings import project_body, provider_body
from simulator.render.people import key_body, project_group_body, project_permission_body
from simulator.render.view import pick
from simulator.rules import access, lookup, members, offering_user_rules
from simulator.rules.errors import bad_field, forbidden, unknown_object
from simulator.rules.integration import status_word
from simulator.rules.lookup import page_of, view_of
from simulator.server.routes import Call, Reply, Routes
from simulator.world.agent_records import IntegrationStatus
from simulator.world.ages import Age
from simulator.world.clock import wire_time
from simulator.world.identifiers import as_uuid
from simulator.world.records import Grant, JsonObject, Project, ProjectGroup, ResourceState, SshKey, User
from simulator.world.store import ServiceProvider

routes = Routes()

_PROJECT_FILTERS: Filters[Project] = Filters(
    customer_uuid=uuid_is(lambda p: p.customer_uuid),
    name=text_has(lambda p: (p.name,)),
    name_exact=text_is(lambda p: p.name),
    slug=text_is(lambda p: p.slug),
    query=text_has(lambda p: (p.name, p.slug, p.uuid)),
)
_GRANT_FILTERS: Filters[Grant] = Filters(
    project_uuid=uuid_is(lambda g: g.scope_uuid), user_uuid=uuid_is(lambda g: g.user_uuid)
)


@routes.on("GET", "marketplace-service-providers/")
def list_providers(call: Call) -> Reply:
    filters: Filters[ServiceProvider] = Filters(customer_uuid=uuid_is(lambda p: p.customer_uuid))
    rows = filters.apply(call.store.providers, call.query)
    return page_of(call, rows, lambda p: provider_body(view_of(call), p))


@routes.on("GET", "marketplace-service-providers/{uuid}/projects/")
def list_provider_projects(call: Call) -> Reply:
    rows = _PROJECT_FILTERS.apply(_served_projects(call, _owned_provider(call)), call.query)
    return page_of(call, rows, lambda p: project_body(view_of(call), p))


@routes.on("GET", "marketplace-service-providers/{uuid}/users/")
def list_provider_users(call: Call) -> Reply:
    provider = _owned_provider(call)
    grants = [g for p in _served_projects(call, provider) for g in call.store.active_grants(p.uuid)]
    counts: dict[str, int] = {}
    for grant in grants:
        counts[grant.user_uuid] = counts.get(grant.user_uuid, 0) + 1
    users = sorted((call.store.users[uuid] for uuid in counts), key=lambda u: u.full_name)
    return page_of(call, users, lambda u: _provider_user_body(u, counts[u.uuid]))


@routes.on("GET", "marketplace-service-providers/{uuid}/keys/")
def list_provider_keys(call: Call) -> Reply:
    projects = _served_projects(call, _owned_provider(call))
    users = {g.user_uuid for p in projects for g in call.store.active_grants(p.uuid)}
    keys: list[SshKey] = [key for key in call.store.keys if key.user_uuid in users]
    return page_of(call, keys, lambda k: key_body(view_of(call), k))


@routes.on("GET", "marketplace-service-providers/{uuid}/project_permissions/")
def list_project_permissions(call: Call) -> Reply:
    """Return every active grant in every project the provider serves; `field` is ignored here."""
    provider = _owned_provider(call)
    scopes = [("customer", provider.customer_uuid)]
    access.require(call.store, call.user, "PROVIDER.LIST_PERMISSIONS", scopes)
    projects = _served_projects(call, provider)
    grants = call.store.active_grants(*(p.uuid for p in projects))
    rows = _GRANT_FILTERS.apply(grants, call.query)
    return page_of(call, rows, lambda g: project_permission_body(view_of(call), g), has_fields=False)


@routes.on("GET", "marketplace-service-provider-project-groups/", since=Age.V8_1)
def list_project_groups(call: Call) -> Reply:
    """Return every group of the provider, in use or not; nothing for who neither owns it nor manages an offering."""
    store = call.store
    offerings = {
        provider.uuid: store.offerings.where("customer", provider.customer_uuid)
        for provider in store.providers
    }
    filters: Filters[ProjectGroup] = Filters(
        service_provider_uuid=uuid_is(lambda g: g.provider_uuid),
        project_uuid=uuid_is(lambda g: g.project_uuid),
    )
    rows = [
        group
        for group in filters.apply(store.project_groups, call.query)
        if any(access.provides(store, call.user, offering) for offering in offerings[group.provider_uuid])
    ]
    for wanted in call.query.get("provider_offering_uuid", [])[-1:]:
        rows = [g for g in rows if as_uuid(wanted) in {o.uuid for o in offerings[g.provider_uuid]}]
    return page_of(call, rows, lambda g: project_group_body(view_of(call), g))


@routes.on("POST", "marketplace-service-providers/{uuid}/set_offerings_username/")
def set_offerings_username(call: Call) -> Reply:
    """Set one name for the user at every offering of the provider where the user has a live resource."""
    provider = lookup.service_provider(call)
    scopes = [("customer", provider.customer_uuid)]
    access.require(call.store, call.user, "OFFERING.UPDATE_USER", scopes)
    body = lookup.require_fields(call, "user_uuid", "username")
    user = call.store.users.get(as_uuid(body["user_uuid"]))
    if user is None:
        raise bad_field("user_uuid", "There is no such user.")
    for offering in call.store.offerings.where("customer", provider.customer_uuid):
        if _uses(call, user, offering.uuid):
            row = call.store.offering_user(offering.uuid, user.uuid)
            row = row or offering_user_rules.create(call.store, offering, user)
            offering_user_rules.set_username(call.store, row, str(body["username"]))
    return Reply(status=201, body={"detail": "The usernames are set."})


@routes.on("GET", "projects/")
def list_projects(call: Call) -> Reply:
    mine = [p for p in call.store.projects if _sees_project(call, p)]
    rows = _PROJECT_FILTERS.apply(mine, call.query)
    return page_of(call, rows, lambda p: project_body(view_of(call), p))


@routes.on("GET", "projects/{uuid}/")
def get_project(call: Call) -> Reply:
    return Reply(body=pick(project_body(view_of(call), _project(call)), call.query))


@routes.on("POST", "projects/{uuid}/add_user/")
def add_project_user(call: Call) -> Reply:
    project = _project(call)
    user, role = _role_change(call, project)
    expires = call.field("expiration_time")
    moment = datetime.fromisoformat(expires) if isinstance(expires, str) else None
    members.add(call.store, project, user, role=role, expiration_time=moment)
    return Reply(status=201, body={"expiration_time": expires})


@routes.on("POST", "projects/{uuid}/delete_user/")
def delete_project_user(call: Call) -> Reply:
    project = _project(call)
    user, role = _role_change(call, project)
    members.remove(call.store, project, user, role=role)
    return Reply()


@routes.on("GET", "marketplace-integration-statuses/")
def list_integration_statuses(call: Call) -> Reply:
    store = call.store
    filters: Filters[IntegrationStatus] = Filters(offering_uuid=uuid_is(lambda s: s.offering_uuid))
    mine = [s for s in store.statuses if access.provides(store, call.user, store.offerings[s.offering_uuid])]
    return page_of(call, filters.apply(mine, call.query), lambda s: _status_body(call, s))


@routes.on("GET", "marketplace-robot-accounts/")
def list_robot_accounts(call: Call) -> Reply:
    """Always empty: robot accounts are not simulated."""
    nothing: list[Project] = []
    return page_of(call, nothing, lambda _: {})


def _status_body(call: Call, row: IntegrationStatus) -> JsonObject:
    view = view_of(call)
    body: JsonObject = {
        "status": status_word(call.store, row),
        "last_request_timestamp": wire_time(row.last_request_timestamp),
        "offering": view.link("marketplace-provider-offerings", row.offering_uuid),
        "url": view.link("marketplace-integration-statuses", row.uuid),
    }
    if not call.age.is_modern:
        return body
    return body | {"uuid": row.uuid, "agent_type": row.agent_type, "service_name": row.service_name}


def _owned_provider(call: Call) -> ServiceProvider:
    provider = lookup.service_provider(call)
    roles = call.store.active_roles(call.user.uuid)
    is_owner = any(g.scope_uuid == provider.customer_uuid for g in roles)
    if not (call.user.is_staff or call.user.is_support or is_owner):
        raise forbidden()
    return provider


def _served_projects(call: Call, provider: ServiceProvider) -> list[Project]:
    """Return the projects with a resource, terminated or not, at one of the provider's offerings."""
    offerings = call.store.offerings.where("customer", provider.customer_uuid)
    served = {r.project_uuid for o in offerings for r in call.store.resources.where("offering", o.uuid)}
    return [project for project in call.store.projects if project.uuid in served]


def _uses(call: Call, user: User, offering_uuid: str) -> bool:
    projects = {g.scope_uuid for g in call.store.active_roles(user.uuid)}
    return any(
        r.project_uuid in projects and r.state is not ResourceState.TERMINATED
        for r in call.store.resources.where("offering", offering_uuid)
    )


def _sees_project(call: Call, project: Project) -> bool:
    scopes = {project.uuid, project.customer_uuid}
    roles = call.store.active_roles(call.user.uuid)
    return call.user.is_staff or call.user.is_support or any(g.scope_uuid in scopes for g in roles)


def _project(call: Call) -> Project:
    return lookup.visible_row(call, call.store.projects, "Project", lambda p: _sees_project(call, p))


def _role_change(call: Call, project: Project) -> tuple[User, str]:
    roles = call.store.active_roles(call.user.uuid)
    is_owner = any(g.scope_uuid == project.customer_uuid for g in roles)
    if not (call.user.is_staff or is_owner):
        raise forbidden()
    body = lookup.require_fields(call, "user", "role")
    user = call.store.users.get(as_uuid(body["user"]))
    if user is None:
        raise unknown_object("User")
    return user, str(body["role"])


def _provider_user_body(user: User, projects_count: int) -> JsonObject:
    return {
        "uuid": user.uuid,
        "username": user.username,
        "full_name": user.full_name,
        "first_name": user.first_name,
        "last_name": user.last_name,
        "organization": "",
        "email": user.email,
        "phone_number": "",
        "projects_count": projects_count,
        "registration_method": "default",
        "affiliations": [],
    }
