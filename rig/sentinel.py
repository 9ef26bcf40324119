# SPDX-License-Identifier: MIT
"""Two real Redis servers, a master and its replica, and sentinels that watch them (`redis-server --sentinel`)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rig import processes
from rig.redis_server import OWN, RedisServer, command

NAME = "site"
CONFIG = """\
port {port}
bind 127.0.0.1
dir {folder}
requirepass {sentinel_password}
sentinel monitor {name} 127.0.0.1 {master} {quorum}
sentinel down-after-milliseconds {name} 500
sentinel failover-timeout {name} 3000
sentinel auth-pass {name} {password}
"""
PASSWORD, SENTINEL_PASSWORD = "not-a-secret", "not-one-either"
COUNT, QUORUM = 3, 2


class Sentinel:
    """Sentinels with their servers. `url` names all sentinels, the first of which is away."""

    def __init__(self, folder: Path, kind: str = OWN) -> None:
        self.kind = kind
        login = ("--masterauth", PASSWORD)
        master = RedisServer(folder / "one", appendonly=True, password=PASSWORD, options=login, kind=kind)
        follows = (*login, "--replicaof", f"127.0.0.1 {master.port}")
        # The first one begins as the master.
        self.servers = (
            master,
            RedisServer(folder / "two", appendonly=True, password=PASSWORD, options=follows, kind=kind),
        )
        self.ports = processes.free_ports(COUNT + 1)
        self.folder = folder
        self._watching: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        first, *others = (f"127.0.0.1:{port}" for port in self.ports)
        options = f"master_name={NAME}&sentinel_password={SENTINEL_PASSWORD}"
        return ";".join(
            (f"sentinel://:{PASSWORD}@{first}/0?{options}", *(f"sentinel://{place}" for place in others))
        )

    def start(self) -> None:
        for server in self.servers:
            server.start()
        for number, port in enumerate(self.ports[1:]):
            file = self.folder / f"sentinel-{number}.conf"
            values = {"name": NAME, "password": PASSWORD, "sentinel_password": SENTINEL_PASSWORD}
            place = {"port": port, "folder": self.folder, "master": self.servers[0].port, "quorum": QUORUM}
            file.write_text(CONFIG.format(**values, **place))
            log = file.with_suffix(".log")
            server = processes.start([*command(self.kind), str(file), "--sentinel"], log=log, env=os.environ)
            self._watching.append(server)
            processes.wait_until("sentinel", lambda: processes.accepts(port), server, log)  # noqa: B023
        known = f"+slave slave 127.0.0.1:{self.servers[1].port}"
        processes.wait_until(
            "the sentinels know the replica and each other",
            lambda: all(known in text and text.count("+sentinel ") == COUNT - 1 for text in self._logs()),
        )

    def has_switched(self) -> bool:
        """Return whether every sentinel names another master than at first."""
        return all("+switch-master" in text for text in self._logs())

    def _logs(self) -> list[str]:
        return [processes.tail(self.folder / f"sentinel-{number}.log", 10**6) for number in range(COUNT)]

    def stop(self) -> None:
        for server in self._watching:
            processes.stop(server)
        for redis in self.servers:
            redis.stop()
