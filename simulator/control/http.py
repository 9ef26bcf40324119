# SPDX-License-Identifier: MIT
"""The control surface over HTTP, under /control/, for whoever is not in the same process.

Answers JSON; a request it cannot use is a 400 with `detail`. The HTTP side lets loopback in only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any

from simulator.control.experiments import OrderOptions, Orders, People, Site
from simulator.control.snapshot import to_json
from simulator.server.faults import Fault, FaultKind, Faults
from simulator.server.request_log import RequestLog
from simulator.world.records import JsonObject, OfferingUserState
from simulator.world.seed import Seeded


@dataclass(frozen=True, kw_only=True)
class Surface:
    orders: Orders
    people: People
    site: Site
    faults: Faults
    requests: RequestLog
    seeded: Seeded


@dataclass(frozen=True)
class ControlCall:
    surface: Surface
    body: JsonObject
    query: dict[str, str]
    arguments: dict[str, str]


Operation = Callable[[ControlCall], Any]
_OPERATIONS: list[tuple[str, re.Pattern[str], Operation]] = []


def perform(surface: Surface, method: str, path: str, *, body: Any, query: dict[str, str]) -> tuple[int, Any]:
    """Status and JSON of one control request."""
    for operation_method, pattern, operation in _OPERATIONS:
        match = pattern.fullmatch(path)
        if match is None or operation_method != method:
            continue
        if body is not None and not isinstance(body, dict):
            return 400, {"detail": "the body must be one JSON object"}
        call = ControlCall(surface, body if isinstance(body, dict) else {}, query, match.groupdict())
        try:
            return 200, to_json(operation(call))
        except (AttributeError, LookupError, ValueError, TypeError) as error:
            return 400, {"detail": f"{type(error).__name__}: {error}"}
    return 404, {"detail": f"no operation {method} {path}"}


def _on(method: str, pattern: str) -> Callable[[Operation], Operation]:
    def register(operation: Operation) -> Operation:
        expression = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern)
        _OPERATIONS.append((method, re.compile(expression), operation))
        return operation

    return register


@_on("GET", "state")
def _state(call: ControlCall) -> Any:
    return call.surface.site.state()


@_on("GET", "seed")
def _seed(call: ControlCall) -> Any:
    return call.surface.seeded


@_on("POST", "orders")
def _place_order(call: ControlCall) -> Any:
    body, orders = dict(call.body), call.surface.orders
    kind = body.pop("type", "Create")
    _refuse_switches(body.get("limits"))
    options = _order_options(body)
    if kind == "Create":
        uuid = orders.place_create(
            body["project_uuid"],
            body["name"],
            limits=body.get("limits"),
            slug=body.get("slug"),
            options=options,
        )
    else:
        uuid = _place_follow_up(orders, kind, body, options)
    return {"order_uuid": uuid}


def _refuse_switches(limits: Any) -> None:
    """Any number may be ordered, and text and null too: the agent has to cope. true and false no client can send."""
    if limits is not None and not isinstance(limits, dict):
        raise TypeError("limits must be an object: component -> number")
    for component, amount in (limits or {}).items():
        if isinstance(amount, bool):
            raise TypeError(f"limit of {component} must be a number")


def _order_options(body: JsonObject) -> OrderOptions:
    names = {f.name for f in fields(OrderOptions)}
    values = {name: body[name] for name in names & set(body)}
    if isinstance(values.get("start_date"), str):
        values["start_date"] = date.fromisoformat(values["start_date"])
    return OrderOptions(**values)


def _place_follow_up(orders: Orders, kind: str, body: JsonObject, options: OrderOptions) -> str:
    resource_uuid = body["resource_uuid"]
    if kind == "Terminate":
        return orders.place_terminate(resource_uuid, options=options)
    if kind == "Restore":
        return orders.place_restore(resource_uuid, options=options)
    if kind != "Update":
        raise ValueError(f"no order type {kind}")
    if "new_options" in body:
        return orders.place_option_change(resource_uuid, body["new_options"], options=options)
    if options.plan_uuid is not None:
        return orders.place_plan_switch(resource_uuid, options.plan_uuid, options=options)
    return orders.place_update(resource_uuid, body["limits"], options=options)


@_on("GET", "orders/{uuid}")
def _get_order(call: ControlCall) -> Any:
    return call.surface.orders.get(call.arguments["uuid"])


@_on("GET", "resources/{uuid}")
def _get_resource(call: ControlCall) -> Any:
    return call.surface.site.resource(call.arguments["uuid"])


@_on("PATCH", "{table}/{uuid}")
def _change(call: ControlCall) -> Any:
    call.surface.site.change(call.arguments["table"], call.arguments["uuid"], **call.body)


@_on("POST", "projects")
def _add_project(call: ControlCall) -> Any:
    return {"project_uuid": call.surface.people.add_project(**call.body)}


@_on("POST", "projects/{uuid}/members")
def _add_member(call: ControlCall) -> Any:
    values = dict(call.body)
    if isinstance(values.get("expiration_time"), str):
        values["expiration_time"] = datetime.fromisoformat(values["expiration_time"])
    return {"user_uuid": call.surface.people.add_member(call.arguments["uuid"], **values)}


@_on("DELETE", "projects/{uuid}/members/{username}")
def _remove_member(call: ControlCall) -> Any:
    call.surface.people.remove_member(call.arguments["uuid"], call.arguments["username"])


@_on("PUT", "accounts/{username}")
def _set_account(call: ControlCall) -> Any:
    state = call.body.get("state")
    return call.surface.people.set_account(
        call.arguments["username"],
        call.body.get("account", ""),
        state=OfferingUserState(state) if state else None,
    )


@_on("DELETE", "accounts/{username}")
def _remove_account(call: ControlCall) -> Any:
    call.surface.people.remove_account(call.arguments["username"])


@_on("POST", "shared-accounts")
def _add_shared_account(call: ControlCall) -> Any:
    return {"uuid": call.surface.site.add_shared_account(**call.body)}


@_on("POST", "user-limits")
def _add_user_limit(call: ControlCall) -> Any:
    return {"uuid": call.surface.site.add_user_limit(**call.body)}


@_on("POST", "policies")
def _add_policy(call: ControlCall) -> Any:
    return {"uuid": call.surface.site.add_policy(**call.body)}


@_on("POST", "denials")
def _deny(call: ControlCall) -> Any:
    call.surface.people.deny(call.body["username"], call.body["permission"])


@_on("DELETE", "denials")
def _allow(call: ControlCall) -> Any:
    call.surface.people.allow(call.body["username"], call.body["permission"])


@_on("POST", "faults")
def _add_fault(call: ControlCall) -> Any:
    values = dict(call.body)
    if "kind" in values:
        values["kind"] = FaultKind(values["kind"])
    call.surface.faults.add(Fault(**values))


@_on("GET", "faults")
def _list_faults(call: ControlCall) -> Any:
    return [{"fault": fault, "struck": struck} for fault, struck in call.surface.faults.armed()]


@_on("DELETE", "faults")
def _clear_faults(call: ControlCall) -> Any:
    call.surface.faults.clear()


@_on("GET", "requests")
def _requests(call: ControlCall) -> Any:
    """Counters, and the entries themselves with `?pattern=`."""
    log = call.surface.requests
    body: JsonObject = {"total": log.count(), "counts": log.counts()}
    if "pattern" in call.query:
        body["entries"] = log.entries(call.query["pattern"])
    return body


@_on("DELETE", "requests")
def _reset_requests(call: ControlCall) -> Any:
    call.surface.requests.reset()


@_on("POST", "clock")
def _advance(call: ControlCall) -> Any:
    call.surface.site.advance(float(call.body["advance_s"]))


@_on("POST", "background")
def _run_background(call: ControlCall) -> Any:
    return {"jobs": call.surface.site.run_background()}


@_on("PATCH", "settings")
def _configure(call: ControlCall) -> Any:
    call.surface.site.configure(**call.body)
