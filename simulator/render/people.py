# SPDX-License-Identifier: MIT
"""Users, permissions, offering users, keys and shared accounts as JSON.

From 8.0 on an offering user carries only the personal fields its offering exposes; others are absent.
"""

from __future__ import annotations

from typing import Any

from simulator.render.resources import role_name
from simulator.render.view import View
from simulator.world.clock import wire_time
from simulator.world.identifiers import role_uuid
from simulator.world.records import (
    Grant,
    JsonObject,
    OfferingUser,
    OfferingUserState,
    ProjectGroup,
    ResourceState,
    Role,
    SharedAccount,
    SshKey,
    User,
)
from simulator.world.table import Table

_LEAVING = (
    OfferingUserState.REQUESTED_DELETION, OfferingUserState.DELETING, OfferingUserState.DELETED,
    OfferingUserState.ERROR_DELETING,
)  # fmt: skip

EXPOSABLE_FIELDS = (
    "username",
    "full_name",
    "email",
    "phone_number",
    "organization",
    "job_title",
    "affiliations",
    "gender",
    "personal_title",
    "place_of_birth",
    "country_of_residence",
    "nationality",
    "nationalities",
    "organization_country",
    "organization_type",
    "organization_registry_code",
    "eduperson_assurance",
    "civil_number",
    "birth_date",
    "identity_source",
    "active_isds",
)


def user_body(view: View, user: User) -> JsonObject:
    token = next((t.key for t in view.store.tokens.values() if t.user_uuid == user.uuid), "")
    texts = ("native_name", "job_title", "phone_number", "organization", "preferred_language")
    nothings = ("civil_number", "agreement_date", "requested_email", "image")
    body: JsonObject = {
        "url": view.link("users", user.uuid),
        "uuid": user.uuid,
        "username": user.username,
        "slug": user.slug,
        "full_name": user.full_name,
        "first_name": user.first_name,
        "last_name": user.last_name,
        "email": user.email,
        "token": token,
        "token_lifetime": user.token_lifetime_s,
        "registration_method": "default",
        "date_joined": wire_time(user.created),
        "permissions": [permission_body(view, grant) for grant in view.store.active_roles(user.uuid)],
        "affiliations": [],
        "identity_provider_name": "Local DB",
        "identity_provider_label": "Local DB",
        "identity_provider_management_url": "",
        "identity_provider_fields": [],
        "identity_source": "",
        **dict.fromkeys(texts, ""),
        **dict.fromkeys(nothings),
    }
    if view.age.is_modern:
        body |= {"is_active": user.is_active, "is_identity_manager": False, "token_expires_at": None}
    # In 2024 only staff see these two about themselves.
    if view.age.is_modern or user.is_staff or user.is_support:
        body |= {"is_staff": user.is_staff, "is_support": user.is_support}
    return body


def permission_body(view: View, grant: Grant) -> JsonObject:
    user = view.store.users[grant.user_uuid]
    author = view.user(grant.created_by_uuid)
    body: JsonObject = {
        "user_uuid": user.uuid,
        "user_name": user.full_name,
        "user_slug": user.slug,
        "created": wire_time(grant.created),
        "expiration_time": wire_time(grant.expiration_time),
        "role_name": grant.role,
        "role_description": role_description(grant.role),
        "role_uuid": role_uuid(grant.role),
        "scope_type": grant.scope_type,
        "scope_uuid": grant.scope_uuid,
        "scope_name": _scope_name(view, grant),
    }
    if author is not None:
        body |= {"created_by_full_name": author.full_name, "created_by_username": author.username}
    return body


def role_body(view: View, role: Role) -> JsonObject:
    """Return a role with its permissions, which everybody may read. Only staff see how many users have it, from 8.x
    on; a server of 2024 counts them for everybody.
    """
    scope = role.name.partition(".")[0].lower()
    used = sum(grant.role == role.name for grant in view.store.grants)
    return {
        "uuid": role.uuid,
        "name": role.name,
        "description": role_description(role.name),
        "permissions": sorted(role.permissions),
        "is_system_role": role.name not in view.store.made_roles,
        "is_active": True,
        "users_count": None if view.age.is_modern else used,
        "content_type": scope if scope in ("customer", "project", "offering") else "customer",
    }


def role_description(name: str) -> str:
    return name.replace(".", " ").capitalize()


def project_permission_body(view: View, grant: Grant) -> JsonObject:
    """Return a row of the provider's listing of roles in projects, over all customers."""
    store = view.store
    project, user = store.projects[grant.scope_uuid], store.users[grant.user_uuid]
    customer, author = store.customers[project.customer_uuid], view.user(grant.created_by_uuid)
    body: JsonObject = {
        "role": role_name(view, grant.role).rpartition(".")[2].lower(),
        "created": wire_time(grant.created),
        "expiration_time": wire_time(grant.expiration_time),
        "created_by": view.link("users", grant.created_by_uuid),
        "created_by_full_name": author.full_name if author else None,
        "created_by_username": author.username if author else None,
        "project": view.link("projects", project.uuid),
        "project_uuid": project.uuid,
        "project_name": project.name,
        "project_created": wire_time(project.created),
        "project_end_date": project.end_date.isoformat() if project.end_date else None,
        "customer_uuid": customer.uuid,
        "customer_name": customer.name,
        "user": view.link("users", user.uuid),
        "user_full_name": user.full_name,
        "user_native_name": "",
        "user_username": user.username,
        "user_uuid": user.uuid,
        "user_email": user.email,
    }
    return body | {"role_name": grant.role} if view.age.is_modern else body


