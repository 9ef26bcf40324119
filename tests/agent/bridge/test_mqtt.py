# SPDX-License-Identifier: MIT
"""MQTT on a real mosquitto, over WebSocket and TCP. The queue of tasks is a stand-in."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.bridge import inbox
from agent.bridge import mqtt as wire
from agent.config.model import Settings
from agent.core.events import JobKind, ObjectType
from rig.bridge_brokers import rabbitmq_side
from rig.mosquitto import Mosquitto
from rig.processes import wait_until
from rig.rabbitmq import RabbitMq
from rig.site import configuration, settings_of
from simulator.events.changes import Message
from simulator.events.mqtt import MqttBroker
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from tests.agent.bridge.inprocess import RunningBridge, quick

pytestmark = pytest.mark.events

OLD_VERSION = b"\x20\x02\x00\x01"  # a CONNACK of version 3.1.1: unacceptable protocol version


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)


@pytest.fixture
def waldur(mosquitto: Mosquitto) -> Iterator[SimulatedWaldur]:
    """Ends before the broker that it publishes to."""
    with SimulatedWaldur("8.0") as server:
        yield server


def settings(waldur: SimulatedWaldur, folder: Path, port: int, **more: Any) -> Settings:
    keys = {
        "mqtt_enabled": True,
        "stomp_ws_host": "127.0.0.1",
        "stomp_ws_port": port,
        "websocket_use_tls": False,
        "membership_sync_backend": "slurm",
        **more,
    }
    return settings_of(configuration(waldur, folder, **keys))


def tcp(waldur: SimulatedWaldur, mosquitto: Mosquitto, folder: Path, **more: Any) -> Settings:
    waldur.publish_to(MqttBroker("127.0.0.1", mosquitto.port))
    return settings(waldur, folder, mosquitto.port, event_transport="tcp", **more)


def order(waldur: SimulatedWaldur) -> str:
    return waldur.place_create_order(waldur.seed.project_uuids[0], "one", slug="one")


def orders(bridge: RunningBridge) -> int:
    return sum(job.kind is JobKind.ORDERS for job in bridge.outbox.jobs)


def travels(waldur: SimulatedWaldur, bridge: RunningBridge) -> None:
    before = orders(bridge)
    order(waldur)
    wait_until("the order", lambda: orders(bridge) > before)


@pytest.mark.parametrize("transport", ["websocket", "tcp"])
def test_an_order_comes_over(
    waldur: SimulatedWaldur, mosquitto: Mosquitto, tmp_path: Path, transport: str
) -> None:
    port = mosquitto.web_port if transport == "websocket" else mosquitto.port
    waldur.publish_to(MqttBroker("127.0.0.1", mosquitto.port))
    with RunningBridge(settings(waldur, tmp_path, port, event_transport=transport)) as bridge:
        bridge.listens()
        wait_until("all types", lambda: len(bridge.types()) == 6)
        travels(waldur, bridge)
    assert len(waldur.store.queues) == 0


def test_subscriptions_are_found_again_on_servers_that_cannot_find_them(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    """Before 7.8.5 there are no identities, and each POST makes another subscription."""
    with SimulatedWaldur("8.0") as waldur:
        waldur.inject(missing("marketplace-site-agent-identities"))
        configured = tcp(waldur, mosquitto, tmp_path)
        for _ in range(2):
            with RunningBridge(configured) as bridge:
                bridge.listens()
        assert len(waldur.store.subscriptions) == 6
        assert waldur.request_counts()["POST event-subscriptions/"] == 6 + 2 * 2  # two types are refused


def missing(path: str) -> Fault:
    body = "<html><title>Not Found</title></html>"
    return Fault(
        kind=FaultKind.ANSWER, path=path, status=404, body=body, content_type="text/html", times=10**6
    )


def test_a_broker_that_was_away_is_found_again_and_everything_looked_at(
    waldur: SimulatedWaldur, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    """With or without its session: what was sent at QoS 0 in that time is lost."""
    with RunningBridge(tcp(waldur, mosquitto, tmp_path, stomp_membership_sync_enabled=False)) as bridge:
        bridge.listens()
        for forgets in (False, True):
            gaps = bridge.counts["gaps"]
            mosquitto.kill()
            wait_until("it is noticed", lambda: not bridge.types())
            if forgets:
                mosquitto.forget()
            mosquitto.start()
            wait_until("a full pass", lambda before=gaps: bridge.counts["gaps"] > before)
            bridge.listens()


def test_a_silent_broker_is_left(
    waldur: SimulatedWaldur, mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "KEEPALIVE_S", 1)
    with RunningBridge(tcp(waldur, mosquitto, tmp_path, stomp_membership_sync_enabled=False)) as bridge:
        bridge.listens()
        mosquitto.freeze()
        wait_until("it is noticed", lambda: not bridge.types())
        mosquitto.resume()
        bridge.listens()


def test_two_bridges_do_not_push_each_other_out(
    waldur: SimulatedWaldur, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    configured = tcp(waldur, mosquitto, tmp_path, stomp_membership_sync_enabled=False)
    with RunningBridge(configured, instance="a-0") as one, RunningBridge(configured, instance="a-1") as two:
        one.listens()
        two.listens()
        travels(waldur, one)
        wait_until("both", lambda: orders(two) > 1)
        assert (one.counts["gaps"], two.counts["gaps"]) == (1, 1)


@contextmanager
def old_broker(behind: int, answer: bytes) -> Iterator[int]:
    """A port that answers MQTT 5 so and hangs up, and leads everybody else to `behind`."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=lead, args=(client,), daemon=True).start()

    def lead(client: socket.socket) -> None:
        hello = client.recv(4096)
        if hello[hello.index(b"MQTT") + 4] == 5:
            client.sendall(answer)
            client.close()
            return
        broker = socket.create_connection(("127.0.0.1", behind))
        broker.sendall(hello)
        threading.Thread(target=pump, args=(broker, client), daemon=True).start()
        pump(client, broker)

    def pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while chunk := source.recv(4096):
                target.sendall(chunk)
            target.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


