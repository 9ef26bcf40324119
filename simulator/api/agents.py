# SPDX-License-Identifier: MIT
"""marketplace-site-agent-*: the agent's identity, its services, processors and log lines (8.x)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from simulator.api.filters import Filters, text_is, uuid_is
from simulator.rules import access, lookup
from simulator.rules.errors import ApiError, bad_field, forbidden, unknown_object
from simulator.rules.lookup import view_of
from simulator.server.routes import Call, Reply, Routes
from simulator.world.agent_records import AgentIdentity, AgentLogLine, AgentProcessor, AgentService
from simulator.world.ages import Age
from simulator.world.clock import wire_time
from simulator.world.identifiers import as_uuid
from simulator.world.records import JsonObject, Offering

routes = Routes()

_ACCEPTED_TYPES = ("Marketplace.Slurm", "Marketplace.Script", "OpenStack.Tenant", "Marketplace.Basic")
_MAX_NAME, _MAX_SHORT = 150, 100
_SILENCE = timedelta(minutes=10)


def visible_identity(call: Call) -> AgentIdentity:
    return lookup.visible_row(call, call.store.identities, "AgentIdentity", lambda i: _sees(call, i))


@routes.on("GET", "marketplace-site-agent-identities/", since=Age.V8_0)
def list_identities(call: Call) -> Reply:
    filters: Filters[AgentIdentity] = Filters(
        offering_uuid=uuid_is(lambda i: i.offering_uuid), name=text_is(lambda i: i.name)
    )
    mine = [i for i in call.store.identities if _sees(call, i)]
    return lookup.page_of(call, filters.apply(mine, call.query), lambda i: _identity_body(call, i))


@routes.on("GET", "marketplace-site-agent-identities/{uuid}/", since=Age.V8_0)
def get_identity(call: Call) -> Reply:
    return Reply(body=_identity_body(call, visible_identity(call)))


@routes.on("POST", "marketplace-site-agent-identities/", since=Age.V8_0)
def create_identity(call: Call) -> Reply:
    offering = _named_offering(call)
    _require_manager(call, offering)
    now = call.store.clock.now()
    identity = AgentIdentity(
        uuid=call.store.uuids.new(),
        offering_uuid=offering.uuid,
        name=_short_text(call, "name", _MAX_NAME),
        created=now,
        modified=now,
        last_restarted=str(wire_time(now)),
        created_by_uuid=call.user.uuid,
    )
    _take_values(call, identity)
    call.store.identities.add(identity)
    return Reply(status=201, body=_identity_body(call, identity))


@routes.on("PUT", "marketplace-site-agent-identities/{uuid}/", since=Age.V8_0)
def replace_identity(call: Call) -> Reply:
    identity = visible_identity(call)
    offering = _named_offering(call)
    _require_manager(call, call.store.offerings[identity.offering_uuid])
    if call.age.at_least(Age.V8_1) and offering.uuid != identity.offering_uuid:
        raise bad_field("offering", "The offering of an identity cannot change.")
    identity.name = _short_text(call, "name", _MAX_NAME)
    _take_values(call, identity)
    return Reply(body=_identity_body(call, identity))


@routes.on("DELETE", "marketplace-site-agent-identities/{uuid}/", since=Age.V8_0)
def delete_identity(call: Call) -> Reply:
    identity = visible_identity(call)
    _require_manager(call, call.store.offerings[identity.offering_uuid])
    call.store.identities.remove(identity)
    return Reply(status=204)


@routes.on("POST", "marketplace-site-agent-identities/{uuid}/register_service/", since=Age.V8_0)
def register_service(call: Call) -> Reply:
    """Return the service of that name: made when it is missing (201), else set to Active (200)."""
    identity = visible_identity(call)
    name = _short_text(call, "name", _MAX_NAME)
    now = call.store.clock.now()
    for service in call.store.services.where("identity", identity.uuid):
        if service.name == name:
            service.state, service.modified = "Active", now
            return Reply(body=_service_body(call, service))
    service = AgentService(
        uuid=call.store.uuids.new(),
        identity_uuid=identity.uuid,
        name=name,
        mode=call.text("mode") or None,
        created=now,
        modified=now,
    )
    call.store.services.add(service)
    return Reply(status=201, body=_service_body(call, service))


@routes.on("GET", "marketplace-site-agent-services/", since=Age.V8_0)
def list_services(call: Call) -> Reply:
    mine = [s for s in call.store.services if _sees_service(call, s)]
    return lookup.page_of(call, mine, lambda s: _service_body(call, s))


@routes.on("POST", "marketplace-site-agent-services/{uuid}/register_processor/", since=Age.V8_0)
def register_processor(call: Call) -> Reply:
    """Also the heartbeat: `last_run` becomes now."""
    service = _service(call)
    body = lookup.require_fields(call, "name", "backend_type")
    now = call.store.clock.now()
    for processor in call.store.processors.where("service", service.uuid):
        if processor.name == body["name"]:
            processor.last_run = processor.modified = now
            processor.backend_type = _short_text(call, "backend_type", _MAX_SHORT)
            processor.backend_version = body.get("backend_version")
            return Reply(body=_processor_body(call, processor))
    processor = AgentProcessor(
        uuid=call.store.uuids.new(),
        service_uuid=service.uuid,
        name=_short_text(call, "name", _MAX_NAME),
        backend_type=_short_text(call, "backend_type", _MAX_SHORT),
        backend_version=body.get("backend_version"),
        created=now,
        modified=now,
        last_run=now,
    )
    call.store.processors.add(processor)
    return Reply(status=201, body=_processor_body(call, processor))


@routes.on("POST", "marketplace-site-agent-services/{uuid}/set_statistics/", since=Age.V8_0)
def set_statistics(call: Call) -> Reply:
    service = _service(call)
    service.statistics = lookup.require_fields(call, "statistics")["statistics"]
    return Reply(body=_service_body(call, service))


@routes.on("GET", "marketplace-site-agent-processors/", since=Age.V8_0)
def list_processors(call: Call) -> Reply:
    services = call.store.services
    mine = [p for p in call.store.processors if _sees_service(call, services[p.service_uuid])]
    return lookup.page_of(call, mine, lambda p: _processor_body(call, p))


@routes.on("POST", "marketplace-site-agent-logs/", since=Age.V8_1)
def add_logs(call: Call) -> Reply:
    """Takes a list of lines; the endpoint came with 8.0.9, so 8.0 (8.0.5) does not have it."""
    if not isinstance(call.body, list):
        raise bad_field("non_field_errors", "Expected a list of items.")
    problems = [_log_problems(call, line) for line in call.body]
    if any(problems):
        raise ApiError(400, problems)
    lines = [_log_line(call, line) for line in call.body]
    call.store.logs.extend(lines)
    return Reply(status=201, body=[_log_body(call, line) for line in lines])


def _log_line(call: Call, line: JsonObject) -> AgentLogLine:
    return AgentLogLine(
        uuid=call.store.uuids.new(),
        created=call.store.clock.now(),
        identity_uuid=str(as_uuid(line["agent_identity_uuid"])),
        timestamp=line["timestamp"],
        level=str(line["level"]),
        message=str(line["message"]),
        module=str(line.get("module", "")),
    )


def _log_body(call: Call, line: AgentLogLine) -> JsonObject:
    identity = call.store.identities[line.identity_uuid]
    return {
        "uuid": line.uuid,
        "offering": view_of(call).link("marketplace-provider-offerings", identity.offering_uuid),
        "offering_uuid": identity.offering_uuid,
        "agent_identity_uuid": identity.uuid,
        "timestamp": line.timestamp,
        "level": line.level,
        "message": line.message,
        "module": line.module,
        "created": wire_time(line.created),
    }


def _log_problems(call: Call, line: object) -> JsonObject:
    names = ("agent_identity_uuid", "timestamp", "level", "message")
    if not isinstance(line, dict):
        return {"non_field_errors": ["Invalid data: an object was expected."]}
    problems: JsonObject = {name: ["This field is required."] for name in names if name not in line}
    if not problems and as_uuid(line["agent_identity_uuid"]) not in call.store.identities:
        problems["agent_identity_uuid"] = ["There is no such identity."]
    return problems


def _sees(call: Call, identity: AgentIdentity) -> bool:
    return access.provides(call.store, call.user, call.store.offerings[identity.offering_uuid])


def _sees_service(call: Call, service: AgentService) -> bool:
    identity = call.store.identities.get(service.identity_uuid)
    return identity is not None and _sees(call, identity)


def _service(call: Call) -> AgentService:
    return lookup.visible_row(call, call.store.services, "AgentService", lambda s: _sees_service(call, s))


def _named_offering(call: Call) -> Offering:
    named = lookup.require_fields(call, "offering", "name")["offering"]
    offering = call.store.offerings.get(as_uuid(named))
    if offering is None or not access.provides(call.store, call.user, offering):
        raise bad_field("offering", "There is no such offering.")
    if offering.type not in _ACCEPTED_TYPES:
        raise bad_field("offering", "Not an offering that agents serve.")
    return offering


def _require_manager(call: Call, offering: Offering) -> None:
    scopes: Iterable[access.Scope] = access.offering_scopes(offering)
    if not access.may(call.store, call.user, "OFFERING.UPDATE", scopes):
        raise forbidden()


def _short_text(call: Call, name: str, length: int) -> str:
    text = call.text(name)
    if not text:
        raise bad_field(name, "This field may not be blank.")
    if len(text) > length:
        raise bad_field(name, f"Ensure this field has no more than {length} characters.")
    return text


def _take_values(call: Call, identity: AgentIdentity) -> None:
    body = lookup.require_object(call)
    identity.version = body.get("version")
    identity.dependencies = body.get("dependencies", [])
    identity.config_file_path = body.get("config_file_path")
    identity.config_file_content = body.get("config_file_content")
    identity.last_restarted = body.get("last_restarted") or identity.last_restarted
    identity.modified = call.store.clock.now()


def _identity_body(call: Call, identity: AgentIdentity) -> JsonObject:
    services = call.store.services.where("identity", identity.uuid)
    body: JsonObject = {
        "uuid": identity.uuid,
        "url": view_of(call).link("marketplace-site-agent-identities", identity.uuid),
        "offering": identity.offering_uuid,
        "name": identity.name,
        "version": identity.version,
        "dependencies": identity.dependencies,
        "config_file_path": identity.config_file_path,
        "config_file_content": identity.config_file_content,
        "last_restarted": identity.last_restarted,
        "created": wire_time(identity.created),
        "modified": wire_time(identity.modified),
        "services": [_nested_service(call, service) for service in services],
    }
    if not call.age.at_least(Age.V8_1):
        return body
    compatibility = {"status": "compatible", "message": "", "missing_features": []}
    return body | {"created_by": identity.created_by_uuid, "compatibility": compatibility}


def _service_state(call: Call, service: AgentService) -> str:
    """Active until its processors have been silent for ten minutes."""
    runs = [p.last_run for p in call.store.processors.where("service", service.uuid)]
    is_silent = bool(runs) and call.store.clock.now() - max(runs) > _SILENCE
    return "Idle" if service.state == "Active" and is_silent else service.state


def _nested_service(call: Call, service: AgentService) -> JsonObject:
    return {
        "uuid": service.uuid,
        "url": view_of(call).link("marketplace-site-agent-services", service.uuid),
        "name": service.name,
        "mode": service.mode,
        "state": _service_state(call, service),
        "statistics": service.statistics,
        "created": wire_time(service.created),
        "modified": wire_time(service.modified),
    }


def _service_body(call: Call, service: AgentService) -> JsonObject:
    identity = call.store.identities.get(service.identity_uuid)
    if identity is None:
        raise unknown_object("AgentService")
    processors = call.store.processors.where("service", service.uuid)
    return _nested_service(call, service) | {
        "identity": identity.uuid,
        "identity_name": identity.name,
        "processors": [_nested_processor(call, processor) for processor in processors],
    }


def _nested_processor(call: Call, processor: AgentProcessor) -> JsonObject:
    return {
        "uuid": processor.uuid,
        "url": view_of(call).link("marketplace-site-agent-processors", processor.uuid),
        "name": processor.name,
        "last_run": wire_time(processor.last_run),
        "backend_type": processor.backend_type,
        "backend_version": processor.backend_version,
        "created": wire_time(processor.created),
        "modified": wire_time(processor.modified),
    }


def _processor_body(call: Call, processor: AgentProcessor) -> JsonObject:
    service = call.store.services[processor.service_uuid]
    return _nested_processor(call, processor) | {"service": service.uuid, "service_name": service.name}
