# SPDX-License-Identifier: MIT
"""From Waldur through a real broker and the bridge to a task that does it; and what beat does in that time."""

from __future__ import annotations

import time

import pytest
import redis

from rig.bridge_brokers import mqtt_keys
from rig.mosquitto import Mosquitto
from rig.processes import wait_until
from simulator.events.mqtt import MqttBroker
from tests.agent.bridge.conftest import EventSite

pytestmark = pytest.mark.events

HEARTBEAT, POLL = "site-heartbeat:", "site-polled:order_process.poll:"


def stays_away(client: redis.Redis, record: str, watched_s: float) -> bool:
    """Remove a record, and return whether nobody writes it again in that time: two periods of beat here."""
    client.delete(record)
    deadline_s = time.monotonic() + watched_s
    while time.monotonic() < deadline_s:
        if client.exists(record):
            return False
        time.sleep(0.05)
    return True


def test_an_order_travels_by_an_event_and_polls_stop(site: EventSite, mosquitto: Mosquitto) -> None:
    """Beat polls every second until a bridge listens, and again when none does."""
    waldur = site.waldur
    waldur.publish_to(MqttBroker("127.0.0.1", mosquitto.port))
    site.configure(**mqtt_keys(mosquitto))
    heartbeat, poll = f"{HEARTBEAT}{waldur.seed.offering_uuid}", f"{POLL}{waldur.seed.offering_uuid}"
    worker, client = site.worker(wait=False), site.redis_client()
    site.celery("beat", wait=False, WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES="0.02")
    wait_until("the first poll", lambda: bool(waldur.request_counts().get("GET marketplace-orders/")))
    bridge = site.bridge()
    wait_until("a heartbeat", lambda: bool(client.exists(heartbeat)))
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
    wait_until("order done", lambda: waldur.order(order).state.value == "done")
    worker.kill()  # what beat queues now stays where it is
    # One poll may have been on its way when the heartbeat came.
    wait_until("polls to stop", lambda: stays_away(client, poll, 2.5))
    bridge.stop()
    client.delete(heartbeat)  # or a minute later, by itself
    wait_until("the next poll", lambda: bool(client.exists(poll)))
    assert "the bridge ends: " in bridge.output()
