# SPDX-License-Identifier: MIT
"""A real Redis (or Valkey) on a free loopback port, in a folder of its own: the machine's, else the embedded one, or
one of `parts.REDIS_PROGRAMS`, for all tests by the variable REDIS_SERVER (`REDIS_SERVER=valkey-8`).

Can be killed, restarted and frozen in the middle of a test; with `appendonly` its data survive that.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from agent.host import broker_program
from rig import processes, slurm_root
from rig.parts import REDIS_PROGRAMS, REQUIRED, find_program, require
from rig.processes import RealPartError

OWN = "redis"


class RedisServer:
    """One server; `start` may be called again after `kill` or `stop` and keeps the port."""

    def __init__(
        self,
        folder: Path,
        *,
        appendonly: bool = False,
        tls_certificate: Path | None = None,
        password: str = "",
        options: Sequence[str] = (),
        kind: str = OWN,
    ) -> None:
        """`tls_certificate`: serve TLS in addition to plain connections, with this file and the `key.pem` next to it.
        `options`: more words of its command line. `kind`: that of this machine, or one of
        `parts.REDIS_PROGRAMS`.
        """
        self.folder = folder
        self.appendonly = appendonly
        self.tls_certificate = tls_certificate
        self.password = password
        self.options = options
        self.kind = kind
        (self.tls_port,) = processes.free_ports(1)
        (self.port,) = processes.free_ports(1)
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Broker URL of database 0."""
        login = f":{self.password}@" if self.password else ""
        return f"redis://{login}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._server is None or self._server.poll() is not None:
            raise RealPartError("redis is not running")
        return self._server.pid

    @property
    def log(self) -> Path:
        """Log file."""
        return self.folder / "redis.log"

    def start(self) -> None:
        """Start and wait until it answers; raises NeverCame. Without Redis the test runs on the embedded one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._server = processes.start(
            [
                *(*command(self.kind), "--bind", "127.0.0.1"),
                *("--port", str(self.port), "--dir", str(self.folder), "--save", "", "--daemonize", "no"),
                *(self._tls() if self.tls_certificate else ()),
                *("--appendonly", "yes" if self.appendonly else "no", "--appendfsync", "always"),
                *(("--requirepass", self.password) if self.password else ()),
                *self.options,
            ],
            log=self.log,
            env=os.environ,
        )
        processes.wait_until("redis", self.answers, self._server, self.log)

    def _tls(self) -> tuple[str, ...]:
        certificate = str(self.tls_certificate)
        key = certificate.replace("cert.pem", "key.pem")
        return (
            *("--tls-port", str(self.tls_port), "--tls-auth-clients", "no"),
            *("--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", certificate),
        )

    def answers(self) -> bool:
        """Return whether it answers PONG: it has loaded its data and is not frozen."""
        try:
            return self.command("PING", timeout_s=2) == b"+PONG\r\n"
        except OSError:
            return False

    def command(self, line: str, *, timeout_s: float = 60) -> bytes:
        """Return the first bytes of the answer to one inline command; raises OSError when nothing listens."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as connection:
            if self.password:
                connection.sendall(f"AUTH {self.password}\r\n".encode())
                connection.recv(64)
            connection.sendall(line.encode() + b"\r\n")
            return connection.recv(4096)

    def flush(self) -> None:
        """Delete every key of every database."""
        if self.command("FLUSHALL") != b"+OK\r\n":
            raise RealPartError("redis: FLUSHALL was refused")

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would."""
        os.kill(self.pid, signal.SIGKILL)
        self._stop()

    def stop(self) -> None:
        """End it in an orderly way. Safe to repeat."""
        self.resume()
        self._stop()

    def _stop(self) -> None:
        processes.stop(self._server)
        self._server = None

    def restart(self) -> None:
        """Stop and start on the same port."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Suspend it (SIGSTOP): connections are accepted and never answered."""
        processes.freeze(self.pid)

    def resume(self) -> None:
        """Let a frozen server go on; does nothing when it is not running."""
        if self._server is not None and self._server.poll() is None:
            os.kill(self._server.pid, signal.SIGCONT)


def command(kind: str = OWN) -> list[str]:
    """Return what starts a server of this kind when its options follow; the machine's own, or the demo's, unless
    REDIS_SERVER names another. With REQUIRE_REAL_SERVICES=1 the test fails where the machine has none.
    """
    kind = os.environ.get("REDIS_SERVER", OWN) if kind == OWN else kind
    if kind in REDIS_PROGRAMS or REQUIRED:
        require(kind)
    if kind in REDIS_PROGRAMS:
        root, program = REDIS_PROGRAMS[kind].parents[2], REDIS_PROGRAMS[kind].name
        return slurm_root.in_root(root, program)
    return [find_program("redis-server|valkey-server") or broker_program.find()]
