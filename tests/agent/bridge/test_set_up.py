# SPDX-License-Identifier: MIT
"""How a bridge comes up: without Waldur, on servers of all ages, and what it asks for again later."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.events import ObjectType
from rig.bridge_brokers import mqtt_keys
from rig.celery_process import REPOSITORY, environment
from rig.mosquitto import Mosquitto
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.site import configuration, settings_of
from simulator.events.mqtt import MqttBroker
from simulator.server.waldur import SimulatedWaldur
from simulator.world.ages import Age
from tests.agent.bridge.inprocess import RunningBridge, quick

pytestmark = pytest.mark.events


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)


def test_without_waldur_it_waits_and_says_so_once(
    mosquitto: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    waldur = SimulatedWaldur()
    waldur.start()
    configured = settings_of(configuration(waldur, tmp_path, **mqtt_keys(mosquitto)))
    waldur.stop()
    with RunningBridge(configured) as bridge:
        wait_until("it is logged", lambda: "no events yet: GET" in caplog.text)
        waldur.start()
        try:
            waldur.publish_to(MqttBroker("127.0.0.1", mosquitto.port))
            bridge.listens()
        finally:
            waldur.stop()
    assert caplog.text.count("no events yet") == 1


def test_what_a_server_refuses_is_asked_for_again(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is updated while it runs; and the service is kept alive all the time."""
    monkeypatch.setattr("agent.bridge.service.REFUSED_AGAIN_S", 1.0)
    monkeypatch.setattr("agent.bridge.service.RENEW_SERVICE_S", 0.2)
    with SimulatedWaldur("8.0") as waldur:
        waldur.publish_to(MqttBroker("127.0.0.1", mosquitto.port))
        configured = settings_of(configuration(waldur, tmp_path, **mqtt_keys(mosquitto)))
        with RunningBridge(configured) as bridge:
            bridge.listens()
            assert ObjectType.KEY_ROTATION not in bridge.types()
            renewal = "POST marketplace-site-agent-services/{uuid}/register_processor/"
            wait_until("renewals of the service", lambda: waldur.request_counts()[renewal] >= 3)
            waldur.store.age = Age.V8_1
            wait_until("the other type", lambda: ObjectType.KEY_ROTATION in bridge.types())
        counts = waldur.request_counts()
        assert counts["POST marketplace-site-agent-identities/"] == 1
        assert "PUT marketplace-site-agent-identities/{uuid}/" not in counts


def test_a_server_without_events_is_polled(
    mosquitto: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with SimulatedWaldur("2024") as waldur:
        configured = settings_of(configuration(waldur, tmp_path, **mqtt_keys(mosquitto)))
        with RunningBridge(configured) as bridge:
            wait_until("it is logged", lambda: "this server sends no events" in caplog.text)
        assert bridge.outbox.heartbeats == {}


def test_without_a_token_there_is_no_login(
    mosquitto: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SimulatedWaldur() as waldur:
        configured = settings_of(configuration(waldur, tmp_path, **mqtt_keys(mosquitto)))
        (offering,) = configured.offerings
        by_oidc = replace(offering, access=replace(offering.access, token=None, oidc=None))
        bridge = RunningBridge(configured)
        bridge.bridge._states[offering.uuid].registration.offering = by_oidc
        with bridge:
            wait_until("it is logged", lambda: "this offering logs in by OIDC" in caplog.text)


def test_a_site_without_events_needs_no_bridge(redis_server: RedisServer, tmp_path: Path) -> None:
    with SimulatedWaldur() as waldur:
        config = configuration(waldur, tmp_path)
    command = [sys.executable, str(REPOSITORY / "manage.py"), "bridge", "-c", str(config)]
    env = environment(config, redis_server.url)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "no offering here has stomp_enabled or mqtt_enabled" in done.stderr
