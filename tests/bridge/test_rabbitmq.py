# SPDX-License-Identifier: MIT
"""From Waldur through a real RabbitMQ and the bridge to a task that does it."""

from __future__ import annotations

from tests.bridge.conftest import EventSite, rabbitmq_side, stomp_keys
from tests.real.processes import wait_until
from tests.real.rabbitmq import RabbitMq


def test_an_order_travels_by_an_event(site: EventSite, rabbitmq: RabbitMq) -> None:
    """No beat runs here: nothing but the event brings the order to the worker."""
    waldur = site.waldur
    waldur.publish_to(rabbitmq_side(rabbitmq))
    site.configure(**stomp_keys(rabbitmq))
    site.worker()
    bridge = site.bridge()
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
    wait_until("order done", lambda: waldur.order(order).state.value == "done", 30)
    bridge.stop()
    assert "the bridge ends: " in bridge.output()
