# SPDX-License-Identifier: MIT
"""marketplace-slurm-remote: how a 2024 agent drove the allocation behind a resource. Gone in 8.x."""

from __future__ import annotations

from simulator.rules import access, allocations, lookup, order_rules
from simulator.rules.errors import bad_request, unknown_object
from simulator.rules.lookup import view_of
from simulator.server.routes import Call, Reply, Routes
from simulator.world.ages import Age
from simulator.world.clock import wire_time
from simulator.world.records import Allocation, OrderState, OrderType, Resource

routes = Routes()

_USAGE_KEYS = {"cpu": "cpu_usage", "gpu": "gpu_usage", "ram": "ram_usage"}


@routes.on("POST", "marketplace-slurm-remote/{uuid}/set_backend_id/", until=Age.A2024)
def set_backend_id(call: Call) -> Reply:
    resource, allocation = _target(call)
    allocation.backend_id = resource.backend_id = call.text("backend_id")
    allocations.publish(resource, allocation)
    return Reply(body={"status": "Allocation backend_id stored."})


@routes.on("POST", "marketplace-slurm-remote/{uuid}/set_limits/", until=Age.A2024)
def set_limits(call: Call) -> Reply:
    resource, _ = _target(call)
    resource.limits = dict(lookup.require_object(call))
    return Reply(body={"status": "Limits stored."})


@routes.on("POST", "marketplace-slurm-remote/{uuid}/set_state/", until=Age.A2024)
def set_state(call: Call) -> Reply:
    """Set the allocation's state. One that becomes OK finishes the order that is executing on its resource."""
    resource, allocation = _target(call)
    access.require_owner(call.store, call.user, call.store.offering_of(resource))
    word = call.text("state")
    allocations.move(resource, allocation, word)
    order = call.store.pending_order(resource.uuid)
    is_executing = order is not None and order.state is OrderState.EXECUTING
    if word == "ok" and order is not None and is_executing and order.type is not OrderType.TERMINATE:
        order_rules.finish(call.store, order)
    return Reply(body={"detail": f"Allocation state is now {word}"})


@routes.on("POST", "marketplace-slurm-remote/{uuid}/create_association/", until=Age.A2024)
def create_association(call: Call) -> Reply:
    _, allocation = _target(call)
    username = str(lookup.require_fields(call, "username")["username"])
    if username in allocation.usernames:
        return Reply(body={"detail": "The association is there already."})
    allocation.usernames.append(username)
    return Reply(status=201, body={"detail": "The association is made."})


@routes.on("POST", "marketplace-slurm-remote/{uuid}/delete_association/", until=Age.A2024)
def delete_association(call: Call) -> Reply:
    _, allocation = _target(call)
    username = str(lookup.require_fields(call, "username")["username"])
    if username not in allocation.usernames:
        raise bad_request("There is no such association.")
    allocation.usernames.remove(username)
    return Reply(body={"detail": "The association is deleted."})


@routes.on("POST", "marketplace-slurm-remote/{uuid}/set_usage/", until=Age.A2024)
def set_usage(call: Call) -> Reply:
    """Set usage. A total also replaces the resource's limits by the allocation's own, which are 0: as recorded."""
    resource, _ = _target(call)
    body = lookup.require_fields(call, "username", "month", "year")
    if body["username"] == "TOTAL_ACCOUNT_USAGE":
        types = {c.type for c in call.store.offering_of(resource).components}
        resource.reported_usages = {
            name: body[key] for name, key in _USAGE_KEYS.items() if name in types and key in body
        }
        resource.limits = {name: 0 for name in _USAGE_KEYS if name in types}
    return Reply(body={"detail": "Allocation usage is stored."})


@routes.on("GET", "marketplace-provider-resources/{uuid}/details/", until=Age.A2024)
def details(call: Call) -> Reply:
    resource = lookup.provider_resource(call)
    allocation = resource.allocation
    if allocation is None:
        raise unknown_object("Resource")
    store, view = call.store, view_of(call)
    offering, customer = store.offering_of(resource), store.customer_of(resource)
    project = store.projects[resource.project_uuid]
    numbers = ("cpu_limit", "cpu_usage", "gpu_limit", "gpu_usage", "ram_limit", "ram_usage")
    body = {
        "url": view.link("slurm-allocations", allocation.uuid),
        "uuid": allocation.uuid,
        "name": resource.name,
        "description": "",
        "project": view.link("projects", project.uuid),
        "project_name": project.name,
        "project_uuid": project.uuid,
        "customer": view.link("customers", customer.uuid),
        "customer_name": customer.name,
        "error_message": "",
        "error_traceback": "",
        "resource_type": "SLURM.Allocation",
        "state": allocations.STATE_NAMES[allocation.state],
        "created": wire_time(allocation.created),
        "backend_id": allocation.backend_id,
        **dict.fromkeys(numbers, 0),
        "is_active": True,
        "marketplace_offering_uuid": offering.uuid,
        "marketplace_resource_uuid": resource.uuid,
        "marketplace_resource_state": resource.state.value,
    }
    return Reply(body=body)


def _target(call: Call) -> tuple[Resource, Allocation]:
    resource = lookup.provider_resource(call)
    if resource.allocation is None:
        raise unknown_object("Resource")
    scopes = access.offering_scopes(call.store.offering_of(resource))
    access.require(call.store, call.user, "RESOURCE.SET_BACKEND_ID", scopes)
    return resource, resource.allocation
