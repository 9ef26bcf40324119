# SPDX-License-Identifier: MIT
"""`waldur_site_agent`: a service of the reference in one process, which needs no Redis."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import beat_schedule as table
from agent.cli.commands.reference import site_agent
from agent.cli.main import run
from agent.config.model import Mode
from agent.core.modes import Service
from agent.host import heartbeat
from agent.run.service import services
from rig import warm_python
from rig.bridge_brokers import mqtt_keys
from rig.mosquitto import Mosquitto
from rig.operator_process import OperatorProcess
from rig.processes import wait_until
from rig.site import settings_of
from rig.warm_python import WarmPython
from simulator.events.mqtt import MqttBroker
from simulator.server.faults import Fault
from tests.agent.cli.operator_site import PROGRAMS, REPOSITORY, OperatorSite, run_program
from tests.agent.cli.test_light_start import loaded

SCRIPT = "waldur_site_agent"
EVENTS = {"stomp_enabled": True}
NO_HOMES = {"enable_user_homedir_account_creation": False}

Script = Callable[..., tuple[int, str, str]]


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> Script:
    """Runs the script's command in this process."""

    def start(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(words), site_agent, SCRIPT, config_error=1)
        said = capsys.readouterr()
        return code, said.out, said.err

    return start


@pytest.fixture
def start(site: OperatorSite) -> Iterator[Callable[..., OperatorProcess]]:
    """Starts the script as an old unit does, or as a fork of `python`, with no broker anywhere."""
    running: list[OperatorProcess] = []

    def make(
        mode: str, file: str, minutes: str = "0.02", python: WarmPython | None = None
    ) -> OperatorProcess:
        env = {
            **os.environ,
            **site.environment,
            "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
            "WALDUR_SITE_AGENT_BROKER_URL": "redis://127.0.0.1:1/0",
            "WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES": minutes,
        }
        words = [str(PROGRAMS / SCRIPT), "-m", mode, "-c", file]
        log = site.folder / "agent.log"
        process = OperatorProcess(words, log, env, ready=" ready.", stop_s=600, python=python)
        running.append(process)
        return process.start()

    yield make
    for process in running:
        process.stop()
        print(process.output())


def done(site: OperatorSite, order: str) -> None:
    wait_until("order done", lambda: site.waldur.order(order).state.value == "done")


def test_an_old_unit_keeps_working_without_a_broker(
    site: OperatorSite, start: Callable[..., OperatorProcess]
) -> None:
    first = site.place("One")
    file = site.configure(backend=NO_HOMES)
    agent = start("order_process", file)
    done(site, first)
    done(site, site.place("Two"))
    state_dir = settings_of(Path(file)).state_dir
    wait_until("heartbeats", lambda: len(heartbeat.last_heartbeats(state_dir)) == 2)
    broker = run_program("status", "--json", "-c", file).document()["broker"]
    assert (broker["alone"], broker["problem"]) == (
        ["order_process"],
        "no broker is needed: waldur_site_agent (order_process) keeps its queue in its own memory",
    )
    code, modules = loaded("status", "-c", file)
    assert (code, modules & {"kombu", "redis", "backends.usernames.registry"}) == (0, set())
    printed = run_program("metrics", "-c", file)
    assert 'waldur_site_source_up{source="broker"} 1.0' in printed.out, (
        "no alert on a broker that is not needed"
    )
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait() == 0
    assert heartbeat.last_heartbeats(state_dir) == [], "`healthz` sees at once that it is gone"
    assert "Running agent in order_process mode" in agent.output()


def test_its_log_is_on_stdout_where_old_units_look_for_it(site: OperatorSite) -> None:
    words = [str(PROGRAMS / SCRIPT), "-m", "order_process", "-c", site.configure(backend=NO_HOMES, nam="x")]
    out, err = site.folder / "out.log", site.folder / "err.log"
    env = {**os.environ, **site.environment}
    with out.open("w") as log, err.open("w") as errors:
        agent = subprocess.Popen(words, stdout=log, stderr=errors, env=env, cwd=REPOSITORY)
        try:
            wait_until("it is ready", lambda: " ready." in out.read_text())
        finally:
            agent.terminate()
            assert agent.wait(600) == 0
    events = [json.loads(line)["event"] for line in out.read_text().splitlines()]
    assert any("unknown key 'nam'" in event for event in events), "also what is said before it is ready"
    assert err.read_text() == ""


def test_events_without_a_broker_of_ours(
    site: OperatorSite, start: Callable[..., OperatorProcess], mosquitto: Mosquitto
) -> None:
    """The first pass comes from the bridge, the next order from its event: no poll is due within the test."""
    site.waldur.publish_to(MqttBroker("127.0.0.1", mosquitto.port))
    file = site.configure(backend=NO_HOMES, membership_sync_backend="slurm", **mqtt_keys(mosquitto))
    agent = start("event_process", file, "600", warm_python.of_commands())
    wait_until("the bridge listens", lambda: "a full pass is queued" in agent.output())
    done(site, site.place("One"))
    agent.process.send_signal(signal.SIGQUIT)
    assert agent.process.wait() == 0
    assert "the bridge ends: " in agent.output()


