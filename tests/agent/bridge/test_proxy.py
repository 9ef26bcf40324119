# SPDX-License-Identifier: MIT
"""`global_proxy` on the way to real brokers, whose names only the proxy knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.bridge import proxy
from agent.bridge.connection import ConnectionFailed
from agent.bridge.model import Address, Wire
from agent.config.model import Settings
from agent.config.secret import Secret
from agent.core.events import JobKind
from rig.bridge_brokers import mqtt_keys, rabbitmq_side, stomp_keys
from rig.mosquitto import Mosquitto
from rig.processes import wait_until
from rig.proxy import Proxy
from rig.rabbitmq import RabbitMq
from rig.site import configuration, settings_of
from simulator.events.mqtt import MqttBroker
from simulator.server.waldur import SimulatedWaldur
from tests.agent.bridge.inprocess import RunningBridge, quick
from tests.agent.bridge.test_stomp import forget

pytestmark = pytest.mark.events

BROKER = "broker.example.invalid"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)


@pytest.fixture
def way() -> Iterator[Proxy]:
    with Proxy() as started:
        yield started


def proxied(settings: Settings, url: str) -> Settings:
    offerings = [replace(o, access=replace(o.access, proxy=url)) for o in settings.offerings]
    return replace(settings, offerings=tuple(offerings))


def travels(waldur: SimulatedWaldur, settings: Settings) -> None:
    with RunningBridge(settings) as bridge:
        bridge.listens()
        waldur.place_create_order(waldur.seed.project_uuids[0], "one", slug="one")
        wait_until("the order", lambda: any(job.kind is JobKind.ORDERS for job in bridge.outbox.jobs))


@pytest.mark.parametrize("transport", ["websocket", "tcp"])
def test_mqtt(mosquitto: Mosquitto, way: Proxy, tmp_path: Path, transport: str) -> None:
    port = mosquitto.web_port if transport == "websocket" else mosquitto.port
    keys = mqtt_keys(mosquitto, stomp_ws_host=BROKER, stomp_ws_port=port, event_transport=transport)
    with SimulatedWaldur() as waldur:
        waldur.publish_to(MqttBroker("127.0.0.1", mosquitto.port))
        travels(waldur, proxied(settings_of(configuration(waldur, tmp_path, **keys)), way.url("socks5h")))
    assert (BROKER, port) in way.asked


@pytest.mark.parametrize("transport", ["websocket", "tcp"])
def test_stomp(rabbitmq: RabbitMq, way: Proxy, tmp_path: Path, transport: str) -> None:
    port = rabbitmq.ports["web_stomp" if transport == "websocket" else "stomp"]
    keys = stomp_keys(rabbitmq, stomp_ws_host=BROKER, stomp_ws_port=port, event_transport=transport)
    with SimulatedWaldur() as waldur:
        waldur.publish_to(rabbitmq_side(rabbitmq))
        travels(waldur, proxied(settings_of(configuration(waldur, tmp_path, **keys)), way.url("socks5")))
    forget(rabbitmq)
    assert (BROKER, port) in way.asked


def address(url: str, port: int) -> Address:
    return Address(Wire.STOMP, BROKER, port, "/ws", tls=False, proxy=Secret(url))


def test_an_http_proxy_connects_with_its_password(way: Proxy) -> None:
    with Proxy() as behind:
        to = address(way.url("http"), behind.port)
        found = proxy.proxy_of(to)
        assert found is not None
        proxy.connected(to, found).close()
        wrong = proxy.proxy_of(address(way.url("http", "another"), behind.port))
        assert wrong is not None
        with pytest.raises(OSError, match="407"):
            proxy.connected(to, wrong)
    assert way.asked == [(BROKER, behind.port)]


@pytest.mark.parametrize("url", ["", "https://proxy.example.com:3128"])
def test_a_broker_is_reached_directly(url: str) -> None:
    assert proxy.proxy_of(address(url, 1)) is None


def test_the_usual_ports_and_what_may_be_printed() -> None:
    found = proxy.proxy_of(address("socks5://agent:pr0xy%2Fpass@p.example.com", 1))
    assert found is not None and (found.port, found.password) == (1080, "pr0xy/pass")
    assert "pr0xy" not in f"{found!r} {address('http://agent:pr0xy-pass@p', 1)!r}"
    with pytest.raises(ConnectionFailed, match="global_proxy is not a URL"):
        proxy.proxy_of(address("http://agent:pr0xy-pass@p:port", 1))
