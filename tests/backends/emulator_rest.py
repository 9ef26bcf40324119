# SPDX-License-Identifier: MIT
"""slurm-emulator's slurmrestd, or its control API, on a Unix socket or a port of this machine.

`python emulator_rest.py APP PLACE` serves; `PLACE` is a path or a port. The environment names its database.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rig.child_process import child_process
from rig.processes import accepts, free_ports, wait_until

APPS = {
    "slurmrestd": "emulator.api.slurmrestd.app",
    "control": "emulator.api.emulator_server",
}


def serve(app: str, place: str) -> None:
    import uvicorn

    where = {"port": int(place)} if place.isdecimal() else {"uds": place}
    # A request that comes while an idle connection is closed has no answer.
    uvicorn.run(import_module(APPS[app]).app, log_level="warning", timeout_keep_alive=3600, **where)  # type: ignore[arg-type]


def state_of(folder: Path, environment: pytest.MonkeyPatch) -> None:
    """Give the emulator a database of its own in this folder."""
    environment.setenv("SLURM_EMULATOR_STATE_FILE", str(folder / "state.json"))
    environment.setenv("SLURM_EMULATOR_TIME_FILE", str(folder / "time.json"))
    environment.setenv("SLURM_EMULATOR_TIME_FOLLOW_WALL", "1")
    environment.setenv("SLURM_EMULATOR_CLUSTER_NAME", "test")
    environment.setenv("SLURM_EMULATOR_SLURM_VERSION", "25.05")


@contextmanager
def serving(app: str, place: str) -> Iterator[None]:
    listens = (lambda: accepts(int(place))) if place.isdecimal() else (lambda: _accepts_at(place))
    with child_process([sys.executable, __file__, app, place]):
        wait_until(f"the emulator's {app} is ready", listens)
        yield


def _accepts_at(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


@contextmanager
def slurmrestd(folder: Path, environment: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Serve, and yield `rest_api` with a token that is checked."""
    from emulator.api.slurmrestd.auth import encode_jwt_hs256  # type: ignore[import-untyped]

    state_of(folder, environment)
    environment.setenv("SLURM_EMULATOR_JWT_KEY", "key")
    token = folder / "token"
    token.write_text(f"SLURM_JWT={encode_jwt_hs256('root', key='key')}\n")
    port = str(free_ports(1)[0])
    with serving("slurmrestd", port):
        yield {"url": f"http://127.0.0.1:{port}", "username": "root", "token_file": str(token)}


if __name__ == "__main__":
    serve(*sys.argv[1:])
