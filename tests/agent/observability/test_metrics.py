# SPDX-License-Identifier: MIT
"""What Prometheus reads: of passes by the state file, of queues by Redis, of events by the bridge."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.bridge.inbox import Inbox
from agent.bridge.model import Gap
from agent.cli.commands.shared import parse_address
from agent.config.model import Mode
from agent.core.actions import AddMember, RemoveMember
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.plans import Outcome
from agent.observability.metrics import METRICS, Kind, Sample, SiteCollector, families
from agent.run import results as record
from agent.run.diagnosis import figures, picture
from agent.run.results import PassReport, ResourceResult, Result
from agent.run.site import Effort
from rig.operator_process import OperatorProcess
from rig.processes import REPOSITORY, free_ports
from rig.redis_server import RedisServer
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur
from tasks.queue import inspection
from tests.agent.cli.conftest import Command
from tests.agent.cli.conftest import command as command
from tests.agent.cli.conftest import site as site
from tests.agent.cli.operator_site import OperatorSite, run_program
from tests.tasks.scripts import patient

Values = dict[tuple[str, ...], float]


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur() as server:
        yield server


def values(text: str) -> Values:
    """By name without the prefix, and the values of the labels but the offering's, in the order of the table."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            order = _metric(sample.name).labels
            assert sample.labels.keys() - {"le"} == set(order), sample
            labels = (sample.labels[k] for k in (*order, "le") if k != "offering" and k in sample.labels)
            found[sample.name.removeprefix("waldur_site_"), *labels] = sample.value
    return found


def _metric(sample: str):  # type: ignore[no-untyped-def]
    if sample in METRICS:
        return METRICS[sample]
    return METRICS[sample.rpartition("_")[0]]


