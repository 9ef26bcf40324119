# SPDX-License-Identifier: MIT
"""Event subscriptions and queues (8.x). Where a broker is attached, its logins and queues are made along with them."""

from __future__ import annotations

from collections.abc import Callable

from simulator.api.agents import visible_identity
from simulator.events.broker import BrokerFailed, EventBroker
from simulator.rules import lookup
from simulator.rules.errors import ApiError, bad_field, detail
from simulator.rules.lookup import view_of
from simulator.server.routes import Call, Reply, Routes
from simulator.world.agent_records import EventConsumer, EventQueue, EventSubscription
from simulator.world.ages import Age
from simulator.world.clock import wire_time
from simulator.world.identifiers import as_uuid
from simulator.world.records import JsonObject

routes = Routes()

_OBJECT_TYPES = (
    "order",
    "user_role",
    "resource",
    "offering_user",
    "importable_resources",
    "service_account",
    "course_account",
    "resource_periodic_limits",
)
_SINCE_8_1 = ("offering_resources_sync", "resource_api_key_rotation", "service_provider_project_group")


@routes.on("GET", "event-subscriptions/", since=Age.V8_0)
def list_subscriptions(call: Call) -> Reply:
    mine = call.store.subscriptions.where("user", call.user.uuid)
    return lookup.page_of(call, mine, lambda s: _subscription_body(call, s))


@routes.on("GET", "event-subscriptions/{uuid}/", since=Age.V8_0)
def get_subscription(call: Call) -> Reply:
    return Reply(body=_subscription_body(call, _subscription(call)))


@routes.on("POST", "event-subscriptions/", since=Age.V8_0)
def create_subscription(call: Call) -> Reply:
    objects = lookup.require_fields(call, "observable_objects")["observable_objects"]
    if not isinstance(objects, list) or not all(isinstance(o, dict) for o in objects):
        raise bad_field("observable_objects", "Expected a list of objects.")
    for item in objects:
        _require_type(call, "observable_objects", item.get("object_type"))
    return Reply(status=201, body=_subscription_body(call, _subscribe(call, objects)))


@routes.on("DELETE", "event-subscriptions/{uuid}/", since=Age.V8_0)
def delete_subscription(call: Call) -> Reply:
    subscription = _subscription(call)
    for queue in call.store.queues.where("subscription", subscription.uuid):
        call.store.queues.remove(queue)
    call.store.subscriptions.remove(subscription)
    return Reply(status=204)


@routes.on("POST", "marketplace-site-agent-identities/{uuid}/register_event_subscription/", since=Age.V8_0)
def register_event_subscription(call: Call) -> Reply:
    """Make one subscription per user and type, whatever the identity: 201 when new, else 200."""
    visible_identity(call)
    object_type = lookup.require_fields(call, "observable_object_type")["observable_object_type"]
    _require_type(call, "observable_object_type", object_type)
    wanted = [{"object_type": object_type}]
    for known in call.store.subscriptions.where("user", call.user.uuid):
        if known.observable_objects == wanted:
            _make_login(call, known)
            return Reply(body=_subscription_body(call, known))
    return Reply(status=201, body=_subscription_body(call, _subscribe(call, wanted)))


@routes.on("POST", "event-subscriptions/{uuid}/create_queue/", since=Age.V8_0)
def create_queue(call: Call) -> Reply:
    subscription = _subscription(call)
    body = lookup.require_fields(call, "offering_uuid", "object_type")
    _require_type(call, "object_type", body["object_type"])
    offering_uuid = as_uuid(body["offering_uuid"])
    if offering_uuid is None or offering_uuid not in call.store.offerings:
        raise bad_field("offering_uuid", "There is no such offering.")
    for queue in call.store.queues.where("subscription", subscription.uuid):
        if (queue.offering_uuid, queue.object_type) == (offering_uuid, body["object_type"]):
            _make_queue(call, subscription, queue)
            return Reply(body=_queue_body(call, queue))
    queue = EventQueue(
        uuid=call.store.uuids.new(),
        subscription_uuid=subscription.uuid,
        offering_uuid=offering_uuid,
        object_type=body["object_type"],
        created=call.store.clock.now(),
    )
    _make_queue(call, subscription, queue)
    call.store.queues.add(queue)
    return Reply(status=201, body=_queue_body(call, queue))


@routes.on("GET", "event-subscription-queues/", since=Age.V8_0)
def list_queues(call: Call) -> Reply:
    subscriptions = call.store.subscriptions.where("user", call.user.uuid)
    mine = [q for s in subscriptions for q in call.store.queues.where("subscription", s.uuid)]
    return lookup.page_of(call, mine, lambda q: _queue_body(call, q))


