# SPDX-License-Identifier: MIT
"""The dashboard and the alerts of monitoring/: what they name exists, and Prometheus can read it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from agent.cli.main import COMMANDS, cli
from agent.host.heartbeat import LastHeartbeat, Part
from agent.observability.metrics import METRICS, Kind
from agent.run.diagnosis import faults, heartbeats
from agent.run.diagnosis.picture import BrokerStatus
from rig.processes import REPOSITORY

FOLDER = REPOSITORY / "monitoring"
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())
FUNCTIONS = {
    "absent", "count", "histogram_quantile", "increase", "max", "or", "rate", "sum", "time", "topk", "vector", "by",
    "on", "group_left",
}  # fmt: skip
SUFFIXES = ("_bucket", "_count", "_sum")
OF_PROMETHEUS = {"le", "instance", "job"}
TOKEN = re.compile(
    r"""\s+|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<text>"[^"\\]*")|(?P<range>\[(?:[0-9]+[smhd]|\$__rate_interval)\])
    |(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/(){}=<>,])""",
    re.VERBOSE,
)


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DASHBOARD["panels"]
    return found


def expressions() -> Iterator[Any]:
    for rule in ALERTS:
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in panels():
        for target in panel["targets"]:
            yield pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")


def tokens(expression: str) -> list[tuple[str, str]]:
    found, place = [], 0
    while place < len(expression):
        match = TOKEN.match(expression, place)
        assert match, f"not PromQL: {expression[place:]!r}"
        place = match.end()
        if match.lastgroup:
            found.append((match.lastgroup, match[0]))
    return found


@pytest.mark.parametrize("expression", list(expressions()))
def test_every_name_in_an_expression_exists(expression: str) -> None:
    """Metrics, labels of these metrics, functions; brackets close; rates are of counters."""
    seen, open_brackets, labels = [], [], set()
    inside = ""
    words = tokens(expression)
    for place, (kind, word) in enumerate(words):
        if word in "({":
            open_brackets.append(word)
            before = words[place - 1][1] if place else ""
            inside = "labels" if word == "{" or before in ("by", "on", "group_left") else inside
        elif word in ")}":
            assert open_brackets.pop() + word in ("()", "{}")
            inside = ""
        elif kind == "name":
            if inside == "labels":
                labels.add(word)
            elif word not in FUNCTIONS:
                seen.append(word)
        elif kind == "range":
            # The counter that it is of stands before it, with its labels.
            counter = [each for each in seen if _metric(each).kind is not Kind.GAUGE]
            assert counter, f"a range of a gauge: {expression}"
    assert not open_brackets
    assert seen
    known = {label for name in seen for label in _metric(name).labels}
    assert labels <= known | OF_PROMETHEUS, labels - known


def _metric(name: str):  # type: ignore[no-untyped-def]
    base = next((name.removesuffix(s) for s in SUFFIXES if name.removesuffix(s) in METRICS), name)
    assert base in METRICS, f"{name} is no metric"
    return METRICS[base]


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_every_alert_says_what_happened_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"].keys() == {"summary", "runbook"}
    labels = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    of_metric = {
        label
        for kind, word in tokens(rule["expr"])
        if kind == "name" and word in METRICS
        for label in METRICS[word].labels
    }
    assert labels <= of_metric | OF_PROMETHEUS
    for page in re.findall(r"docs/[a-z-]+\.md", rule["annotations"]["runbook"]):
        assert (REPOSITORY / page).is_file(), page


def test_a_silent_part_is_one_alert_and_a_beat_that_is_missing_another() -> None:
    """Heartbeats have an alert of their own."""
    (rule,) = [rule for rule in ALERTS if rule["alert"] == "WaldurSiteFault"]
    (left_out,) = re.findall(r'check!~"([^"]+)"', rule["expr"])
    ages = [
        LastHeartbeat(part, name, "here", 7, 1000.0, Path("x.json"))
        for part, name in ((Part.BEAT, "beat"), (Part.BRIDGE, "bridge"), (Part.WORKER, "one@here"))
    ]
    assert all(re.fullmatch(left_out, each.name) for each in heartbeats.of_heartbeats(ages))
    missing = [each.name for each in faults.of_broker(BrokerStatus("redis://here", beats=()))]
    assert missing == ["beat"] and not re.fullmatch(left_out, "beat")


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_the_commands_of_the_runbooks_exist(rule: dict[str, Any]) -> None:
    for words in re.findall(
        r"waldur-site-cluster ([a-z-]+(?: [A-Za-z-]+(?: --[a-z]+)?)?)", rule["annotations"]["runbook"]
    ):
        name, *rest = shlex.split(words)
        assert name in COMMANDS, name
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        options = {
            option for parameter in command.params for option in parameter.opts + parameter.secondary_opts
        }
        assert {word for word in rest if word.startswith("--")} <= options, words


def test_promtool_reads_the_alerts() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        [promtool, "check", "rules", str(FOLDER / "alerts.yml")], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_one_that_grafana_can_import() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    places = [tuple(panel["gridPos"].values()) for panel in panels()]
    for number, (x, y, w, h) in enumerate(places):
        assert x >= 0 and x + w <= 24
        for left, top, width, height in places[:number]:
            assert x >= left + width or left >= x + w or y >= top + height or top >= y + h
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)\}?", json.dumps(panels())))
    assert used <= names


def test_every_metric_of_an_outage_is_in_an_alert_or_seen() -> None:
    """A metric that is neither in an alert nor on the dashboard is one that is never looked at."""
    named = {word for param in expressions() for kind, word in tokens(param.values[0]) if kind == "name"}
    seen = {_metric(word).name for word in named if word.startswith("waldur_site_")}
    assert set(METRICS) - seen <= {
        "waldur_site_build_info", "waldur_site_last_pass_timestamp_seconds", "waldur_site_bridge_gaps_total",
        "waldur_site_bridge_inbox_messages", "waldur_site_bridge_event_types",
    }  # fmt: skip


def test_prometheus_reads_the_ports_that_are_the_defaults() -> None:
    from agent.cli.commands.shared import BRIDGE_METRICS_PORT, LOOPBACK, METRICS_PORT

    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    targets = job["static_configs"][0]["targets"]
    assert targets == [f"{LOOPBACK}:{METRICS_PORT}", f"{LOOPBACK}:{BRIDGE_METRICS_PORT}"]


def test_the_files_are_what_the_page_names() -> None:
    page = (REPOSITORY / "docs" / "monitoring.md").read_text()
    for path in FOLDER.iterdir():
        assert f"monitoring/{path.name}" in page
    assert Path(FOLDER).is_dir()
