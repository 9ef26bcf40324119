# SPDX-License-Identifier: MIT
"""`systemctl stop` ends the bridge, whoever is silent."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.bridge import service
from agent.bridge.service import Bridge, BridgeParts
from agent.host.waiting import GIVE_UP_S
from rig.processes import wait_until
from tests.agent.bridge.conftest import EventSite
from tests.agent.bridge.inprocess import Written
from tests.agent.bridge.test_registration import KEYS, PROGRAM

pytestmark = pytest.mark.events

# The unit's TimeoutStopSec. An orderly end takes a tick; one that waits for the answer that never comes takes 40 s.
ENDS_WITHIN_S = 30.0


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(600)
        yield listener


def test_a_waldur_that_is_silent_does_not_hold_up_the_end(site: EventSite, silent: socket.socket) -> None:
    config = site.configure(**KEYS)
    url = f"http://127.0.0.1:{silent.getsockname()[1]}/api/"
    config.write_text(config.read_text().replace(site.waldur.url, url))
    bridge = site.bridge(wait=False)
    asked, _ = silent.accept()
    with asked:
        bridge.process.send_signal(signal.SIGTERM)
        assert bridge.process.wait(ENDS_WITHIN_S) == 0
    assert "the bridge ends" in bridge.output()


def test_a_signal_that_strikes_while_the_bridge_holds_its_locks(tmp_path: Path) -> None:
    """A handler runs between two steps of the main thread: it must not wait for what that thread holds."""
    bridge = Bridge(BridgeParts((), {}, PROGRAM, Written(), tmp_path, "test"), tick_s=0.05)
    with bridge._lock, bridge._wake._cond:
        handler = threading.Thread(target=bridge.stop, daemon=True)
        handler.start()
        handler.join(GIVE_UP_S)
        assert not handler.is_alive()
    running = threading.Thread(target=bridge.run, daemon=True)
    running.start()
    wait_until("it ends", lambda: not running.is_alive())


def test_connections_end_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that do not end share one deadline."""
    monkeypatch.setattr(service, "CLOSE_S", 0.2)
    bridge = Bridge(BridgeParts((), {}, PROGRAM, Written(), tmp_path, "test"))
    closed: list[str] = []
    waits: list[float] = []

    class Deaf:
        def stop_receiving(self) -> None:
            closed.append("stops")

        def close(self) -> None:
            closed.append("closed")

        def join(self, timeout_s: float) -> None:
            waits.append(timeout_s)

    bridge._connections = {n: Deaf() for n in range(50)}  # type: ignore[misc,assignment]
    bridge.dispatcher.start()
    bridge._shut_down()
    assert closed == ["stops"] * 50 + ["closed"] * 50
    assert all(wait <= 0.2 for wait in waits)
    assert waits == sorted(waits, reverse=True)
