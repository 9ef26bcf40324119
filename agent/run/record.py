# SPDX-License-Identifier: MIT
"""Record how a pass ended: for `status` in the state store, for Prometheus in text files in `state_dir/metrics`.

Files need no port and no process of their own: node_exporter reads them (`--collector.textfile.directory`). What
cannot be written is a warning.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client.core import CollectorRegistry, Gauge
from prometheus_client.exposition import write_to_textfile

from agent.core.errors import StateError
from agent.host import files
from agent.run.results import PassReport, Result
from agent.state import passes
from agent.state.store import stamp

log = logging.getLogger(__name__)

FAILURES_SHOWN = 10
ORDERS_KEPT = 100
LABELS = ("offering", "name", "mode")


def record(state_dir: Path, report: PassReport, *, subject: str = "") -> None:
    """Write down a pass. `subject`: the order or resource it was about, empty for all of them."""
    failures = [str(report.error)] if report.error else []
    failures += [f"order {o.order_uuid} {o.result}: {o.message}" for o in report.orders if o.error]
    failures += [f"resource {r.resource_uuid} {r.result}: {r.message}" for r in report.resources if r.error]
    failures += report.problems + report.home_problems
    result = "something failed" if report.failed else "ok"
    ended = stamp(datetime.now(UTC))
    before = passes.last(state_dir, report.offering_uuid, report.mode)
    is_good = not subject and not report.failed
    entry = {
        "ended": ended,
        # Only ten passes are kept: this is of the last that was good, however long ago.
        "last_good": ended if is_good else (before[0].get("last_good") if before else None),
        "seconds": round(report.effort.seconds, 1),
        "subject": subject,
        "result": "ended by an error" if report.error is not None else result,
        "results": dict(report.counted()),
        "in_step": report.in_step,
        "actions": sum(outcome.done for outcome in report.outcomes),
        "kinds": dict(Counter(outcome.action.verb for outcome in report.outcomes if outcome.done)),
        "homes": dict(report.homes),
        "held": [plan.id for plan in report.held],
        "failures": failures[:FAILURES_SHOWN],
        "orders": _unfinished(report, before, ended),
    }
    is_eventful = any(entry[what] for what in ("failures", "results", "actions", "held"))
    idle = entry["result"] == "ok" and not is_eventful
    passes.add(state_dir, report.offering_uuid, report.mode, entry, idle=idle)
    if not subject:
        write_metrics(state_dir, report)


def _unfinished(report: PassReport, before: Sequence[Mapping[str, Any]], now: str) -> list[dict[str, str]]:
    """Return the orders that wait or are stuck, each with the time since which passes have found it so."""
    since: dict[str, str] = {}
    for entry in before:
        for order in entry.get("orders") or ():
            since.setdefault(order.get("order", ""), order.get("since", now))
    open_orders = [order for order in report.orders if order.result not in (Result.DONE, Result.FAILED)]
    return [
        {**order.as_json(), "since": since.get(order.order_uuid, now)} for order in open_orders[:ORDERS_KEPT]
    ]


def write_metrics(state_dir: Path, report: PassReport) -> None:
    """Write the metrics of a pass over everything of an offering for node_exporter's textfile collector."""
    folder = state_dir / "metrics"
    path = folder / f"{report.offering_uuid}-{report.mode}.prom"
    try:
        with files.acting_as_owner(state_dir):
            files.make_folder(folder)
            write_to_textfile(str(path), metrics(report))
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error.strerror)
    except StateError as error:
        log.warning("%s cannot be written: %s", path, error)


def metrics(report: PassReport) -> CollectorRegistry:
    """Return what dashboards and alerts need to know of a pass."""
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
