# SPDX-License-Identifier: MIT
"""marketplace-orders: the lists and moves of orders, for providers and for consumers."""

from __future__ import annotations

from simulator.api.filters import (
    Filters,
    choice_in,
    flag_is,
    moment_from,
    moment_until,
    text_has,
    text_is,
    uuid_is,
)
from simulator.render.orders import created_order_body, order_body
from simulator.render.view import pick
from simulator.rules import access, consumer_checks, integration, lookup, order_rules, placing
from simulator.rules.errors import bad_field, crash, detail
from simulator.rules.lookup import view_of
from simulator.server.routes import Call, Reply, Routes
from simulator.world.ages import Age
from simulator.world.records import Order, OrderState, OrderType

routes = Routes()

_MAX_BACKEND_ID = 255
_SLURM = "Marketplace.Slurm"
_DONE_BY_HAND = (_SLURM, "Marketplace.Basic", "Support.OfferingTemplate")


def _filters(call: Call) -> Filters[Order]:
    store = call.store
    is_old = not call.age.is_modern
    states = [s.value for s in OrderState if not (is_old and s is OrderState.PENDING_START_DATE)]
    types = [t.value for t in OrderType if not (is_old and t is OrderType.RESTORE)]
    filters: Filters[Order] = Filters(
        offering_uuid=uuid_is(lambda o: o.offering_uuid),
        project_uuid=uuid_is(lambda o: o.project_uuid),
        customer_uuid=uuid_is(lambda o: store.customer_of(o).uuid),
        provider_uuid=uuid_is(lambda o: store.offering_of(o).customer_uuid),
        resource_uuid=uuid_is(lambda o: o.resource_uuid),
        resource_name=text_is(lambda o: store.resources[o.resource_uuid].name),
        state=choice_in(lambda o: o.state.value, states),
        type=choice_in(lambda o: o.type.value, types),
        created=moment_from(lambda o: o.created),
        modified=moment_from(lambda o: o.modified),
        modified_before=moment_until(lambda o: o.modified),
        query=text_has(lambda o: (store.resources[o.resource_uuid].name, o.uuid)),
        can_approve_as_provider=flag_is(lambda o: _can_approve(call, o)),
    )
    return filters if call.age.at_least(Age.V8_1) else filters.without("modified_before")


def _can_approve(call: Call, order: Order) -> bool:
    scopes = access.customer_scope(call.store.offering_of(order))
    is_waiting = order.state is OrderState.PENDING_PROVIDER
    return is_waiting and access.may(call.store, call.user, "ORDER.APPROVE", scopes)


@routes.on("GET", "marketplace-orders/")
def list_orders(call: Call) -> Reply:
    integration.note_request(call, "Order processing")
    provided, consumed = access.provided(call.store, call.user), access.consumed(call.store, call.user)
    mine = [o for o in call.store.orders if o.offering_uuid in provided or o.project_uuid in consumed]
    rows = _filters(call).apply(mine, call.query)
    return lookup.page_of(call, _sorted(call, rows), lambda o: order_body(view_of(call), o))


def _sorted(call: Call, rows: list[Order]) -> list[Order]:
    for name in reversed(call.query.get("o", [])):
        attribute = name.lstrip("-")
        if attribute in ("created", "modified"):
            rows = sorted(rows, key=lambda o: getattr(o, attribute), reverse=name.startswith("-"))
    return rows


@routes.on("GET", "marketplace-orders/{uuid}/")
def get_order(call: Call) -> Reply:
    return Reply(body=pick(order_body(view_of(call), lookup.order(call)), call.query))


@routes.on("POST", "marketplace-orders/")
def create_order(call: Call) -> Reply:
    new = consumer_checks.new_order(call)
    resource = placing.new_resource(call.store, new.offering, new.project, request=new.request)
    order = placing.place(
        call.store,
        resource,
        new.request,
        author=call.user,
        is_approved=access.may(call.store, call.user, "ORDER.APPROVE", access.project_scopes(new.project)),
    )
    body = created_order_body(view_of(call), order)
    location = view_of(call).link("marketplace-orders", order.uuid)
    return Reply(status=201, body=body, headers={"Location": str(location)})


@routes.on("DELETE", "marketplace-orders/{uuid}/")
def destroy_order(call: Call) -> Reply:
    order = lookup.order(call)
    _require_consumer(call, order, "ORDER.DESTROY")
    order_rules.destroy(call.store, order)
    return Reply(status=204)