@pytest.mark.parametrize("answer", [OLD_VERSION, b""], ids=["says so", "hangs up, as RabbitMQ 3.10"])
def test_a_broker_that_knows_no_mqtt_5(
    waldur: SimulatedWaldur, mosquitto: Mosquitto, tmp_path: Path, answer: bytes
) -> None:
    tcp(waldur, mosquitto, tmp_path)
    with old_broker(mosquitto.port, answer) as port:
        configured = settings(
            waldur, tmp_path, port, event_transport="tcp", stomp_membership_sync_enabled=False
        )
        with RunningBridge(configured) as bridge:
            bridge.listens()
            travels(waldur, bridge)


@pytest.mark.real_part
@pytest.mark.skipif(os.environ.get("FULL_TESTS") != "1", reason="RabbitMQ with MQTT takes 11 s to start")
@pytest.mark.parametrize("transport", ["websocket", "tcp"])
def test_on_rabbitmq_as_waldur_had_it(
    tmp_path: Path, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The login is `virtual host:user`, and a wrong token is logged without it."""
    rabbitmq = RabbitMq(tmp_path / "rabbitmq", mqtt=True)
    rabbitmq.start()
    port = rabbitmq.ports["web_mqtt" if transport == "websocket" else "mqtt"]
    words = "hangs up without a word" if transport == "websocket" else "Bad user name or password"
    try:
        with SimulatedWaldur() as waldur:
            waldur.store.brokers.append(rabbitmq_side(rabbitmq))
            configured = settings(waldur, tmp_path, port, event_transport=transport)
            with RunningBridge(configured) as bridge:
                bridge.listens()
            waldur.store.brokers.clear()
            for subscription in waldur.store.subscriptions:
                rabbitmq.ask("PUT", f"users/{subscription.uuid}", {"password": "another", "tags": ""})
            with RunningBridge(configured):
                wait_until("it is logged", lambda: words in caplog.text)
            assert waldur.token() not in caplog.text
    finally:
        rabbitmq.stop()


def test_a_flood_while_the_queue_of_tasks_is_away_is_bounded_and_ends_in_a_full_pass(
    waldur: SimulatedWaldur, mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "VOLATILE_AT_MOST", 20)
    with RunningBridge(tcp(waldur, mosquitto, tmp_path, stomp_membership_sync_enabled=False)) as bridge:
        bridge.listens()
        bridge.outbox.is_away = True
        assert waldur.publisher is not None
        for n in range(100):
            waldur.publisher.send(Message("order", waldur.seed.offering_uuid, {"order_uuid": f"{n:032x}"}))
            # The dispatcher holds the first one: it takes none out of the inbox once that is full.
            wait_until("a task is refused", lambda: bridge.outbox.refusals > 0)
        # Beyond its messages only the gap is put there, when the first one has no room.
        wait_until("a message without room", lambda: len(bridge.bridge._inbox) > 20)
        bridge.outbox.is_away = False
        # The second; a third one where the broker still sends when the queue is back.
        wait_until("a full pass", lambda: bridge.counts["gaps"] >= 2)
        assert bridge.counts["received"] < 100


def test_messages_at_qos_1_wait_for_a_bridge_that_is_away(
    waldur: SimulatedWaldur, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    configured = settings(
        waldur, tmp_path, mosquitto.port, event_transport="tcp", stomp_membership_sync_enabled=False
    )
    with RunningBridge(configured) as bridge:
        bridge.listens()
        assert bridge.types() == {ObjectType.ORDER}
    waldur.publish_to(MqttBroker("127.0.0.1", mosquitto.port, qos=1))
    for n in range(60):
        assert waldur.publisher is not None
        waldur.publisher.send(Message("order", waldur.seed.offering_uuid, {"order_uuid": f"{n:032x}"}))
    with RunningBridge(configured) as bridge:
        wait_until("all of them", lambda: bridge.counts["understood"] == 60)


LARGE = {"order_uuid": "0" * 32, "text": "x" * 20_000_000}


@pytest.mark.parametrize("transport", ["websocket", "tcp"])
def test_a_broker_gets_the_largest_size_of_a_message(
    waldur: SimulatedWaldur, mosquitto: Mosquitto, tmp_path: Path, transport: str
) -> None:
    port = mosquitto.web_port if transport == "websocket" else mosquitto.port
    waldur.publish_to(MqttBroker("127.0.0.1", mosquitto.port, qos=1))
    keys = {"event_transport": transport, "stomp_membership_sync_enabled": False}
    with RunningBridge(settings(waldur, tmp_path, port, **keys)) as bridge:
        bridge.listens()
        assert waldur.publisher is not None
        waldur.publisher.send(Message("order", waldur.seed.offering_uuid, LARGE))
        travels(waldur, bridge)
        assert bridge.counts["gaps"] == 1


def test_before_mqtt_5_the_connection_ends_and_the_broker_forgets_the_message(
    waldur: SimulatedWaldur, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    waldur.publish_to(MqttBroker("127.0.0.1", mosquitto.port, qos=1))
    with old_broker(mosquitto.port, OLD_VERSION) as port:
        keys = {"event_transport": "tcp", "stomp_membership_sync_enabled": False}
        with RunningBridge(settings(waldur, tmp_path, port, **keys)) as bridge:
            bridge.listens()
            gaps = bridge.counts["gaps"]
            assert waldur.publisher is not None
            waldur.publisher.send(Message("order", waldur.seed.offering_uuid, LARGE))
            wait_until("a full pass", lambda: bridge.counts["gaps"] > gaps)
            bridge.listens()
            travels(waldur, bridge)
            assert bridge.counts["gaps"] == gaps + 1
