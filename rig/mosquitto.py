# SPDX-License-Identifier: MIT
"""A real mosquitto on free loopback ports, in a folder of its own: MQTT over TCP and over WebSocket.

It lets everybody in: its password file cannot hold a user name with a colon, which Waldur's logins have. Sessions
and the messages that wait in them survive a kill: they are written down with every change.
"""

import os
import signal
import subprocess
from pathlib import Path

from rig import processes
from rig.processes import RealPartError

CONFIG = """\
user root
allow_anonymous true
persistence true
persistence_location {folder}/data/
autosave_on_changes true
autosave_interval 1
max_queued_messages 0
listener {port} 127.0.0.1
protocol mqtt
listener {web_port} 127.0.0.1
protocol websockets
"""


class Mosquitto:
    """One server; `start` may be called again after `kill` or `stop` and keeps ports and data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.web_port = processes.free_ports(2)
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "mosquitto.log"

    @property
    def pid(self) -> int:
        if self._server is None or self._server.poll() is not None:
            raise RealPartError("mosquitto is not running")
        return self._server.pid

    def start(self) -> None:
        """Start and wait until it answers; raises NeverCame."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        config = self.folder / "mosquitto.conf"
        config.write_text(CONFIG.format(folder=self.folder, port=self.port, web_port=self.web_port))
        self._server = processes.start(
            [processes.program("mosquitto"), "-c", str(config)], log=self.log, env=os.environ
        )
        ports = (self.port, self.web_port)  # the second one is there a moment later
        processes.wait_until("mosquitto", lambda: all(map(processes.accepts, ports)), self._server, self.log)

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would."""
        os.kill(self.pid, signal.SIGKILL)
        self._stop()

    def stop(self) -> None:
        """Safe to repeat."""
        self.resume()
        self._stop()

    def freeze(self) -> None:
        """Suspend it (SIGSTOP): connections stay open and are silent."""
        processes.freeze(self.pid)

    def resume(self) -> None:
        if self._server is not None and self._server.poll() is None:
            os.kill(self._server.pid, signal.SIGCONT)

    def forget(self) -> None:
        """Lose all sessions and what waits in them, as with a disk that is gone. Only while it is stopped."""
        for file in (self.folder / "data").iterdir():
            file.unlink()

    def _stop(self) -> None:
        processes.stop(self._server)
        self._server = None
