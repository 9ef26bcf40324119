# SPDX-License-Identifier: MIT
"""Which services go together: reported of the configuration, and of the agents that run on this host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config import legacy_env, load
from agent.host import running
from agent.host.running import Agent
from agent.run.service import services
from rig.processes import wait_until
from rig.site import settings_of
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import OperatorSite

ALL = {"membership_sync_backend": "slurm", "reporting_backend": "slurm"}
EVENTS = {**ALL, "stomp_enabled": True}
THREE = ("order_process", "report", "membership_sync")

Start = Callable[..., int]


def service(number: int, mode: str, **more: Any) -> Agent:
    return Agent(number, mode, is_service=True, **more)


def part(number: int, role: str) -> Agent:
    return Agent(number, role, is_service=False)


@pytest.mark.parametrize(
    ("keys", "here", "sentences"),
    [
        (ALL, (), []),
        (ALL, [service(n, mode) for n, mode in enumerate(THREE)], []),
        (ALL, [part(1, "worker"), part(2, "beat")], []),
        (EVENTS, [service(1, "event_process"), service(2, "report")], []),
        (EVENTS, [service(1, "report")], ["no process serves event_process (Test SLURM)"]),
        (ALL, [service(1, "order_process"), service(2, "report")], ["no process serves membership_sync"]),
        (
            ALL,
            [*(service(n, mode) for n, mode in enumerate(THREE)), service(9, "report")],
            ["2 processes run"],
        ),
        (
            ALL,
            [service(1, "report"), part(2, "worker")],
            ["`waldur_site_agent` (report) runs in addition to worker"],
        ),
        (
            ALL,
            [service(7, "report", is_ours=False)],
            ["process 7 (`waldur_site_agent -m report`) belongs to"],
        ),
        (ALL, [service(7, "report", config="/etc/other.yaml"), part(2, "worker")], []),
        (ALL, [part(1, "worker"), part(2, "bridge")], ["the bridge runs, and no offering has"]),
        (EVENTS, [part(1, "worker"), part(2, "beat")], ["no bridge runs on this host for Test SLURM"]),
        (EVENTS, [part(1, "beat"), part(2, "cluster")], []),
    ],
)
def test_what_does_not_go_together_is_reported(
    site: OperatorSite, keys: dict[str, Any], here: list[Agent], sentences: list[str]
) -> None:
    found = services.clashes(settings_of(Path(site.configure(**keys))), here)
    assert len(found) == len(sentences), found
    for sentence, beginning in zip(found, sentences, strict=True):
        assert sentence.startswith(beginning)


@pytest.mark.parametrize(
    ("here", "alone"),
    [
        ([], ()),
        ([service(2, "report"), service(1, "membership_sync")], ("membership_sync", "report")),
        (
            [service(1, "report", config="/etc/a.yaml"), service(2, "order_process", config="/etc/b.yaml")],
            ("report",),
        ),
        ([service(1, "report", is_ours=False)], ()),
        ([service(1, "report"), part(2, "worker")], ()),
        ([service(1, "report"), part(2, "cluster")], ()),
        ([service(1, "report"), Agent(2, "bridge", is_service=False, config="/etc/b.yaml")], ("report",)),
    ],
)
def test_services_are_alone_where_no_part_may_have_their_configuration(
    here: list[Agent], alone: tuple[str, ...]
) -> None:
    assert running.services_alone("/etc/a.yaml", here) == alone


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts programs that have the names and words of agents, and only wait."""
    processes = []

    def make(program: str, *words: str, **variables: str) -> int:
        script = tmp_path / program
        script.write_text("import time\ntime.sleep(600)\n")
        argv = [sys.executable, str(script), *words]
        processes.append(subprocess.Popen(argv, env={**os.environ, **variables}))
        pid = processes[-1].pid
        wait_until("it runs", lambda: str(script) in Path(f"/proc/{pid}/cmdline").read_text())
        return pid

    yield make
    for process in processes:
        process.kill()
        process.wait()


def test_agents_are_found_among_the_processes_of_the_host(start: Start) -> None:
    old = start("waldur_site_agent", "--mode=report", "-c", "/etc/a.yaml")
    usual = start("waldur_site_agent", WALDUR_SITE_AGENT_CONFIG="/etc/b.yaml")
    worker = start("celery", "-A", "tasks", "worker", WALDUR_SITE_AGENT_CONFIG="/etc/c.yaml")
    bridge = start("waldur-site-cluster", "bridge", "-c/etc/d.yaml")
    others = [start("celery", "-A", "other", "worker"), start("waldur-site-cluster", "status")]
    variables = dict.fromkeys(legacy_env.API_VARIABLES, "x")
    push = start(
        "waldur_site_agent", "-m", "report", "-mmembership_sync", WALDUR_SITE_AGENT_CONFIG="", **variables
    )
    both = [agent for agent in running.agents() if agent.pid == push]
    assert [(agent.role, agent.config) for agent in both] == [
        ("report", load.ENVIRONMENT),
        ("membership_sync", load.ENVIRONMENT),
    ]
    assert running.of_configuration("/etc/a.yaml", both) == []
    assert running.of_configuration(load.ENVIRONMENT, both) == both
    found = {agent.pid: agent for agent in running.agents()}
    assert found[old] == Agent(old, "report", True, "/etc/a.yaml", is_ours=False)
    assert found[usual] == Agent(usual, "order_process", True, "/etc/b.yaml", is_ours=False)
    assert found[worker] == Agent(worker, "worker", False, "/etc/c.yaml")
    assert found[bridge] == Agent(bridge, "bridge", False, "/etc/d.yaml")
    assert found.keys().isdisjoint(others)


def test_config_check_prints_both(site: OperatorSite, command: Command, start: Start) -> None:
    file = site.configure(**EVENTS)
    start("waldur_site_agent", "-m", "report", "-c", file)
    lines = command("config-check", "-c", file).out.splitlines()
    assert "service: waldur_site_agent -m event_process: Test SLURM" in lines
    (running,) = [line for line in lines if line.startswith("running: ")]
    assert "belongs to another installation" in running
    document = command("config-check", "-c", file, "--json").document()
    assert document["services"] == {"report": ["Test SLURM"], "event_process": ["Test SLURM"]}
    assert len(document["running"]) == 1


def test_doctor_reports_it_too(site: OperatorSite, command: Command, start: Start) -> None:
    file = site.configure(**ALL)
    pid = start("waldur_site_agent", "-m", "report", "-c", file)
    checks = command("doctor", "-c", file, "--json").document()["checks"]
    (check,) = [each for each in checks if each["check"] == "services"]
    assert check["state"] == "warning"
    assert check["found"].startswith(f"process {pid} (`waldur_site_agent -m report`) belongs to")
    assert "migrate.md" in check["remedy"]
