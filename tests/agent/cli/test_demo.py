# SPDX-License-Identifier: MIT
"""`demo`: ends with accounts in place, leaves nothing behind however it ends, and listens to this machine only."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
import requests

from agent.core.periods import Month, last_months
from rig.processes import wait_until
from simulator.demo.day import MONTHS
from tests.agent.cli.demo_process import PARTS, DemoProcess, demo
from tests.agent.cli.operator_site import PROGRAMS
from tests.scale import FULL

LOOPBACK = {"0100007F", "00000000000000000000000001000000"}
# There is no redis-server here, so the embedded broker is taken.
NO_REDIS = str(PROGRAMS)
# Variables of a site's real agent, which a demo must not heed.
OF_THE_SITE = {
    "HTTP_PROXY": "http://127.0.0.1:1",
    "SENTRY_DSN": "http://public@127.0.0.1:1/1",
    "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
    "WALDUR_SITE_AGENT_CONFIG": "/no/such/file.yaml",
}
# A locale without UTF-8.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """The interpreter of a virtual environment that has our packages but no programs."""
    home = tmp_path / "bare"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (home / "bin").mkdir(parents=True)
    (home / "lib" / version).mkdir(parents=True)
    (home / "pyvenv.cfg").write_text((PROGRAMS.parent / "pyvenv.cfg").read_text())
    (home / "lib" / version / "site-packages").symlink_to(PROGRAMS.parent / "lib" / version / "site-packages")
    (home / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    return str(home / "bin" / "python")


@dataclass(frozen=True)
class Demos:
    """Demos that run at the same time, as half of a demo is waiting; each takes 15 s of processor time, so that they
    share out the kinds of clusters, brokers and ends.
    """

    once: DemoProcess
    forever: DemoProcess


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demos]:
    once, forever = (tmp_path_factory.mktemp(name) for name in ("once", "forever"))
    with (
        demo(once, "--once", "--json", **OF_THE_SITE, **ASCII) as first,
        demo(forever, "--backend", "moab", PATH=NO_REDIS) as second,
    ):
        yield Demos(first, second)


def test_once_ends_by_itself_with_one_line_of_json(demos: Demos) -> None:
    """Also where variables of the site's real agent stand: a proxy, a Sentry, a broker, a configuration."""
    running = demos.once
    assert running.ended() == 0, running.out() + running.err()
    running.has_left_nothing()
    (line,) = running.out().splitlines()
    printed = json.loads(line)
    assert set(printed) == {
        *("ok", "faults", "orders", "seconds_per_order", "seconds_per_scene", "event_latency_s", "broker"),
        "flower",
        "console",
    }
    assert list(printed["seconds_per_scene"]) == ["members", "usage", "held", "approved"]
    assert printed["event_latency_s"] > 0
    assert (printed["ok"], printed["faults"], printed["orders"]) == (True, [], {"done": 5})
    assert len(printed["seconds_per_order"]) == 5
    assert all(seconds > 0 for seconds in printed["seconds_per_order"].values())
    assert printed["flower"].startswith("http://127.0.0.1:")
    assert "a_protein-folding" in running.err(), "the progress is on the other stream"
    assert running.leftovers() == []


def test_it_runs_until_ctrl_c_on_a_stand_in_mam_with_the_embedded_broker(demos: Demos) -> None:
    running = demos.forever
    running.said("Ctrl-C stops it all")
    said = running.out()
    flower, password = flower_opens_with_its_password_only(said)
    console_takes_its_password(said)
    what_it_proposes_works(said)
    another_order_comes_by_an_event(said, flower, password)
    assert any("valkey-server" in line for line in running.command_lines())
    assert "5 orders went from Waldur through the bridge, valkey-server and the worker to mam-deposit" in said
    for scene in ("accounts on the cluster agree", "Waldur knows what they used", "wait for `approve "):
        assert scene in said
    assert re.search(r" a_protein-folding deposit=2000  members: \w+, \w+", said)
    assert "0100007F" in running.listening() <= LOOPBACK
    assert all(password not in line for line in running.command_lines()), "`ps` shows command lines"
    running.process.send_signal(signal.SIGINT)
    running.process.send_signal(signal.SIGINT)
    assert running.ended() == 0
    running.has_left_nothing()
    assert running.out().endswith("\nstopping\n")
    assert running.leftovers() == []


def flower_opens_with_its_password_only(said: str) -> tuple[str, str]:
    """Return its address and the password."""
    flower = re.search(r"^Flower: (\S+) \(user demo, password (\S+)\)$", said, re.MULTILINE)
    assert flower is not None
    url, password = flower.groups()
    assert requests.get(url, timeout=600).status_code == 401
    assert requests.get(url, auth=("demo", "wrong"), timeout=600).status_code == 401
    assert requests.get(url, auth=("demo", password), timeout=600).status_code == 200
    return url, password


def console_takes_its_password(said: str) -> None:
    console = re.search(r"^console: (\S+) \(user demo, password (\S+)\)$", said, re.MULTILINE)
    assert console is not None
    url, password = console.groups()
    session = requests.Session()
    (token,) = re.findall('name="_xsrf" value="([^"]*)"', session.get(url, timeout=600).text)
    form = {"name": "demo", "password": password, "_xsrf": token}
    page = session.post(f"{url}login", form, timeout=600)
    assert page.status_code == 200 and ">demo</" in page.text and password not in page.text


