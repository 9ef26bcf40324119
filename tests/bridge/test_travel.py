# SPDX-License-Identifier: MIT
"""From Waldur through a real broker and the bridge to a task that does it; and what beat does meanwhile."""

from __future__ import annotations

import time

from agent.sim.mqtt_side import MqttBroker
from tests.bridge.brokers import mqtt_keys
from tests.bridge.conftest import EventSite
from tests.real.mosquitto import Mosquitto
from tests.real.processes import wait_until

SIGN, POLL = "site-bridge:", "site-queued:order_process.poll:"


def test_an_order_travels_by_an_event_and_polls_stop(site: EventSite, mosquitto: Mosquitto) -> None:
    """Beat polls every second until a bridge listens, and again when none does."""
    waldur = site.waldur
    waldur.publish_to(MqttBroker("127.0.0.1", mosquitto.port))
    site.configure(**mqtt_keys(mosquitto))
    worker, bridge, client = site.worker(wait=False), site.bridge(), site.redis_client()
    sign, poll = f"{SIGN}{waldur.seed.offering_uuid}", f"{POLL}{waldur.seed.offering_uuid}"
    wait_until("a sign of life", lambda: bool(client.exists(sign)), 10)
    site.celery("beat", wait=False, WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES="0.02")
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
    wait_until("order done", lambda: waldur.order(order).state.value == "done", 30)
    worker.stop()  # what beat queues now stays where it is
    client.delete(poll)
    deadline_s = time.monotonic() + 2.5
    while time.monotonic() < deadline_s:
        assert not client.exists(poll)
        time.sleep(0.05)
    bridge.stop()
    client.delete(sign)  # or a minute later, by itself
    wait_until("the next poll", lambda: bool(client.exists(poll)), 10)
    assert "the bridge ends: " in bridge.output()
