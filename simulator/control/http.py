# SPDX-License-Identifier: MIT
"""The control API: what `control.experiments` does, over HTTP under /control/, for callers in other processes.

Answers JSON; a request it cannot use is a 400 with `detail`. Only loopback is let in.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any

from simulator.control.experiments import OrderControl, OrderOptions, PeopleControl, SiteControl
from simulator.control.snapshot import to_json
from simulator.server.faults import Fault, FaultKind, Faults
from simulator.server.faulty import json_response
from simulator.server.http import Request, Response
from simulator.server.request_log import RequestLog
from simulator.server.routes import arguments_in, path_matcher
from simulator.world.records import JsonObject, OfferingUserState
from simulator.world.seed import Seeded


@dataclass(frozen=True, kw_only=True)
class Controls:
    orders: OrderControl
    people: PeopleControl
    site: SiteControl
    faults: Faults
    requests: RequestLog
    seeded: Seeded


@dataclass(frozen=True)
class ControlCall:
    controls: Controls
    body: JsonObject
    query: dict[str, str]
    arguments: dict[str, str]


Operation = Callable[[ControlCall], Any]
_OPERATIONS: list[tuple[str, re.Pattern[str], Operation]] = []


def control(controls: Controls, request: Request) -> Response:
    """Run one operation for a caller on this machine."""
    return json_response(*_answer(controls, request))


def _answer(controls: Controls, request: Request) -> tuple[int, Any]:
    if not ipaddress.ip_address(request.remote_ip).is_loopback:
        return 403, {"detail": "The control API is for this machine only."}
    try:
        body = json.loads(request.body) if request.body.strip() else {}
    except ValueError as error:
        return 400, {"detail": str(error)}
    method = "GET" if request.method == "HEAD" else request.method
    operations = ((path.fullmatch(request.path), each) for on, path, each in _OPERATIONS if on == method)
    found, operation = next(filter(lambda pair: pair[0], operations), (None, None))
    if found is None or operation is None:
        return 404, {"detail": f"no operation {request.method} {request.path.removeprefix('/control/')}"}
    if body is not None and not isinstance(body, dict):
        return 400, {"detail": "the body must be one JSON object"}
    query = {name: values[-1] for name, values in request.query().items()}
    try:
        return 200, to_json(operation(ControlCall(controls, body or {}, query, arguments_in(found))))
    except (AttributeError, LookupError, ValueError, TypeError) as error:
        return 400, {"detail": f"{type(error).__name__}: {error}"}


def _on(method: str, pattern: str) -> Callable[[Operation], Operation]:
    def register(operation: Operation) -> Operation:
        _OPERATIONS.append((method, path_matcher(f"/control/{pattern}"), operation))
        return operation

    return register


@_on("POST", "orders")
def _place_order(call: ControlCall) -> Any:
    body, orders = dict(call.body), call.controls.orders
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


def _place_follow_up(orders: OrderControl, kind: str, body: JsonObject, options: OrderOptions) -> str:
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


@_on("POST", "projects/{uuid}/members")
def _add_member(call: ControlCall) -> Any:
    values = dict(call.body)
    if isinstance(values.get("expiration_time"), str):
        values["expiration_time"] = datetime.fromisoformat(values["expiration_time"])
    return {"user_uuid": call.controls.people.add_member(call.arguments["uuid"], **values)}


@_on("PUT", "accounts/{username}")
def _set_account(call: ControlCall) -> Any:
    state = call.body.get("state")
    return call.controls.people.set_account(
        call.arguments["username"],
        call.body.get("account", ""),
        state=OfferingUserState(state) if state else None,
    )


@_on("POST", "faults")
def _add_fault(call: ControlCall) -> Any:
    values = dict(call.body)
    if "kind" in values:
        values["kind"] = FaultKind(values["kind"])
    call.controls.faults.add(Fault(**values))


@_on("GET", "requests")
def _requests(call: ControlCall) -> Any:
    """Counters, and the entries themselves with `?pattern=`."""
    log = call.controls.requests
    body: JsonObject = {"total": log.count(), "counts": log.counts()}
    if "pattern" in call.query:
        body["entries"] = log.entries(call.query["pattern"])
    return body


# What is one call of a control.
_CALLS: tuple[tuple[str, str, Operation], ...] = (
    ("GET", "state", lambda call: call.controls.site.state()),
    ("GET", "seed", lambda call: call.controls.seeded),
    ("GET", "orders/{uuid}", lambda call: call.controls.orders.get(call.arguments["uuid"])),
    ("GET", "resources/{uuid}", lambda call: call.controls.site.resource(call.arguments["uuid"])),
    (
        "PATCH",
        "{table}/{uuid}",
        lambda call: call.controls.site.change(call.arguments["table"], call.arguments["uuid"], **call.body),
    ),
    ("POST", "projects", lambda call: {"project_uuid": call.controls.people.add_project(**call.body)}),
    (
        "DELETE",
        "projects/{uuid}/members/{username}",
        lambda call: call.controls.people.remove_member(call.arguments["uuid"], call.arguments["username"]),
    ),
    (
        "DELETE",
        "accounts/{username}",
        lambda call: call.controls.people.remove_account(call.arguments["username"]),
    ),
    ("POST", "shared-accounts", lambda call: {"uuid": call.controls.site.add_shared_account(**call.body)}),
    ("POST", "user-limits", lambda call: {"uuid": call.controls.site.add_user_limit(**call.body)}),
    ("POST", "policies", lambda call: {"uuid": call.controls.site.add_policy(**call.body)}),
    (
        "POST",
        "denials",
        lambda call: call.controls.people.deny(call.body["username"], call.body["permission"]),
    ),
    (
        "DELETE",
        "denials",
        lambda call: call.controls.people.allow(call.body["username"], call.body["permission"]),
    ),
    (
        "GET",
        "faults",
        lambda call: [{"fault": fault, "struck": struck} for fault, struck in call.controls.faults.armed()],
    ),
    ("DELETE", "faults", lambda call: call.controls.faults.clear()),
    ("DELETE", "requests", lambda call: call.controls.requests.reset()),
    ("POST", "clock", lambda call: call.controls.site.advance(float(call.body["advance_s"]))),
    ("POST", "background", lambda call: {"jobs": call.controls.site.run_background()}),
    ("PATCH", "settings", lambda call: call.controls.site.configure(**call.body)),
)
for _method, _pattern, _operation in _CALLS:
    _on(_method, _pattern)(_operation)
