# SPDX-License-Identifier: MIT
"""Flower, started plainly: loopback only, and nobody without a password; it checks no cluster."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.celery_process import CeleryProcess, environment
from rig.processes import accepts, free_ports, wait_until
from rig.redis_server import RedisServer
from rig.site import configuration
from simulator.server.waldur import SimulatedWaldur


@pytest.fixture
def env(redis_server: RedisServer, tmp_path: Path) -> Iterator[dict[str, str]]:
    with SimulatedWaldur() as waldur:
        config = configuration(waldur, tmp_path, backend={"slurm_bin_path": "/nowhere"})
        variables = environment(config, redis_server.url)
        yield {name: value for name, value in variables.items() if not name.startswith("FLOWER_")}


def status(url: str, login: str = "", body: bytes | None = None) -> int:
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_flower_refuses_to_start_without_authentication(env: dict[str, str], tmp_path: Path) -> None:
    """Also where its settings file is not in the working directory, as here."""
    flower = CeleryProcess("flower", tmp_path / "flower.log", env).start(wait=False)
    wait_until("its end", lambda: flower.process.poll() is not None)
    assert flower.process.poll() != 0
    assert "Flower does not start without authentication" in flower.output()


def test_flower_with_a_password_listens_on_loopback_only(env: dict[str, str], tmp_path: Path) -> None:
    (port,) = free_ports(1)
    flower = CeleryProcess(
        "flower", tmp_path / "flower.log", {**env, "FLOWER_BASIC_AUTH": "a:b", "FLOWER_PORT": str(port)}
    ).start(wait=False)
    try:
        wait_until("flower", lambda: accepts(port))
        assert status(f"http://127.0.0.1:{port}/") == 401
        assert status(f"http://127.0.0.1:{port}/", "a:b") == 200
        assert status(f"http://127.0.0.1:{port}/api/task/types", "a:b") == 200
        for way in ("apply", "async-apply", "send-task"):
            body = json.dumps({"args": ["a" * 32]}).encode()
            assert status(f"http://127.0.0.1:{port}/api/task/{way}/order_process.poll", "a:b", body) == 404
        listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        addresses = {
            row[1].split(":")[0]
            for row in listening
            if int(row[1].split(":")[1], 16) == port and row[3] == "0A"
        }
        assert addresses == {"0100007F"}
    finally:
        flower.stop()
