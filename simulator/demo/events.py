# SPDX-License-Identifier: MIT
"""Events in the demo: the simulated Waldur publishes to mosquitto, and the bridge queues a task for each event.

Without mosquitto there are no events; orders then arrive by polling.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator.demo import parts
from simulator.events.mqtt import MqttBroker
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OrderState

SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin"
PAUSE_S = 0.01


def start_mosquitto(children: parts.Children, folder: Path) -> int | None:
    """Start mosquitto on loopback and return its port; None where it is not installed."""
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}")
    if program is None:
        return None
    port, config = parts.free_port(), folder / "mosquitto.conf"
    user = "user root\n" if os.geteuid() == 0 else ""
    config.write_text(f"{user}allow_anonymous true\nlistener {port} 127.0.0.1\n", encoding="utf-8")
    children.start("mosquitto", [program, "-c", str(config)], os.environ)
    children.wait("mosquitto", lambda: parts.listens(port))
    return port


def offering_keys(port: int) -> dict[str, Any]:
    """Return the keys of an offering whose events come from mosquitto on this port."""
    return {
        "mqtt_enabled": True,
        "event_transport": "tcp",
        "stomp_ws_host": "127.0.0.1",
        "stomp_ws_port": port,
        "websocket_use_tls": False,
    }


def start_bridge(
    children: parts.Children, waldur: SimulatedWaldur, port: int, environment: dict[str, str]
) -> None:
    waldur.publish_to(MqttBroker("127.0.0.1", port))
    children.start("bridge", [sys.executable, *parts.COMMAND, "bridge"], environment)


def wait_for_bridge(children: parts.Children) -> None:
    children.wait("bridge", lambda: b"a full pass is queued" in children.log("bridge").read_bytes())


def latency_s(waldur: SimulatedWaldur, place: Callable[[], str], children: parts.Children) -> float:
    """Place an order and return the seconds until it is done. Raises NeverCame."""
    started_s = time.monotonic()
    order = place()
    children.wait_for_work(
        "the order that arrives by an event",
        lambda: waldur.order(order).state is OrderState.DONE,
        PAUSE_S,
    )
    return time.monotonic() - started_s
