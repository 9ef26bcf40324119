# SPDX-License-Identifier: MIT
"""marketplace-provider-resources: the provider's view of resources and what it may report about them."""

from __future__ import annotations

from simulator.api.filters import Filters, choice_in, flag_is, moment_from, text_has, text_is, uuid_is
from simulator.render.resources import resource_body, team_body
from simulator.render.view import pick
from simulator.rules import access, integration, lookup
from simulator.rules.consumer_checks import require_resource_state
from simulator.rules.errors import ApiError, bad_field, bad_request, crash, detail
from simulator.rules.lookup import view_of
from simulator.server.routes import Call, Reply, Routes
from simulator.world.ages import Age
from simulator.world.clock import wire_time
from simulator.world.identifiers import as_uuid, plan_period_uuid
from simulator.world.records import JsonObject, Resource, ResourceState
from simulator.world.store import Store

routes = Routes()

_MAX_BACKEND_ID = 255
_UNSETTLED = (
    ResourceState.ERRED,
    ResourceState.CREATING,
    ResourceState.UPDATING,
    ResourceState.TERMINATING,
)


def resource_filters(store: Store) -> Filters[Resource]:
    return Filters(
        offering_uuid=uuid_is(lambda r: r.offering_uuid),
        project_uuid=uuid_is(lambda r: r.project_uuid),
        customer_uuid=uuid_is(lambda r: store.customer_of(r).uuid),
        provider_uuid=uuid_is(lambda r: store.offering_of(r).customer_uuid),
        plan_uuid=uuid_is(lambda r: r.plan_uuid),
        state=choice_in(lambda r: r.state.value, [s.value for s in ResourceState]),
        backend_id=text_is(lambda r: r.backend_id),
        name_exact=text_is(lambda r: r.name),
        name=text_has(lambda r: (r.name,)),
        query=text_has(lambda r: (r.name, r.slug, r.backend_id, r.uuid)),
        downscaled=flag_is(lambda r: r.downscaled),
        paused=flag_is(lambda r: r.paused),
        restrict_member_access=flag_is(lambda r: r.restrict_member_access),
        created=moment_from(lambda r: r.created),
        modified=moment_from(lambda r: r.modified),
    )


@routes.on("GET", "marketplace-provider-resources/")
def list_resources(call: Call) -> Reply:
    more = ("Resource sync",) if call.age.is_modern else ()
    integration.note_request(call, "Usage reporting", *more)
    store = call.store
    visible = access.provided(store, call.user)
    mine = [r for r in store.resources if r.offering_uuid in visible]
    rows = resource_filters(store).apply(mine, call.query)
    return lookup.page_of(call, rows, lambda r: resource_body(view_of(call), r, with_orders=False))


@routes.on("GET", "marketplace-provider-resources/{uuid}/")
def get_resource(call: Call) -> Reply:
    return Reply(body=pick(resource_body(view_of(call), lookup.provider_resource(call)), call.query))


@routes.on("GET", "marketplace-provider-resources/{uuid}/team/")
def team(call: Call) -> Reply:
    """Return all members at once: this list has no pages."""
    resource = lookup.provider_resource(call)
    members = team_body(view_of(call), resource)
    if call.age.at_least(Age.V8_1) and call.query.get("has_consent") == ["true"]:
        accounts = {m["uuid"]: call.store.offering_user(resource.offering_uuid, m["uuid"]) for m in members}
        members = [m for m in members if (account := accounts[m["uuid"]]) and account.has_consent]
    return Reply(body=members)


@routes.on("GET", "marketplace-provider-resources/{uuid}/plan_periods/")
def plan_periods(call: Call) -> Reply:
    resource = lookup.provider_resource(call)
    plan = call.store.plan_of(resource)
    if plan is None:
        return Reply(body=[])
    period: JsonObject = {
        "uuid": plan_period_uuid(resource.uuid),
        "plan_name": plan.name,
        "plan_uuid": plan.uuid,
        "start": wire_time(resource.created),
        "end": None,
        "components": [],
    }
    return Reply(body=[period])


@routes.on("POST", "marketplace-provider-resources/{uuid}/set_backend_id/")
def set_backend_id(call: Call) -> Reply:
    resource = _writable(call, "RESOURCE.SET_BACKEND_ID", at_offering=True)
    body = lookup.require_object(call)
    if "backend_id" not in body:
        # The 2024 server reads the key unchecked; later ones validate the body.
        raise bad_field("backend_id", "This field is required.") if call.age.is_modern else crash()
    backend_id = call.text("backend_id")
    if len(backend_id) > _MAX_BACKEND_ID:
        raise bad_field("backend_id", f"Ensure this field has no more than {_MAX_BACKEND_ID} characters.")
    offering = call.store.offering_of(resource)
    if call.age.is_modern and offering.backend_id_rules.get("unique") and backend_id:
        for other in call.store.resources.where("offering", offering.uuid):
            if other is not resource and other.backend_id == backend_id:
                raise bad_field("backend_id", "Another resource of this offering has it.")
    is_new = backend_id != resource.backend_id
    resource.backend_id = backend_id
    return _status(call, resource, "backend_id changed." if is_new else "backend_id kept.")


@routes.on("POST", "marketplace-provider-resources/{uuid}/set_backend_metadata/")
def set_backend_metadata(call: Call) -> Reply:
    resource = _writable(call, "RESOURCE.SET_BACKEND_METADATA")
    resource.backend_metadata = _object_field(call, "backend_metadata")
    return _status(call, resource, "Backend metadata stored.")


@routes.on("POST", "marketplace-provider-resources/{uuid}/set_limits/", since=Age.V8_0)
def set_limits(call: Call) -> Reply:
    """Replaces the whole map; neither components nor the state are checked."""
    resource = _writable(call, "RESOURCE.SET_STATE")
    resource.limits = _object_field(call, "limits")
    return _status(call, resource, "Limits stored.")


