# SPDX-License-Identifier: MIT
"""Events in the demo: the simulated Waldur publishes to mosquitto, or to a small broker of its own, and the bridge
brings what it tells to the queue.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simulator.demo import parts
from simulator.events.mqtt import MqttBroker
from simulator.events.small_mqtt import SmallMqttBroker
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OrderState

SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin"
BRIDGE = ("-c", "from agent.cli.main import main; main()", "bridge")
LATEST_S = 15.0
PAUSE_S = 0.01


@contextmanager
def broker(children: parts.Children, folder: Path) -> Iterator[tuple[str, int]]:
    """The program that carries the events, and its port on loopback."""
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}")
    if program is None:
        small = SmallMqttBroker().start()
        try:
            yield "a small MQTT broker", small.port
        finally:
            small.stop()
        return
    port, config = parts.free_port(), folder / "mosquitto.conf"
    user = "user root\n" if os.geteuid() == 0 else ""
    config.write_text(f"{user}allow_anonymous true\nlistener {port} 127.0.0.1\n", encoding="utf-8")
    children.start("mosquitto", [program, "-c", str(config)], os.environ)
    children.wait("mosquitto", lambda: parts.listens(port))
    yield "mosquitto", port


def keys(port: int) -> dict[str, Any]:
    """What an offering needs in its configuration."""
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
    children.start("bridge", [sys.executable, *BRIDGE], environment)


def wait_for_bridge(children: parts.Children) -> None:
    children.wait("bridge", lambda: b"a full pass is queued" in children.log("bridge").read_bytes())


def travel_s(waldur: SimulatedWaldur, place: Callable[[], str]) -> float | None:
    """How long one more order takes from Waldur to the cluster and back; None when it does not arrive."""
    started_s = time.monotonic()
    order = place()
    while time.monotonic() - started_s < LATEST_S:
        if waldur.order(order).state is OrderState.DONE:
            return time.monotonic() - started_s
        time.sleep(PAUSE_S)
    return None
