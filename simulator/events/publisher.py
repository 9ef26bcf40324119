# SPDX-License-Identifier: MIT
"""Publish changes to a broker: whoever subscribed to a type of an offering gets a message about it.

As the real server: a user with a queue for an agent gets nothing on the queues of single types; without a queue for
offering and type nothing is sent; a topic needs none.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator
from typing import NamedTuple

from simulator.api.events import consumer_queue, queue_name
from simulator.events.broker import BrokerFailed, EventBroker
from simulator.events.changes import Changes, Message
from simulator.rules import access
from simulator.world.agent_records import EventSubscription
from simulator.world.records import JsonObject
from simulator.world.store import Store

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1


class Delivery(NamedTuple):
    vhost: str
    name: str
    payload: JsonObject


class Publisher:
    """Send in a thread of its own: an API call does not wait for the broker."""

    def __init__(self, store: Store, broker: EventBroker) -> None:
        self.delivered = 0
        self._store = store
        self._broker = broker
        self._changes = Changes(store)
        self._waiting: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        store.brokers.append(broker)
        store.watchers.append(self._announce)
        self._thread.start()

    def send(self, message: Message) -> int:
        """Send a message; return the number of its receivers."""
        with self._store.lock:
            deliveries = list(self._deliveries(message))
        for delivery in deliveries:
            self._waiting.put(delivery)
        return len(deliveries)

    def stop(self) -> None:
        self._store.watchers.remove(self._announce)
        self._waiting.put(None)
        self._thread.join(600)
        self._broker.close()

    def _announce(self) -> None:
        for message in self._changes.take():
            self.send(message)

    def _run(self) -> None:
        while (delivery := self._waiting.get()) is not None:
            try:
                self._broker.publish(*delivery)
                self.delivered += 1
            except BrokerFailed as error:
                log.warning("a message is dropped: %s", error)

    def _deliveries(self, message: Message) -> Iterator[Delivery]:
        payload = {**message.payload, "offering_uuid": message.offering_uuid}
        unified = set()
        if not self._broker.has_topics:
            for consumer in self._store.consumers:
                identity = self._store.identities[consumer.identity_uuid]
                unified.add(consumer.user_uuid)
                is_wanted = not consumer.object_types or message.object_type in consumer.object_types
                if identity.offering_uuid == message.offering_uuid and is_wanted:
                    enriched = {
                        **payload,
                        "object_type": message.object_type,
                        "schema_version": SCHEMA_VERSION,
                    }
                    yield Delivery(consumer.user_uuid, consumer_queue(consumer), enriched)
        for subscription in self._store.subscriptions:
            kinds = [o.get("object_type") for o in subscription.observable_objects]
            if message.object_type in kinds and subscription.user_uuid not in unified:
                yield from self._to(subscription, message, payload)

    def _to(
        self, subscription: EventSubscription, message: Message, payload: JsonObject
    ) -> Iterator[Delivery]:
        user = self._store.users[subscription.user_uuid]
        if not access.provides(self._store, user, self._store.offerings[message.offering_uuid]):
            return
        if self._broker.has_topics:
            topic = f"subscription/{subscription.uuid}/offering/{message.offering_uuid}/{message.object_type}"
            yield Delivery(user.uuid, topic, payload)
            return
        for row in self._store.queues.where("subscription", subscription.uuid):
            if (row.offering_uuid, row.object_type) == (message.offering_uuid, message.object_type):
                yield Delivery(user.uuid, queue_name(subscription, row), payload)