@routes.on("POST", "marketplace-provider-resources/{uuid}/set_membership_sync_statuses/", since=Age.V8_1)
def set_member_statuses(call: Call) -> Reply:
    """Keep the last status of each member, role and scope; people who are not of the team are skipped."""
    resource = _writable(call, "RESOURCE.SET_STATE")
    entries = lookup.require_fields(call, "statuses")["statuses"]
    if call.store.offering_of(resource).plugin_options.get("enable_membership_sync_status") is not True:
        raise detail(409, "The offering does not show the synchronisation of members.")
    if not isinstance(entries, list):
        raise bad_field("statuses", "Expected a list of items.")
    stored = 0
    team = {grant.user_uuid for grant in call.store.active_grants(resource.project_uuid)}
    users = call.store.users
    for entry in entries:
        if entry.get("state") not in ("synced", "pending", "missing_in_idp", "error"):
            raise bad_field("statuses", "Not one of the choices.")
        known = users.where("username", entry.get("username"))
        person = as_uuid(entry.get("user_uuid")) or (known[0].uuid if known else None)
        if person not in team:
            continue
        key = (resource.uuid, str(person), str(entry.get("role_name", "")))
        call.store.member_statuses[key] = (entry["state"], str(entry.get("message", "")))
        stored += 1
    return Reply(body={"stored": stored, "skipped": len(entries) - stored})


@routes.on("POST", "marketplace-provider-resources/{uuid}/set_as_erred/")
def set_as_erred(call: Call) -> Reply:
    """Accept any state; an empty text keeps the old one."""
    resource = _writable(call, "RESOURCE.SET_STATE")
    lookup.require_object(call)
    resource.state = ResourceState.ERRED
    resource.error_message = call.text("error_message") or resource.error_message
    resource.error_traceback = call.text("error_traceback") or resource.error_traceback
    return _touched(call, resource)


@routes.on("POST", "marketplace-provider-resources/{uuid}/set_as_ok/", since=Age.V8_0)
def set_as_ok(call: Call) -> Reply:
    resource = _writable(call, "RESOURCE.SET_STATE")
    if resource.state is ResourceState.OK:
        return Reply()
    if resource.state is ResourceState.TERMINATED:
        raise crash()
    resource.state = ResourceState.OK
    resource.error_message = resource.error_traceback = ""
    return _touched(call, resource)


@routes.on("POST", "marketplace-provider-resources/{uuid}/set_state_ok/", since=Age.V8_0)
def set_state_ok(call: Call) -> Reply:
    """Unlike set_as_ok: refuses a resource that is OK already, and keeps the error texts."""
    resource = _writable(call, "RESOURCE.SET_STATE")
    require_resource_state(resource, *_UNSETTLED)
    resource.state = ResourceState.OK
    return _status(call, resource, "Resource is OK.")


@routes.on("POST", "marketplace-provider-resources/{uuid}/refresh_last_sync/", since=Age.V8_0)
def refresh_last_sync(call: Call) -> Reply:
    resource = _writable(call, "RESOURCE.SET_STATE")
    resource.last_sync = call.store.clock.now()
    return Reply()


@routes.on("POST", "marketplace-provider-resources/{uuid}/set_endpoints/", since=Age.V8_1)
def set_endpoints(call: Call) -> Reply:
    resource = _writable(call, "RESOURCE.SET_BACKEND_METADATA")
    endpoints = lookup.require_fields(call, "endpoints")["endpoints"]
    if not isinstance(endpoints, list):
        raise bad_field("endpoints", "Expected a list of items.")
    resource.endpoints = [{"uuid": call.store.uuids.new()} | endpoint for endpoint in endpoints]
    return _status(call, resource, "Endpoints stored.")


@routes.on("POST", "marketplace-provider-resources/{uuid}/set_membership_sync_statuses/", since=Age.V8_1)
def set_membership_sync_statuses(call: Call) -> Reply:
    resource = _writable(call, "RESOURCE.SET_STATE")
    statuses = lookup.require_fields(call, "statuses")["statuses"]
    if not call.store.offering_of(resource).plugin_options.get("enable_membership_sync_status"):
        raise ApiError(409, {"detail": "The offering does not take membership statuses."})
    return Reply(body={"stored": len(statuses), "skipped": 0})


@routes.on("POST", "marketplace-provider-resources/{uuid}/submit_report/")
def submit_report(call: Call) -> Reply:
    resource = _writable(call, "RESOURCE.SUBMIT_REPORT")
    report = lookup.require_fields(call, "report")["report"]
    if not isinstance(report, list) or not report:
        raise bad_field("report", "This list may not be empty.")
    resource.report = report
    return _status(call, resource, "Report stored.")


def _writable(call: Call, permission: str, *, at_offering: bool = False) -> Resource:
    """Return the resource when the caller may write to it and its offering takes writes."""
    resource = lookup.provider_resource(call)
    offering = call.store.offering_of(resource)
    scopes = access.offering_scopes(offering) if at_offering else access.customer_scope(offering)
    access.require(call.store, call.user, permission, scopes)
    if call.age.is_modern and offering.state == "Unavailable":
        raise bad_request("The offering is unavailable.")
    return resource


def _object_field(call: Call, name: str) -> JsonObject:
    value = lookup.require_fields(call, name)[name]
    if not isinstance(value, dict):
        raise bad_field(name, "Expected an object.")
    return value


def _touched(call: Call, resource: Resource) -> Reply:
    resource.modified = call.store.clock.now()
    return Reply()


def _status(call: Call, resource: Resource, text: str) -> Reply:
    resource.modified = call.store.clock.now()
    return Reply(body={"status": text})
