# SPDX-License-Identifier: MIT
"""Import of accounts that a cluster has already: requests by people, and what the agent offers (8.x)."""

from __future__ import annotations

from simulator.api.filters import Filters, text_is, uuid_is
from simulator.rules import access, lookup
from simulator.rules.errors import bad_field, detail
from simulator.rules.lookup import view_of
from simulator.server.routes import Call, Reply, Routes
from simulator.world.agent_records import BackendResource, BackendResourceRequest
from simulator.world.ages import Age
from simulator.world.clock import wire_time
from simulator.world.identifiers import as_uuid
from simulator.world.records import JsonObject, Offering

routes = Routes()

REQUESTS, RESOURCES = "backend-resource-requests", "backend-resources"
# action -> (the state it may come from, the state it leads to)
MOVES = {"start_processing": ("Sent", "Processing"), "set_done": ("Processing", "Done")}


@routes.on("GET", f"{REQUESTS}/", since=Age.V8_0)
def list_requests(call: Call) -> Reply:
    mine = [r for r in call.store.import_requests if _sees(call, r.offering_uuid)]
    return lookup.page_of(call, mine, lambda r: _request_body(call, r))


@routes.on("GET", f"{REQUESTS}/{{uuid}}/", since=Age.V8_0)
def get_request(call: Call) -> Reply:
    return Reply(body=_request_body(call, _request(call)))


@routes.on("POST", f"{REQUESTS}/", since=Age.V8_0)
def create_request(call: Call) -> Reply:
    """Answered by a message to the agent."""
    offering = _named_offering(call)
    now = call.store.clock.now()
    row = BackendResourceRequest(
        uuid=call.store.uuids.new(), offering_uuid=offering.uuid, created=now, modified=now
    )
    call.store.import_requests.add(row)
    return Reply(status=201, body=_request_body(call, row))


@routes.on("POST", f"{REQUESTS}/{{uuid}}/start_processing/", since=Age.V8_0)
def start_processing(call: Call) -> Reply:
    return _move(call, "start_processing")


@routes.on("POST", f"{REQUESTS}/{{uuid}}/set_done/", since=Age.V8_0)
def set_done(call: Call) -> Reply:
    return _move(call, "set_done")


@routes.on("POST", f"{REQUESTS}/{{uuid}}/set_erred/", since=Age.V8_0)
def set_erred(call: Call) -> Reply:
    row = _request(call)
    body = lookup.require_object(call)
    row.state = "Erred"
    row.error_message = str(body.get("error_message") or "")
    row.error_traceback = str(body.get("error_traceback") or "")
    row.finished = row.modified = call.store.clock.now()
    return Reply(body={"status": "erred"})


@routes.on("GET", f"{RESOURCES}/", since=Age.V8_0)
def list_resources(call: Call) -> Reply:
    filters: Filters[BackendResource] = Filters(
        offering_uuid=uuid_is(lambda r: r.offering_uuid),
        project_uuid=uuid_is(lambda r: r.project_uuid),
        backend_id=text_is(lambda r: r.backend_id),
    )
    mine = [r for r in call.store.backend_resources if _sees(call, r.offering_uuid)]
    return lookup.page_of(call, filters.apply(mine, call.query), lambda r: _resource_body(call, r))


@routes.on("POST", f"{RESOURCES}/", since=Age.V8_0)
def create_resource(call: Call) -> Reply:
    body = lookup.require_fields(call, "name", "project", "offering")
    offering = _named_offering(call)
    project_uuid = as_uuid(body["project"])
    if project_uuid is None or project_uuid not in call.store.projects:
        raise bad_field("project", "There is no such project.")
    now = call.store.clock.now()
    row = BackendResource(
        uuid=call.store.uuids.new(),
        name=call.text("name"),
        project_uuid=project_uuid,
        offering_uuid=offering.uuid,
        backend_id=call.text("backend_id"),
        backend_metadata=body.get("backend_metadata") or {},
        created=now,
        modified=now,
    )
    call.store.backend_resources.add(row)
    return Reply(status=201, body=_resource_body(call, row))


def _move(call: Call, action: str) -> Reply:
    row = _request(call)
    source, target = MOVES[action]
    if row.state != source:
        raise detail(409, f"Valid states for operation: {source}.")
    now = call.store.clock.now()
    row.state, row.modified = target, now
    row.started, row.finished = (now, row.finished) if target == "Processing" else (row.started, now)
    return Reply(body={"status": target})


def _sees(call: Call, offering_uuid: str) -> bool:
    return access.provides(call.store, call.user, call.store.offerings[offering_uuid])


def _request(call: Call) -> BackendResourceRequest:
    rows = call.store.import_requests
    return lookup.visible_row(call, rows, "BackendResourceRequest", lambda r: _sees(call, r.offering_uuid))


def _named_offering(call: Call) -> Offering:
    named = lookup.require_fields(call, "offering")["offering"]
    offering = call.store.offerings.get(as_uuid(named))
    if offering is None or not access.provides(call.store, call.user, offering):
        raise bad_field("offering", "There is no such offering.")
    return offering


def _request_body(call: Call, row: BackendResourceRequest) -> JsonObject:
    view = view_of(call)
    return {
        "url": view.link(REQUESTS, row.uuid),
        "uuid": row.uuid,
        "created": wire_time(row.created),
        "modified": wire_time(row.modified),
        "started": wire_time(row.started),
        "finished": wire_time(row.finished),
        "state": row.state,
        "offering": row.offering_uuid,
        "offering_name": call.store.offerings[row.offering_uuid].name,
        "offering_url": view.link("marketplace-provider-offerings", row.offering_uuid),
        "error_message": row.error_message,
        "error_traceback": row.error_traceback,
    }


def _resource_body(call: Call, row: BackendResource) -> JsonObject:
    view = view_of(call)
    return {
        "url": view.link(RESOURCES, row.uuid),
        "uuid": row.uuid,
        "name": row.name,
        "created": wire_time(row.created),
        "modified": wire_time(row.modified),
        "project": row.project_uuid,
        "project_name": call.store.projects[row.project_uuid].name,
        "project_url": view.link("projects", row.project_uuid),
        "offering": row.offering_uuid,
        "offering_name": call.store.offerings[row.offering_uuid].name,
        "offering_url": view.link("marketplace-provider-offerings", row.offering_uuid),
        "backend_id": row.backend_id,
        "backend_metadata": row.backend_metadata,
    }
