# SPDX-License-Identifier: MIT
"""Figures of the last pass of each offering and mode, for Prometheus: text files in `state_dir/metrics`.

Files need no port and no process of their own: node_exporter reads them (`--collector.textfile.directory`).
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from prometheus_client.core import CollectorRegistry, Gauge
from prometheus_client.exposition import write_to_textfile

from agent.core.errors import StateError
from agent.run.results import PassReport
from agent.state import files

log = logging.getLogger(__name__)

LABELS = ("offering", "name", "mode")


def write(state_dir: Path, report: PassReport) -> None:
    """The figures of one pass over everything of an offering. A folder that cannot be written is a warning."""
    folder = state_dir / "metrics"
    path = folder / f"{report.offering_uuid}-{report.mode}.prom"
    try:
        with files.acting_as_owner(state_dir):
            files.make_folder(folder)
            write_to_textfile(str(path), figures(report))
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error.strerror)
    except StateError as error:
        log.warning("%s cannot be written: %s", path, error)


def figures(report: PassReport) -> CollectorRegistry:
    """What a dashboard and an alert need to know of a pass."""
    registry = CollectorRegistry()
    whose = (report.offering_uuid, report.offering_name, str(report.mode))

    def gauge(name: str, meaning: str, value: float) -> None:
        Gauge(f"waldur_site_{name}", meaning, LABELS, registry=registry).labels(*whose).set(value)

    def gauges(name: str, meaning: str, label: str, values: dict[str, int]) -> None:
        made = Gauge(f"waldur_site_{name}", meaning, (*LABELS, label), registry=registry)
        for kind, value in sorted(values.items()):
            made.labels(*whose, kind).set(value)

    gauge("pass_end_timestamp_seconds", "When the last pass ended.", time.time())
    gauge("pass_duration_seconds", "How long it took.", report.effort.seconds)
    gauge("pass_failed", "1 when an operator should look at it.", float(report.failed))
    gauge("resources_in_step", "Resources that needed nothing.", report.in_step)
    gauge("held_plans", "Plans that wait for `approve`.", len(report.held))
    gauge("held_actions", "Actions of these plans.", sum(len(plan.actions) for plan in report.held))
    gauge("refused_actions", "Actions that the policy leaves out.", len(report.refused))
    gauges("results", "Orders or resources by what became of them.", "result", dict(report.counted()))
    gauges("homes", "Users by what became of their homes.", "state", dict(report.homes))
    gauges("cluster_commands", "Processes that the pass started.", "kind", dict(report.effort.commands))
    gauges("waldur_requests", "Requests that the pass sent.", "request", dict(report.effort.requests))
    return registry
