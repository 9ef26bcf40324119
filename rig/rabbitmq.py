# SPDX-License-Identifier: MIT
"""A real RabbitMQ on free loopback ports, with a node name, an epmd and a cookie of its own, in a folder of its own.

Speaks STOMP over TCP and WebSocket, and HTTP for its management; with `mqtt` MQTT as well, which takes 6 s longer
to start (3.10 waits for other nodes first). Can be killed and started again: what was to last has lasted.
"""

import base64
import http.client
import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from rig import processes, reaper
from rig.certificate import make_certificate
from rig.processes import RealPartError

ADMIN, PASSWORD = "admin", "not-a-secret"
SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
CONTROL = "/usr/lib/rabbitmq/bin/rabbitmqctl"
PORTS = ("amqp", "stomp", "web_stomp", "mqtt", "web_mqtt", "management", "epmd", "distribution")

CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{amqp}
stomp.listeners.tcp.1 = 127.0.0.1:{stomp}
web_stomp.tcp.ip = 127.0.0.1
web_stomp.tcp.port = {web_stomp}
web_stomp.ws_path = /rmqws-stomp
management.tcp.ip = 127.0.0.1
management.tcp.port = {management}
default_user = {admin}
default_pass = {password}
loopback_users = none
log.console = true
log.console.level = info
log.file = false
collect_statistics = none
vm_memory_high_watermark.absolute = 400MB
disk_free_limit.absolute = 1MB
"""
MQTT_CONFIG = """\
mqtt.listeners.tcp.1 = 127.0.0.1:{mqtt}
mqtt.allow_anonymous = false
web_mqtt.tcp.ip = 127.0.0.1
web_mqtt.tcp.port = {web_mqtt}
web_mqtt.ws_path = /rmqws
"""
TLS_CONFIG = """\
web_stomp.ssl.ip = 127.0.0.1
web_stomp.ssl.port = {tls}
web_stomp.ssl.certfile = {folder}/cert.pem
web_stomp.ssl.keyfile = {folder}/key.pem
"""

# Erlang's schedulers spin before they sleep: with few cores they take the time of what they wait for.
NO_BUSY_WAITING = "+sbwt none +sbwtdcpu none +sbwtdio none"


class RabbitMq:
    """One server; `start` may be called again after `kill` or `stop` and keeps ports and data.

    With TLS it serves STOMP over WebSocket on a second port, with a certificate for `localhost` that it makes itself.
    """

    def __init__(self, folder: Path, *, mqtt: bool = False, tls: bool = False) -> None:
        self.folder = folder
        self.ports = dict(zip((*PORTS, "tls"), processes.free_ports(len(PORTS) + 1), strict=True))
        self._mqtt = mqtt
        self._tls = tls
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "rabbitmq.log"

    @property
    def certificate(self) -> Path:
        return self.folder / "cert.pem"

    def start(self, *, wait: bool = True) -> None:
        """Start and, by default, wait until it answers; raises NeverCame."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_configuration()
        self._server = processes.start(
            [SERVER], log=self.log, env={**os.environ, **self._environment()}, keep_descendants=True
        )
        if wait:
            self.wait()

    def wait(self) -> None:
        assert self._server is not None
        processes.wait_until("rabbitmq", self.answers, self._server, self.log)

    def answers(self) -> bool:
        """Return whether its last part, the listeners for clients, is up."""
        return processes.accepts(self.ports["amqp"]) and processes.accepts(self.ports["management"])

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash does that comes a while after the queues were declared.

        Killed within a few seconds of that, 3.10 has lost them now and then (3 of 40), though their names stand in the
        log of its database (Mnesia): the log is put into the tables first.
        """
        if self._server is None:
            raise RealPartError("rabbitmq is not running")
        dump = [CONTROL, "eval", "mnesia:dump_log()."]
        env = {**os.environ, **self._environment()}
        done = subprocess.run(dump, env=env, capture_output=True, text=True, check=False)
        if "dumped" not in done.stdout:
            raise RealPartError(f"rabbitmq does not write down its queues: {done.stdout} {done.stderr}")
        self._each(lambda pid: os.kill(pid, signal.SIGKILL))
        self._stop()
        # Its threads end one after the other; until then its ports accept, as those of the next start would.
        ports = (self.ports["amqp"], self.ports["management"])
        processes.wait_until("the end of rabbitmq", lambda: not any(map(processes.accepts, ports)))

    def freeze(self) -> None:
        """Suspend it (SIGSTOP): connections stay open and are silent."""
        self._each(processes.freeze)

    def resume(self) -> None:
        self._each(lambda pid: os.kill(pid, signal.SIGCONT))

    def stop(self) -> None:
        """Safe to repeat."""
        self._stop()

    def _each(self, act: Callable[[int], None]) -> None:
        assert self._server is not None
        for pid in reaper.descendants(self._server.pid):
            with suppress(ProcessLookupError):  # its helpers end with it
                act(pid)

    def _stop(self) -> None:
        processes.stop(self._server)
        self._server = None

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """Send a request to its management API; return the status and the JSON of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["management"], timeout=600)
        login = base64.b64encode(f"{ADMIN}:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        try:
            connection.request(
                method, f"/api/{path}", json.dumps(body) if body is not None else None, headers
            )
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(text) if text else None

    def delete_queue(self, vhost: str, queue: str) -> None:
        status, answer = self.ask("DELETE", f"queues/{quote(vhost, safe='')}/{quote(queue, safe='')}")
        if status != 204:
            raise RealPartError(f"rabbitmq: {queue} was not deleted: {status} {answer}")

    def _write_configuration(self) -> None:
        plugins = ["rabbitmq_stomp", "rabbitmq_web_stomp", "rabbitmq_management"]
        text = CONFIG
        if self._mqtt:
            plugins += ["rabbitmq_mqtt", "rabbitmq_web_mqtt"]
            text += MQTT_CONFIG
        if self._tls:
            if not self.certificate.exists():
                make_certificate(self.folder)
            text += TLS_CONFIG
        values = {**self.ports, "admin": ADMIN, "password": PASSWORD, "folder": self.folder}
        (self.folder / "rabbitmq.conf").write_text(text.format_map(values))
        (self.folder / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder)
        return {
            "HOME": folder,
            "RABBITMQ_NODENAME": f"waldur{self.ports['amqp']}@localhost",
            "ERL_EPMD_PORT": str(self.ports["epmd"]),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self.ports["distribution"]),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/none",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{127,0,0,1}} {NO_BUSY_WAITING}",
        }
