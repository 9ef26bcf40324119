# SPDX-License-Identifier: MIT
"""Several offerings of one Waldur user share logins: each is listened to, and none disturbs the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from agent.bridge import stomp as wire
from agent.bridge.connection import BrokerConnection
from agent.bridge.inbox import Inbox
from agent.bridge.model import Address, Login, Source, Wire
from agent.bridge.mqtt import MqttConnection
from agent.config.model import Settings
from agent.config.secret import Secret
from agent.core.events import ObjectType
from rig.bridge_brokers import mqtt_keys, rabbitmq_side, stomp_keys
from rig.mosquitto import Mosquitto
from rig.processes import wait_until
from rig.rabbitmq import RabbitMq
from rig.site import configuration, settings_of
from simulator.events.mqtt import MqttBroker
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.bridge.inprocess import RunningBridge, quick

pytestmark = pytest.mark.events


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur("8.0", scenario=Scenario(allocations_per_project=1)) as server:
        yield server


@pytest.fixture
def broker(waldur: SimulatedWaldur, rabbitmq: RabbitMq) -> Iterator[RabbitMq]:
    waldur.publish_to(rabbitmq_side(rabbitmq))
    yield rabbitmq
    rabbitmq.ask("DELETE", f"vhosts/{vhost_of(waldur)}")


def vhost_of(waldur: SimulatedWaldur) -> str:
    return waldur.store.users.where("username", "agent")[0].uuid


def several(waldur: SimulatedWaldur, folder: Path, count: int, keys: dict[str, Any]) -> Settings:
    """The offering of the seed, and `count` - 1 more like it."""
    made = settings_of(configuration(waldur, folder, membership_sync_backend="slurm", **keys))
    (first,) = made.offerings
    with waldur.store.lock:
        for n in range(1, count):
            waldur.store.offerings.add(replace(waldur.store.offerings[first.uuid], uuid=f"{n:032x}"))
    more = [replace(first, uuid=f"{n:032x}", name=f"more {n}") for n in range(1, count)]
    return replace(made, offerings=(first, *more))


def all_listen(bridge: RunningBridge, types: int) -> None:
    uuids = [offering.uuid for offering in bridge.offerings]
    wait_until(
        "each offering's types",
        lambda: all(len(bridge.bridge.listened_to(uuid)) == types for uuid in uuids),
    )


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_five_over_stomp_however_often_it_starts(
    waldur: SimulatedWaldur, broker: RabbitMq, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are prepared one after the other, while connections are being made."""
    configured = several(waldur, tmp_path, 5, stomp_keys(broker))
    for _ in range(2):
        with RunningBridge(configured) as bridge:
            all_listen(bridge, 6)
            assert len(bridge.bridge._connections) == 6
    assert complaints(caplog) == []