def test_a_task_that_waits_in_memory_is_not_queued_twice(site: OperatorSite) -> None:
    code = """
import sys; from pathlib import Path; from dataclasses import replace
import beat_schedule as table
from agent.config import load; from agent.config.secret import SecretUrl
from tasks import current, orders
from tasks.queue import broker
settings = load.require(Path(sys.argv[1]), {})
current.use(replace(settings, broker_url=SecretUrl("memory://localhost/")))
uuid = settings.offerings[0].uuid
waiting = lambda: broker.here().waiting(table.queue_name(settings.offerings[0].queue)).messages
print(orders.enqueue_orders(uuid), orders.enqueue_orders(uuid), waiting())
"""
    words = [sys.executable, "-c", code, site.configure()]
    said = subprocess.run(words, capture_output=True, text=True, cwd=REPOSITORY, check=True, timeout=600)
    assert said.stdout.split() == ["True", "False", "1"]


def test_a_dry_run_prints_the_plan_and_changes_nothing(site: OperatorSite, script: Script) -> None:
    order = site.place("One")
    before = site.orders_and_resources()
    code, out, err = script("-c", site.configure(), "--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith(f"# Test SLURM\napprove order {order}")
    assert "create account a_one below p_project" in out
    assert (site.orders_and_resources(), site.cluster()) == (before, "")


def test_a_dry_run_of_events_is_of_both_modes(site: OperatorSite, script: Script) -> None:
    site.place("One")
    file = site.configure(membership_sync_backend="slurm", **EVENTS)
    code, out, _ = script("-m", "event_process", "--config-file", file, "--dry-run")
    assert (code, out.count("# Test SLURM")) == (0, 2)
    code, out, err = script("-m", "order_process", "-c", file, "--dry-run")
    assert (code, out) == (0, ""), "its orders are event_process's"
    assert err == "no offering here needs order_process. Needed are: event_process\n"


def test_a_dry_run_with_waldur_away(site: OperatorSite, script: Script) -> None:
    site.waldur.inject(Fault(path="marketplace-orders", status=403, body="{}"))
    code, _, err = script("-c", site.configure(), "--dry-run")
    assert code == 1
    assert "error: Test SLURM: " in err


def test_a_bad_unit(script: Script, tmp_path: Path) -> None:
    code, _, err = script("-m", "orders")
    assert code == 2
    assert "'orders' is not one of 'order_process', 'report', 'membership_sync', 'event_process'" in err
    code, _, err = script("-m", "report", "-c", str(tmp_path / "none.yaml"))
    assert code == 1
    assert f"the configuration file {tmp_path / 'none.yaml'} does not exist" in err
    assert script("--once")[0] == 2


ALL = {"membership_sync_backend": "slurm", "reporting_backend": "slurm"}
POLLED = {
    Service.ORDER_PROCESS: {Mode.ORDER_PROCESS},
    Service.MEMBERSHIP_SYNC: {Mode.MEMBERSHIP_SYNC},
    Service.REPORT: {Mode.REPORT},
}
BY_EVENTS = {
    Service.EVENT_PROCESS: {Mode.ORDER_PROCESS, Mode.MEMBERSHIP_SYNC},
    Service.REPORT: {Mode.REPORT},
}
MEMBERS_POLLED = {
    Service.EVENT_PROCESS: {Mode.ORDER_PROCESS},
    Service.MEMBERSHIP_SYNC: {Mode.MEMBERSHIP_SYNC},
    Service.REPORT: {Mode.REPORT},
}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (ALL, POLLED),
        ({**ALL, **EVENTS}, BY_EVENTS),
        ({**ALL, **EVENTS, "stomp_membership_sync_enabled": False}, MEMBERS_POLLED),
        ({"order_processing_backend": "", "reporting_backend": "slurm"}, {Service.REPORT: {Mode.REPORT}}),
    ],
)
def test_each_mode_of_an_offering_belongs_to_one_service(
    site: OperatorSite, keys: dict[str, Any], expected: dict[Service, set[Mode]]
) -> None:
    settings = settings_of(Path(site.configure(**keys)))
    found = {each: services.modes_of(settings.offerings[0], each) for each in Service}
    assert {each: modes for each, modes in found.items() if modes} == expected
    assert services.needed(settings) == dict.fromkeys(expected, ("Test SLURM",))
    for service, modes in expected.items():
        slots = table.slots(settings, lambda offering, service=service: services.modes_of(offering, service))
        polls = {slot.task for slot in slots} - {table.DRIFT_TASK}
        assert polls == {table.TASK_OF[mode] for mode in modes}