def project_group_body(view: View, group: ProjectGroup) -> JsonObject:
    """Return the group of a project at a provider, with the usernames of its members at the provider's offerings."""
    store = view.store
    provider, project = store.providers[group.provider_uuid], store.projects[group.project_uuid]
    owner, customer = store.customers[provider.customer_uuid], store.customers[project.customer_uuid]
    offerings = store.offerings.where("customer", provider.customer_uuid)
    gone = (ResourceState.TERMINATED, ResourceState.CREATING)
    using = {r.offering_uuid for r in store.resources.where("project", project.uuid) if r.state not in gone}
    used = [offering for offering in offerings if offering.uuid in using]
    people = {grant.user_uuid for grant in store.active_grants(project.uuid)}
    members = {
        row.username
        for offering in offerings
        for row in store.offering_users.where("offering", offering.uuid)
        if row.user_uuid in people and row.username and not row.is_restricted and row.state not in _LEAVING
    }
    return {
        "url": view.link("marketplace-service-provider-project-groups", group.uuid),
        "uuid": group.uuid,
        "name": group.name,
        "gid": group.gid,
        "in_use": bool(used),
        "service_provider_uuid": provider.uuid,
        "service_provider_name": owner.name,
        "project_uuid": project.uuid,
        "project_name": project.name,
        "project_slug": project.slug,
        "customer_uuid": customer.uuid,
        "customer_name": customer.name,
        "customer_slug": customer.slug,
        "offerings": [{"uuid": offering.uuid, "name": offering.name} for offering in used],
        "members": sorted(members),
        "created": wire_time(group.created),
        "modified": wire_time(group.modified),
    }


def offering_user_body(view: View, row: OfferingUser) -> JsonObject:
    store = view.store
    user, offering = store.users[row.user_uuid], store.offerings[row.offering_uuid]
    customer = store.customers[offering.customer_uuid]
    body: JsonObject = {
        "url": view.link("marketplace-offering-users", row.uuid),
        "uuid": row.uuid,
        "user": view.link("users", user.uuid),
        "offering": view.link("marketplace-provider-offerings", offering.uuid),
        "username": row.username,
        "offering_uuid": offering.uuid,
        "offering_name": offering.name,
        "user_uuid": user.uuid,
        "created": wire_time(row.created),
        "modified": wire_time(row.modified),
        "customer_uuid": customer.uuid,
        "customer_name": customer.name,
        "is_restricted": row.is_restricted,
    }
    if view.age.is_modern:
        return body | _exposed(user, offering.exposed_fields) | _account_state(view, row)
    return body | {
        "user_username": user.username,
        "user_full_name": user.full_name,
        "propagation_date": wire_time(row.created),
    }


def _account_state(view: View, row: OfferingUser) -> JsonObject:
    body: JsonObject = {
        "state": row.state.value,
        "service_provider_comment": row.service_provider_comment,
        "service_provider_comment_url": row.service_provider_comment_url,
        "has_consent": row.has_consent,
        "requires_reconsent": False,
        "has_compliance_checklist": False,
        "consent_data": None,
        "is_profile_complete": True,
        "missing_profile_attributes": [],
    }
    if view.age.rank < 2:
        return body
    return body | {
        "runtime_state": row.runtime_state,
        "uidnumber": row.uidnumber,
        "primarygroup": row.primarygroup,
        "home_directory": row.home_directory,
        "login_shell": row.login_shell,
    }


def _exposed(user: User, names: list[str]) -> JsonObject:
    known: JsonObject = {"username": user.username, "email": user.email, **user.attributes}
    body: JsonObject = {}
    for name in names:
        if name == "full_name":
            body["user_full_name"] = user.full_name
            body["user_first_name"] = user.first_name
            body["user_last_name"] = user.last_name
        else:
            body[f"user_{name}"] = known.get(name, "")
    return body


def key_body(view: View, key: SshKey) -> JsonObject:
    return {
        "url": view.link("keys", key.uuid),
        "uuid": key.uuid,
        "name": key.name,
        "public_key": key.public_key,
        "fingerprint_md5": "",
        "fingerprint_sha256": "",
        "fingerprint_sha512": "",
        "user_uuid": key.user_uuid,
        "is_shared": False,
        "type": key.public_key.split(" ", 1)[0],
    }


def account_body(view: View, account: SharedAccount) -> JsonObject:
    project = view.store.projects[account.project_uuid]
    customer = view.store.customers[project.customer_uuid]
    is_course = account.kind == "course"
    collection = "marketplace-course-accounts" if is_course else "marketplace-project-service-accounts"
    body: JsonObject = {
        "url": view.link(collection, account.uuid),
        "uuid": account.uuid,
        "created": wire_time(account.created),
        "modified": wire_time(account.modified),
        "username": account.username,
        "description": account.description,
        "email": account.email,
        "error_message": "",
        "error_traceback": "",
        "state": account.state,
        "project": project.uuid,
        "project_uuid": project.uuid,
        "project_name": project.name,
        "customer_uuid": customer.uuid,
        "customer_name": customer.name,
    }
    if not is_course:
        nothings = dict.fromkeys(("token", "expires_at"))
        return body | nothings | {"preferred_identifier": "", "customer_abbreviation": customer.abbreviation}
    start, end = project.start_date or project.created.date(), project.end_date
    return body | {
        "project_slug": project.slug,
        "project_start_date": start.isoformat(),
        "project_end_date": (end or start).isoformat(),
        "user_uuid": account.user_uuid or account.uuid,
    }


def _scope_name(view: View, grant: Grant) -> str:
    tables: dict[str, Table[Any]] = {
        "customer": view.store.customers,
        "project": view.store.projects,
        "offering": view.store.offerings,
    }
    return str(tables[grant.scope_type][grant.scope_uuid].name)