@routes.on("POST", "marketplace-site-agent-identities/{uuid}/register_queue/", since=Age.V8_1)
def register_queue(call: Call) -> Reply:
    """Make the one queue of an agent: omitted types keep the stored ones, an empty list means all."""
    identity = visible_identity(call)
    types = lookup.require_object(call).get("object_types")
    for object_type in types or []:
        _require_type(call, "object_types", object_type)
    known = next(iter(call.store.consumers.where("identity", identity.uuid)), None)
    if known is not None:
        if known.user_uuid != call.user.uuid:
            raise detail(409, "The queue belongs to another user.")
        known.object_types = known.object_types if types is None else types
        _make_consumer(call, known)
        return Reply(body=_consumer_body(known))
    consumer = EventConsumer(
        uuid=call.store.uuids.new(),
        identity_uuid=identity.uuid,
        user_uuid=call.user.uuid,
        object_types=types or [],
        created=call.store.clock.now(),
    )
    _make_consumer(call, consumer)
    call.store.consumers.add(consumer)
    return Reply(status=201, body=_consumer_body(consumer))


def _require_type(call: Call, name: str, object_type: object) -> None:
    known = _OBJECT_TYPES + (_SINCE_8_1 if call.age.at_least(Age.V8_1) else ())
    if object_type not in known:
        raise bad_field(name, f"Not one of the choices: {object_type}")


def _subscription(call: Call) -> EventSubscription:
    return lookup.visible_row(
        call,
        call.store.subscriptions,
        "EventSubscription",
        lambda s: call.user.is_staff or s.user_uuid == call.user.uuid,
    )


def _subscribe(call: Call, objects: list[JsonObject]) -> EventSubscription:
    now = call.store.clock.now()
    subscription = EventSubscription(
        uuid=call.store.uuids.new(),
        user_uuid=call.user.uuid,
        description=call.text("description"),
        observable_objects=objects,
        created=now,
        modified=now,
        source_ip=call.remote_ip,
    )
    _make_login(call, subscription)
    return call.store.subscriptions.add(subscription)


def queue_name(subscription: EventSubscription, row: EventQueue) -> str:
    return f"subscription_{subscription.uuid}_offering_{row.offering_uuid}_{row.object_type}"


def _make_login(call: Call, subscription: EventSubscription) -> None:
    passcode = _token(call, subscription.user_uuid)
    _at_brokers(call, lambda b: b.add_login(subscription.user_uuid, subscription.uuid, passcode))


def _make_queue(call: Call, subscription: EventSubscription, row: EventQueue) -> None:
    name = queue_name(subscription, row)
    _at_brokers(call, lambda b: b.add_queue(subscription.user_uuid, name))


def _make_consumer(call: Call, row: EventConsumer) -> None:
    passcode = _token(call, row.user_uuid)
    _at_brokers(call, lambda b: b.add_login(row.user_uuid, row.uuid, passcode))
    _at_brokers(call, lambda b: b.add_queue(row.user_uuid, consumer_queue(row)))


def consumer_queue(row: EventConsumer) -> str:
    return f"consumer_{row.uuid}"


def _token(call: Call, user_uuid: str) -> str:
    return next(t.key for t in call.store.tokens.values() if t.user_uuid == user_uuid)


def _at_brokers(call: Call, make: Callable[[EventBroker], None]) -> None:
    """Report a broker that fails during set-up as the real server does: 400 and a list of one text."""
    for broker in call.store.brokers:
        try:
            make(broker)
        except BrokerFailed as error:
            raise ApiError(400, [str(error)]) from error


def _subscription_body(call: Call, row: EventSubscription) -> JsonObject:
    view = view_of(call)
    user = call.store.users[row.user_uuid]
    return {
        "uuid": row.uuid,
        "url": view.link("event-subscriptions", row.uuid),
        "description": row.description,
        "user": view.link("users", user.uuid),
        "user_uuid": user.uuid,
        "user_username": user.username,
        "user_full_name": user.full_name,
        "observable_objects": row.observable_objects,
        "created": wire_time(row.created),
        "modified": wire_time(row.modified),
        "source_ip": row.source_ip,
    }


def _queue_body(call: Call, row: EventQueue) -> JsonObject:
    view = view_of(call)
    subscription = call.store.subscriptions[row.subscription_uuid]
    return {
        "uuid": row.uuid,
        "url": view.link("event-subscription-queues", row.uuid),
        "event_subscription": view.link("event-subscriptions", subscription.uuid),
        "event_subscription_uuid": subscription.uuid,
        "offering_uuid": row.offering_uuid,
        "object_type": row.object_type,
        "queue_name": queue_name(subscription, row),
        "vhost": subscription.user_uuid,
        "created": wire_time(row.created),
    }


def _consumer_body(row: EventConsumer) -> JsonObject:
    return {
        "rmq_username": row.uuid,
        "queue_name": consumer_queue(row),
        "vhost": row.user_uuid,
        "observable_object_types": row.object_types,
    }