def another_order_comes_by_an_event(said: str, flower: str, password: str) -> None:
    """The line is pasted, and Flower shows the task that the event queued, with the offering's name."""

    def tasks() -> list[dict[str, str]]:
        ask = {"taskname": "order_process.events", "state": "SUCCESS"}
        answer = requests.get(f"{flower}api/tasks", params=ask, auth=("demo", password), timeout=600)
        return list(answer.json().values())

    (line,) = re.findall(r"^  (\S+ -m simulator\.place_order .+)$", said, re.MULTILINE)
    before = len(tasks())
    done = subprocess.run(["/bin/sh", "-c", line], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^ *[0-9.]+ s  Tide tables  done  a_tide-tables$", done.stdout, re.MULTILINE)
    wait_until("the task in Flower", lambda: len(tasks()) > before)
    assert {task["args"] for task in tasks()} == {"Demo cluster"}


def what_it_proposes_works(said: str) -> None:
    """The pages are there, and the commands run when they are pasted into another shell."""
    (activate,) = re.findall(r"^In another shell, paste `(\. \S+/activate)`, and try:$", said, re.MULTILINE)
    tried = re.findall(r"^  (waldur-site-cluster [^#\n]*)", said, re.MULTILINE)
    assert [line.split()[1] for line in tried] == ["approve", "status", "doctor", "plan", "usage", "audit"]
    pages = dict(re.findall(r"^(Status|Usage): file://(\S+)$", said, re.MULTILINE))
    assert "waldur-site-cluster approve" in Path(pages["Status"]).read_text()
    usage = Path(pages["Usage"]).read_text()
    assert "a_protein-folding" in usage
    assert all(str(month) in usage for month in last_months(Month.of(datetime.now()), MONTHS))
    (waldur,) = re.findall(r"^Waldur: (\S+)$", said, re.MULTILINE)
    page = requests.get(waldur, timeout=600)
    assert page.status_code == 200 and "Protein folding" in page.text
    shell = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "WALDUR_SITE_AGENT_LOG_LEVEL": "DEBUG"}

    def carried_out(line: str) -> subprocess.CompletedProcess[str]:
        argv = ["/bin/sh", "-c", f"{activate} && {line}"]
        done = subprocess.run(argv, env=shell, capture_output=True, text=True, check=False)
        assert not re.search(r"^\{", done.stderr, re.MULTILINE), done.stderr
        assert "Demo cluster" in done.stdout or "a_protein-folding" in done.stdout
        return done

    found: list[str] = []

    def is_well(doctor: str) -> bool:
        """A worker has 1.5 s to answer."""
        done = carried_out(doctor)
        found.append(done.stdout + done.stderr)
        return done.returncode == 0 and not re.search("^(problem|warning)", done.stdout, re.MULTILINE)

    for line in (tried[1], *tried):
        if "doctor" in line:
            wait_until("the doctor finds nothing", partial(is_well, line), log=lambda: found[-1])
        else:
            done = carried_out(line)
            assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "parts", [(), *([PARTS] if FULL else [])], ids=lambda parts: "with all parts" if parts else "at its start"
)
def test_sigterm_leaves_nothing_behind(tmp_path: Path, parts: tuple[str, ...]) -> None:
    with demo(tmp_path, "--once") as running:
        running.said("starting the simulated Waldur")
        running.has_started(*parts)
        running.process.terminate()
        assert running.ended() == 130
        running.has_left_nothing()
        assert "stopped before the end" in running.out()
        assert running.leftovers() == []


@pytest.mark.skipif(not FULL, reason="FULL_TESTS")
def test_a_whole_day_ends_by_itself_on_a_stand_in_mam(tmp_path: Path) -> None:
    with demo(tmp_path, "--backend", "moab", "--once", "--json") as running:
        assert running.ended() == 0, running.out() + running.err()
        running.has_left_nothing()
        printed = json.loads(running.out())
        assert (printed["ok"], printed["faults"], printed["orders"]) == (True, [], {"done": 5})
        assert list(printed["seconds_per_scene"]) == ["members", "usage", "held", "approved"]


def test_sigkill_leaves_no_process_behind(tmp_path: Path) -> None:
    """The kernel signals the children; a worker that carries out an order finishes it first."""
    with demo(tmp_path) as running:
        running.has_started(*PARTS)
        running.process.kill()
        assert running.ended() == -signal.SIGKILL
        running.has_left_nothing()


def test_an_emulator_that_does_not_work_is_reported_at_once(tmp_path: Path, bare_python: str) -> None:
    broken = Path(bare_python).with_name("sacctmgr")
    broken.write_text("import sys\nprint('sacctmgr: no such luck', file=sys.stderr)\nsys.exit(3)\n")
    broken.chmod(0o755)
    with demo(tmp_path, "--once", python=bare_python) as running:
        assert running.ended() == 1
        assert re.search(
            r"error: `\S+/slurm-bin/sacctmgr .*` ended with 3: sacctmgr: no such luck", running.err()
        )
        running.has_left_nothing()


def test_a_broker_that_does_not_start_is_reported_with_its_log(tmp_path: Path) -> None:
    """A `redis-server` that is first on PATH and broken."""
    (tmp_path / "bin").mkdir()
    broken = tmp_path / "bin" / "redis-server"
    broken.write_text("#!/bin/sh\necho 'no memory left' >&2\nexit 7\n")
    broken.chmod(0o755)
    with demo(tmp_path, "--once", PATH=f"{tmp_path / 'bin'}:/bin") as running:
        assert running.ended() == 1
        assert re.search(r"error: broker ended with 7; \S+/broker\.log says: no memory left", running.err())
        assert "configuration and logs are in" in running.out()
        assert len(running.leftovers()) == 1, "the log that was named is still there"
        running.has_left_nothing()
