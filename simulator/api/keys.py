# SPDX-License-Identifier: MIT
"""marketplace-resource-api-keys: what agents may say of them (8.1)."""

from __future__ import annotations

from simulator.api.filters import Filters, choice_in, uuid_is
from simulator.render.view import pick
from simulator.rules import access, lookup
from simulator.rules.errors import detail
from simulator.server.routes import Call, Reply, Routes
from simulator.world.agent_records import ApiKey
from simulator.world.ages import Age
from simulator.world.records import JsonObject

routes = Routes()

_KEYS = "marketplace-resource-api-keys"
_STATES = ("Creating", "OK", "Updating", "Paused", "Deleting", "Deleted", "Erred")


@routes.on("GET", f"{_KEYS}/", since=Age.V8_1)
def list_keys(call: Call) -> Reply:
    resources = call.store.resources
    filters: Filters[ApiKey] = Filters(
        offering_uuid=uuid_is(lambda k: resources[k.resource_uuid].offering_uuid),
        resource_uuid=uuid_is(lambda k: k.resource_uuid),
        state=choice_in(lambda k: k.state, list(_STATES)),
    )
    mine = [key for key in call.store.api_keys if _sees(call, key)]
    return lookup.page_of(call, filters.apply(mine, call.query), _body)


@routes.on("GET", f"{_KEYS}/{{uuid}}/", since=Age.V8_1)
def get_key(call: Call) -> Reply:
    return Reply(body=pick(_body(_key(call)), call.query))


@routes.on("POST", f"{_KEYS}/{{uuid}}/set_erred/", since=Age.V8_1)
def fail_key(call: Call) -> Reply:
    key = _key(call)
    key.state, key.error_message, key.pending_action = "Erred", call.text("error_message"), ""
    return Reply(body={"status": "erred"})


@routes.on("POST", f"{_KEYS}/{{uuid}}/set_deleted/", since=Age.V8_1)
def delete_key(call: Call) -> Reply:
    key = _key(call)
    if key.state not in ("Deleting", "Deleted"):
        raise detail(409, "Valid states for operation: Deleting.")
    key.state, key.pending_action = "Deleted", ""
    return Reply(body={"status": "deleted"})


@routes.on("POST", f"{_KEYS}/{{uuid}}/set_key/", since=Age.V8_1)
def set_key(call: Call) -> Reply:
    key = _key(call)
    if key.state in ("Deleting", "Deleted"):
        raise detail(409, "Valid states for operation: Creating, Updating, OK, Erred.")
    key.api_key, key.client_id = call.text("api_key"), call.text("client_id") or key.client_id
    key.state, key.pending_action, key.error_message = "OK", "", ""
    return Reply(body={"status": "key set"})


@routes.on("POST", f"{_KEYS}/{{uuid}}/set_paused/", since=Age.V8_1)
def pause_key(call: Call) -> Reply:
    return _in_state(_key(call), "Paused")


@routes.on("POST", f"{_KEYS}/{{uuid}}/set_ok/", since=Age.V8_1)
def resume_key(call: Call) -> Reply:
    return _in_state(_key(call), "OK")


@routes.on("POST", f"{_KEYS}/{{uuid}}/report_usage/", since=Age.V8_1)
def report_key_usage(call: Call) -> Reply:
    key, usages = _key(call), call.body.get("usages")
    if not isinstance(usages, dict):
        raise detail(400, "usages: this field is required.")
    key.usages[call.text("billing_period")] = {str(name): str(amount) for name, amount in usages.items()}
    return Reply(body={"status": "reported"})


def _in_state(key: ApiKey, state: str) -> Reply:
    key.state, key.pending_action, key.error_message = state, "", ""
    return Reply(body={"status": state.lower()})


def _key(call: Call) -> ApiKey:
    return lookup.visible_row(call, call.store.api_keys, "ResourceApiKey", lambda key: _sees(call, key))


def _sees(call: Call, key: ApiKey) -> bool:
    offering = call.store.offering_of(call.store.resources[key.resource_uuid])
    return access.provides(call.store, call.user, offering)


def _body(key: ApiKey) -> JsonObject:
    return {
        "uuid": key.uuid,
        "resource_uuid": key.resource_uuid,
        "client_id": key.client_id,
        "state": key.state,
        "pending_action": key.pending_action,
        "error_message": key.error_message,
        "usage_period": max(key.usages, default=None),
        "current_usages": key.usages[max(key.usages)] if key.usages else {},
    }