def test_five_over_mqtt_however_often_it_starts(
    waldur: SimulatedWaldur, mosquitto: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    waldur.publish_to(MqttBroker("127.0.0.1", mosquitto.port))
    configured = several(waldur, tmp_path, 5, mqtt_keys(mosquitto))
    for _ in range(3):
        with RunningBridge(configured) as bridge:
            all_listen(bridge, 6)
    assert complaints(caplog) == []


def test_twenty_five_over_stomp_are_never_refused(
    waldur: SimulatedWaldur, broker: RabbitMq, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = stomp_keys(broker, stomp_membership_sync_enabled=False)
    with RunningBridge(several(waldur, tmp_path, 25, keys)) as bridge:
        all_listen(bridge, 1)
    assert complaints(caplog) == []


def test_a_queue_that_cannot_be_made_again_leaves_the_others_alone(
    waldur: SimulatedWaldur, broker: RabbitMq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is the first of all: it is asked for last."""
    monkeypatch.setattr("agent.bridge.service.REPAIR_S", 0.5)
    keys = stomp_keys(broker, stomp_membership_sync_enabled=False)
    configured = several(waldur, tmp_path, 2, keys)
    second = configured.offerings[1].uuid
    with RunningBridge(configured) as bridge:
        all_listen(bridge, 1)
        waldur.store.brokers.clear()  # Waldur does not make it
        asked = waldur.request_counts()["POST event-subscriptions/{uuid}/create_queue/"]
        (name,) = [
            queue["name"]
            for queue in _queues(broker, vhost_of(waldur))
            if second in queue["name"] and queue["name"].startswith("sub")
        ]
        broker.delete_queue(vhost_of(waldur), name)
        for more in (1, 2):
            wait_until("it is lost", lambda: second not in _prepared(bridge))
            wait_until("the other goes on", lambda: bool(bridge.types()))
            assert not bridge.bridge.listened_to(second)
            wait_until(
                "Waldur is asked",
                lambda n=more: (
                    waldur.request_counts()["POST event-subscriptions/{uuid}/create_queue/"] >= asked + n
                ),
            )
        waldur.publish_to(rabbitmq_side(broker))
        all_listen(bridge, 1)


def _queues(broker: RabbitMq, vhost: str) -> list[dict[str, Any]]:
    _, found = broker.ask("GET", f"queues/{vhost}")
    assert isinstance(found, list)
    return found


def _prepared(bridge: RunningBridge) -> set[str]:
    return {s.offering_uuid for t in bridge.bridge._states.values() for s in t.prepared.sources}


class NotedClient:
    """Of paho's client what a connection uses once it is connected; writes down the topics."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.disconnects = 0

    def subscribe(self, topics: list[tuple[str, int]]) -> None:
        self.asked.append([topic for topic, _ in topics])

    def disconnect(self) -> None:
        self.disconnects += 1


def test_a_topic_that_no_user_may_read_leaves_the_others_alone() -> None:
    """The answer to one request comes before the next is sent, and a refused topic is asked of Waldur."""
    lost: list[Source] = []
    connection = MqttConnection(LOGIN, Inbox(), on_lost=lost.extend, on_refused=_nothing, instance="test")
    first, second, third = (replace(SOURCE, name=name) for name in ("a", "b", "c"))
    client: Any = NotedClient()
    connection.want([first, second])
    connection._subscribe_to_missing(client)
    connection.want([first, second, third])
    connection._subscribe_to_missing(client)
    assert client.asked == [["a", "b"]]
    reasons = [ReasonCode(PacketTypes.SUBACK, identifier=code) for code in (0x87, 0x01)]
    connection._on_subscribe(client, None, 1, reasons, None)
    assert (lost, connection.subscriptions.active) == ([first], {second})
    assert client.asked == [["a", "b"], ["c"]]
    assert client.disconnects == 0
    connection.want([third])
    connection._subscribe_to_missing(client)
    assert client.disconnects == 1


ADDRESS = Address(Wire.STOMP, "mq..example", 1, "", tls=False)
LOGIN = Login(ADDRESS, "vhost", "user", Secret("token"))
SOURCE = Source(LOGIN, "queue", "a" * 32, ObjectType.ORDER, frozenset({ObjectType.ORDER}))


@pytest.mark.parametrize("path", ["", "/ws"])
def test_a_host_that_is_no_name_is_tried_again_and_logged(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    login = replace(LOGIN, address=replace(ADDRESS, path=path))
    connection = wire.StompConnection(login, Inbox(), on_lost=_nothing, on_refused=_nothing)
    connection.want([replace(SOURCE, login=login)])
    connection.start()
    wait_until("it is logged twice", lambda: caplog.text.count("again in") > 1)
    assert connection.is_alive
    connection.close()
    connection.join(60)
    assert not connection.is_alive


def _nothing(_: object) -> None:
    return


class FaultyConnection(BrokerConnection):
    """Fails in an unforeseen way."""

    def session(self) -> None:
        raise LookupError("an unforeseen error")

    def update_subscriptions(self) -> None:
        return

    def disconnect(self) -> None:
        return


def test_a_fault_of_the_bridge_itself_ends_no_connection(caplog: pytest.LogCaptureFixture) -> None:
    connection = FaultyConnection(LOGIN, Inbox(), on_lost=_nothing, on_refused=_nothing)
    connection.want([SOURCE])
    connection.start()
    wait_until("it is logged twice", lambda: caplog.text.count("an unforeseen error") > 1)
    connection.close()
    connection.join(60)
    assert not connection.is_alive