def scrape(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=600) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_orders_that_were_carried_out_are_seen_in_the_metrics(
    site: OperatorSite, redis_server: RedisServer, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what they cost, and what waits in the queues; no name of an account, a person or an order."""
    redis_server.flush()
    config = site.configure(membership_sync_backend="slurm", reporting_backend="slurm")
    monkeypatch.setenv("WALDUR_SITE_AGENT_BROKER_URL", redis_server.url)
    monkeypatch.setattr(inspection, "CONNECT_S", 600.0)
    site.place("one")
    said = command("run", "order_process", "--once", "--json", "-c", config).document()
    command("run", "order_process", "--once", "-c", config)
    served = patient("metrics", "-c", config, env={**os.environ, **site.environment})
    assert served.code == 0, served.err
    found = values(served.out)
    mode = "order_process"
    assert found["passes_total", mode, "all", "ok"] == 2
    assert found["actions_total", mode, "CreateAccount", "done"] == said["actions"]["create account"]
    assert found["results_total", mode, "order", "done"] == 1
    written = found["cluster_commands_total", mode, "write"]
    assert written == said["commands"]["write"]
    asked = sum(value for key, value in found.items() if key[0] == "waldur_requests_total")
    assert asked > sum(said["requests"].values())
    assert (
        found["pass_duration_seconds_count", mode] == found["pass_duration_seconds_bucket", mode, "+Inf"] == 2
    )
    assert found["last_good_pass_timestamp_seconds", mode] > 1e9
    assert (
        found["last_good_pass_timestamp_seconds", "report"] == found["usage_reported_timestamp_seconds",] == 0
    )
    assert found["source_up", "broker"] == found["source_up", "state"] == 1
    assert found["queue_length", "site.demo", "0"] == 0
    assert {key[1:]: value for key, value in found.items() if key[0] == "faults"} == {("beat", "problem"): 1}
    persons = site.waldur.store.users
    for name in [*(user.username for user in persons), *(user.uuid for user in persons)]:
        assert f'"{name}"' not in served.out


def test_the_endpoint_is_on_loopback_and_tells_health_as_well(site: OperatorSite, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    env = {**site.environment, "WALDUR_SITE_AGENT_BROKER_URL": "redis://127.0.0.1:1/0"}
    words = ("metrics", "--serve", "--listen", str(port), "-c", site.configure())
    serving = OperatorProcess(
        [sys.executable, str(REPOSITORY / "manage.py"), *words],
        tmp_path / "log",
        env,
        ready="metrics: ",
        stop_s=600,
    ).start()
    try:
        status, text = scrape(f"http://127.0.0.1:{port}/metrics")
        found = values(text)
        assert (status, found["source_up", "state"], found["source_up", "broker"]) == (200, 1, 0)
        assert not any(key[0] == "queue_length" for key in found)
        assert scrape(f"http://127.0.0.1:{port}/healthz")[0] == 503
        assert scrape(f"http://127.0.0.1:{port}/")[0] == 404
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [row[1] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port]
        assert [address.split(":")[0] for address in listening] == ["0100007F"]
    finally:
        serving.stop()
    assert serving.process.returncode == 0


def test_failures_and_what_is_stuck_are_counted(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    settings = settings_of(configuration(waldur, tmp_path, membership_sync_backend="slurm"))
    (offering,) = settings.offerings

    def report(**what: object) -> PassReport:
        return PassReport(Mode.MEMBERSHIP_SYNC, offering.uuid, offering.name, **what)  # type: ignore[arg-type]

    def figures_now() -> Values:
        found = picture.of_site(settings, settings.offerings)
        return values(generate(SiteCollector({"state": lambda: figures.of_picture(found)}, ())))

    mode = "membership_sync"
    record.record(settings.state_dir, report(in_step=3))
    good = figures_now()["last_good_pass_timestamp_seconds", mode]
    stuck = ResourceResult("1" * 32, Result.STUCK, "a", "no such QoS")
    failed = Outcome(RemoveMember(account="a", user="u"), BackendError("no"))
    effort = Effort({"GET /api/users/ann.1/": 2, "GET /api/orders/{uuid}/": 1}, {"read": 4}, 7.0)  # type: ignore[arg-type]
    record.record(
        settings.state_dir,
        report(
            in_step=2,
            resources=[stuck],
            outcomes=[failed, Outcome(AddMember(account="a", user="u"))],
            effort=effort,
        ),
    )
    record.record(settings.state_dir, report(error=BackendUnavailable("slurmdbd is away")))
    found = figures_now()
    assert {key[2:]: value for key, value in found.items() if key[0] == "passes_total"} == {
        ("all", "ok"): 1, ("all", "failed"): 1, ("all", "error"): 1
    }  # fmt: skip
    assert found["actions_total", mode, "RemoveMember", "failed"] == 1
    assert found["actions_total", mode, "AddMember", "done"] == 1
    assert found["results_total", mode, "resource", "stuck"] == 1
    # No name in a path makes a label of its own.
    assert found["waldur_requests_total", mode, "GET /api/users/{id}/"] == 2
    assert found["waldur_requests_total", mode, "GET /api/orders/{uuid}/"] == 1
    assert found["pass_duration_seconds_sum", mode] == 7.0
    assert found["pass_duration_seconds_bucket", mode, "5.0"] == 2
    assert found["pass_duration_seconds_bucket", mode, "10.0"] == 3
    assert found["last_good_pass_timestamp_seconds", mode] == good
    assert found["faults", "passes", "problem"] == 1


def generate(collector: SiteCollector) -> str:
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def test_a_source_that_fails_is_left_out_and_shows(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Iterator[Sample]:
        yield Sample("build_info", 1, ("0",))
        raise OSError("no such folder")

    found = values(generate(SiteCollector({"state": fails, "health": lambda: ()}, (OSError,))))
    assert (found["source_up", "state"], found["source_up", "health"]) == (0, 1)
    assert "metrics: state cannot be read: no such folder" in caplog.text


def test_queues_have_their_length_and_the_oldest_task(
    waldur: SimulatedWaldur, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_server.flush()
    monkeypatch.setenv("WALDUR_SITE_AGENT_BROKER_URL", redis_server.url)
    config = configuration(waldur, tmp_path)
    monkeypatch.setenv("WALDUR_SITE_AGENT_CONFIG", str(config))
    script = (
        "from agent.run.diagnosis import figures\n"
        "from tasks import current, orders; from tasks.queue import inspection; s = current.settings()\n"
        "inspection.CONNECT_S = 600.0\n"
        "for _ in range(3): orders.poll.apply_async((s.offerings[0].uuid,), queue='site.default', priority=0)\n"
        "orders.events.apply_async((s.offerings[0].uuid,), queue='site.default', priority=3)\n"
        "seen = inspection.look(s, asks_workers=False)\n"
        "for each in figures.of_broker(seen, s.offerings): print(each.metric, *each.labels, each.value)"
    )
    done = run_program("-c", script, program=sys.executable)
    lines = [line.split() for line in done.out.splitlines()]
    lengths = {tuple(line[1:3]): float(line[3]) for line in lines if line[0] == "queue_length"}
    assert lengths == {("site.default", str(step)): {0: 3, 3: 1}.get(step, 0) for step in (0, 3, 6, 8, 9)}, (
        done.err
    )
    (oldest,) = (float(line[2]) for line in lines if line[0] == "queue_oldest_task_timestamp_seconds")
    assert oldest > 1e9
    assert ["tasks_unacknowledged", "0"] in [line[:2] for line in lines]


def test_the_inbox_of_the_bridge_knows_its_lag() -> None:
    inbox = Inbox()
    assert inbox.lag_s() == 0
    inbox.put_gap(Gap("a", "why"))
    inbox.put_gap(Gap("b", "why"))
    assert inbox.lag_s() == 0
    assert inbox.get() == Gap("a", "why")
    assert inbox.lag_s() > 0


def test_no_label_is_of_people_accounts_or_orders() -> None:
    labels = {label for metric in METRICS.values() for label in metric.labels}
    assert not labels & {"account", "user", "username", "person", "order", "resource", "task", "task_id"}
    for metric in METRICS.values():
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert "_seconds" in metric.name or "second" not in metric.name


def test_a_metric_that_is_in_no_table_is_an_error() -> None:
    with pytest.raises(KeyError):
        list(families([Sample("unheard_of", 1)]))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9000", ("127.0.0.1", 9000)),
        ("9000", ("127.0.0.1", 9000)),
        ("0.0.0.0", ("0.0.0.0", 9464)),
        ("node-1.example.com:80", ("node-1.example.com", 80)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, 9464) == address


@pytest.mark.parametrize("text", ["", ":", "99999", "1.2.3.4:x", "a b", "::1:80"])
def test_wrong_addresses_are_refused(text: str) -> None:
    with pytest.raises(Exception, match=r"is no address such as 127\.0\.0\.1:9464"):
        parse_address(text, 9464)


def test_no_process_of_a_pool_carries_a_server(tmp_path: Path, waldur: SimulatedWaldur) -> None:
    """What the tasks import, the pool's processes carry for life."""
    script = "import sys, tasks, tasks.orders, tasks.membership, tasks.report; print(*sorted(sys.modules))"
    env = {"WALDUR_SITE_AGENT_CONFIG": str(configuration(waldur, tmp_path))}
    loaded = run_program("-c", script, program=sys.executable, env=env).out.split()
    assert "tasks.base" in loaded
    assert not {"http.server", "wsgiref", "wsgiref.simple_server", "prometheus_client"} & set(loaded)