@routes.on("POST", "marketplace-orders/{uuid}/approve_by_consumer/")
def approve_by_consumer(call: Call) -> Reply:
    order = lookup.order(call)
    _require_consumer(call, order, "ORDER.APPROVE")
    order_rules.approve_by_consumer(call.store, order, call.user)
    return _approved(call)


@routes.on("POST", "marketplace-orders/{uuid}/reject_by_consumer/")
def reject_by_consumer(call: Call) -> Reply:
    order = lookup.order(call)
    _require_consumer(call, order, "ORDER.APPROVE")
    order_rules.reject_by_consumer(call.store, order, call.user)
    return Reply()


@routes.on("POST", "marketplace-orders/{uuid}/cancel/")
def cancel(call: Call) -> Reply:
    order = lookup.order(call)
    _require_consumer(call, order, "ORDER.CANCEL")
    order_rules.cancel(call.store, order)
    return Reply(status=202)


@routes.on("POST", "marketplace-orders/{uuid}/approve_by_provider/")
def approve_by_provider(call: Call) -> Reply:
    order = _for_provider(call, "ORDER.APPROVE")
    order_rules.require_state(order, OrderState.PENDING_PROVIDER)
    attributes = lookup.require_object(call).get("attributes")
    if call.age.is_modern and isinstance(attributes, dict):
        order.attributes.update(attributes)
    order_rules.approve_by_provider(call.store, order, call.user)
    return _approved(call)


@routes.on("POST", "marketplace-orders/{uuid}/reject_by_provider/")
def reject_by_provider(call: Call) -> Reply:
    order = _for_provider(call, "ORDER.REJECT")
    comment = call.text("provider_rejection_comment") if call.age.is_modern else ""
    order_rules.reject_by_provider(call.store, order, call.user, comment=comment)
    return Reply()


@routes.on("POST", "marketplace-orders/{uuid}/set_state_executing/")
def set_state_executing(call: Call) -> Reply:
    order = _for_provider(call, "ORDER.APPROVE")
    _require_type(call, order, _SLURM)
    order_rules.set_executing(call.store, order)
    return Reply()


@routes.on("POST", "marketplace-orders/{uuid}/set_state_done/")
def set_state_done(call: Call) -> Reply:
    order = _for_provider(call, "ORDER.APPROVE")
    _require_type(call, order, *_DONE_BY_HAND)
    order_rules.set_done(call.store, order)
    return Reply()


@routes.on("POST", "marketplace-orders/{uuid}/set_state_erred/")
def set_state_erred(call: Call) -> Reply:
    """Set the order erred. Both texts are needed, though optional in the schema: without one the server crashes."""
    order = _for_provider(call, "ORDER.APPROVE")
    _require_type(call, order, _SLURM)
    body = lookup.require_object(call)
    if "error_message" not in body or "error_traceback" not in body:
        raise crash()
    message, traceback = call.text("error_message"), call.text("error_traceback")
    order_rules.set_erred(call.store, order, message=message, traceback=traceback)
    return Reply()


@routes.on("POST", "marketplace-orders/{uuid}/set_backend_id/", since=Age.V8_0)
def set_backend_id(call: Call) -> Reply:
    """Set the id of the order in an outer system; unrelated to the resource's backend_id."""
    order = lookup.order(call)
    scopes = access.offering_scopes(call.store.offering_of(order))
    access.require(call.store, call.user, "RESOURCE.SET_BACKEND_ID", scopes)
    lookup.require_fields(call, "backend_id")
    backend_id = call.text("backend_id")
    if len(backend_id) > _MAX_BACKEND_ID:
        raise bad_field("backend_id", f"Ensure this field has no more than {_MAX_BACKEND_ID} characters.")
    changed = backend_id != order.backend_id
    order.backend_id = backend_id
    return Reply(body={"status": f"Order backend_id {'changed' if changed else 'kept'}."})


def _require_type(call: Call, order: Order, *types: str) -> None:
    offering_type = call.store.offering_of(order).type
    if offering_type not in types:
        raise detail(405, f"Not for orders of {offering_type}.")


def _approved(call: Call) -> Reply:
    return Reply(body={"detail": "Order has been approved."} if call.age.is_modern else None)


def _for_provider(call: Call, permission: str) -> Order:
    order = lookup.order(call)
    scopes = access.customer_scope(call.store.offering_of(order))
    access.require(call.store, call.user, permission, scopes)
    return order


def _require_consumer(call: Call, order: Order, permission: str) -> None:
    scopes = access.project_scopes(call.store.projects[order.project_uuid])
    access.require(call.store, call.user, permission, scopes)
