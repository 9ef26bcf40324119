# SPDX-License-Identifier: MIT
"""Flower: loopback only, a password is needed, no task is started; a browser sees workers and tasks."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rig.celery_process import CeleryProcess, environment
from rig.emulator import emulated_cluster
from rig.parts import require
from rig.processes import accepts, free_ports, wait_until
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli.usage.browser import Browser


@pytest.fixture
def env(redis_server: RedisServer, tmp_path: Path) -> Iterator[dict[str, str]]:
    with SimulatedWaldur() as waldur:
        config = configuration(waldur, tmp_path, backend={"slurm_bin_path": "/nowhere"})
        variables = environment(config, redis_server.url)
        yield {name: value for name, value in variables.items() if not name.startswith("FLOWER_")}


def status(url: str, login: str = "", body: bytes | None = None) -> int:
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=600) as answer:
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
        # As another host would ask: at an address of this one that is not 127.0.0.1.
        others = [address for address in own_addresses() if address != "127.0.0.1"]
        for address in ["127.0.0.2", *others]:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((address, port), timeout=600).close()
    finally:
        flower.stop()


def own_addresses() -> set[str]:
    """The IPv4 addresses of this host, as the kernel lists them."""
    lines = Path("/proc/net/fib_trie").read_text().splitlines()
    return {
        line.split()[-1] for line, below in pairwise(lines) if "|--" in line and "/32 host LOCAL" in below
    }


@pytest.mark.real_part
def test_a_browser_sees_workers_and_tasks_with_the_offering_and_no_document(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """A task that a worker has run, and one with a document, which is not to be visible."""
    require("chromium")
    redis_server.flush()
    commands, emulator = emulated_cluster(tmp_path)
    (port,) = free_ports(1)
    with SimulatedWaldur() as waldur:
        backend = {"slurm_bin_path": str(commands), "cluster_name": "demo"}
        offering = waldur.seed.offering_uuid
        env = environment(configuration(waldur, tmp_path, backend=backend), redis_server.url, emulator)
        login = {"FLOWER_BASIC_AUTH": "a:b", "FLOWER_PORT": str(port)}
        parts = [
            CeleryProcess("flower", tmp_path / "flower.log", {**env, **login}).start(wait=False),
            CeleryProcess("worker", tmp_path / "worker.log", env, "-c", "1", "-n", "head1"),
        ]
        browser = Browser(tmp_path / "profile")
        try:
            wait_until("flower", lambda: accepts(port))
            parts[1].start()
            browser.send_header("Authorization", f"Basic {base64.b64encode(b'a:b').decode()}")
            root = f"http://127.0.0.1:{port}"

            def shows(page: str, *texts: str) -> None:
                def is_there() -> bool:
                    browser.open(f"{root}/{page}")
                    for _ in range(20):
                        seen = browser.evaluate("document.body.innerText")
                        if all(text in seen for text in texts):
                            return True
                        time.sleep(0.05)
                    return False

                wait_until(f"{texts} in /{page}", is_there)

            shows("workers", "celery@head1", "Online workers")
            script = (
                "from tasks import events, orders; "
                f"print(orders.poll.apply_async(('{offering}',), queue='site.demo')); limits = ('{offering}', "
                "{'hush': 'hush-hush'}); print(events.set_periodic_limits.apply_async(limits, queue='site.demo'))"
            )
            queue = [python(), "-c", script]
            done = subprocess.run(queue, env=env, check=True, timeout=600, stdout=subprocess.PIPE, text=True)
            poll, limits = done.stdout.split()
            name = "Test SLURM"
            shows("tasks", "order_process.poll", "SUCCESS", "events.periodic_limits", "FAILURE", name)
            assert offering not in browser.evaluate("document.body.innerText")
            shows(f"task/{poll}", "order_process.poll", name)
            shows(f"task/{limits}", "events.periodic_limits", name)
            assert "hush-hush" not in browser.evaluate("document.documentElement.outerHTML")
            assert browser.complaints == []
            assert {urlsplit(url).hostname for url in browser.requests} == {"127.0.0.1"}
        finally:
            browser.close()
            for part in parts:
                part.end()
                print(part.output())
