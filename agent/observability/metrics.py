# SPDX-License-Identifier: MIT
"""The metrics that dashboards and alerts may name: one table, which docs/metrics.md is made from, and their text form.

Values come as `Sample`s from those who know them. Labels are of few values each: no account, no person, no order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

PREFIX = "waldur_site_"


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Origin(StrEnum):
    """Who knows a metric, and what it is lost with."""

    HEAD_NODE = "head node"
    BROKER = "broker"
    BRIDGE = "bridge"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric that the agent exports."""

    # As Prometheus has it, without the suffixes of a histogram.
    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    origin: Origin = Origin.HEAD_NODE


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric."""

    metric: str
    # Of a histogram: the sum.
    value: float
    labels: tuple[str, ...] = ()
    # Of a histogram: the number of events up to each bound.
    buckets: tuple[tuple[str, float], ...] = ()


Source = Callable[[], Iterable[Sample]]

_OFFERING, _MODE = ("offering",), ("offering", "mode")
_TABLE = (
    Metric("build_info", Kind.GAUGE, "1; the version of the agent.", ("version",)),
    Metric(
        "offering_info",
        Kind.GAUGE,
        "1; the name and the queue of an offering.",
        ("offering", "name", "queue"),
    ),
    Metric(
        "passes_total",
        Kind.COUNTER,
        "Passes that ended: `ok`, `failed` (something needs a look), `error` (it could not look at anything); "
        "`scope` `all`, or `part` for single orders and resources.",
        (*_MODE, "scope", "outcome"),
    ),
    Metric("pass_duration_seconds", Kind.HISTOGRAM, "How long passes over everything took.", _MODE),
    Metric(
        "last_pass_timestamp_seconds",
        Kind.GAUGE,
        "When the last pass ended, of one resource or order too; 0: none yet.",
        _MODE,
    ),
    Metric(
        "last_good_pass_timestamp_seconds",
        Kind.GAUGE,
        "When a pass over everything ended last without anything to look at; 0: none yet.",
        _MODE,
    ),
    Metric(
        "usage_reported_timestamp_seconds",
        Kind.GAUGE,
        "When all usage of the offering was last read and reported to Waldur; 0: never.",
        _OFFERING,
    ),
    Metric(
        "actions_total",
        Kind.COUNTER,
        "Actions carried out (`done`) or tried (`failed`), by [kind](actions.md).",
        (*_MODE, "action", "outcome"),
    ),
    Metric(
        "results_total",
        Kind.COUNTER,
        "Orders and resources that passes looked at, by what became of them; `stuck` needs an operator.",
        (*_MODE, "subject", "result"),
    ),
    Metric(
        "last_pass_results",
        Kind.GAUGE,
        "Orders or resources of the last pass over everything, by what became of them.",
        (*_MODE, "result"),
    ),
    Metric(
        "resources_in_step",
        Kind.GAUGE,
        "Resources that needed nothing in the last pass over everything.",
        _MODE,
    ),
    Metric("homes", Kind.GAUGE, "Users of the last pass by what became of their homes.", (*_MODE, "state")),
    Metric(
        "waldur_requests_total",
        Kind.COUNTER,
        "Requests that passes sent to Waldur, by method and path.",
        (*_MODE, "request"),
    ),
    Metric(
        "cluster_commands_total",
        Kind.COUNTER,
        "Commands that passes started on the cluster: `read` and `write`.",
        (*_MODE, "kind"),
    ),
    Metric(
        "faults",
        Kind.GAUGE,
        "Faults that `doctor` and the page of `status` name (`warning`, `problem`); without an offering those of the "
        "broker, beat and the parts of this host. Workers are not asked.",
        ("offering", "check", "state"),
    ),
    Metric("held_plans", Kind.GAUGE, "Plans that wait for `approve`.", _MODE),
    Metric(
        "oldest_held_plan_timestamp_seconds",
        Kind.GAUGE,
        "Since when the oldest plan waits for `approve`; nothing where none does.",
        _MODE,
    ),
    Metric("skipped_actions", Kind.GAUGE, "Actions that are skipped because of the policy.", _MODE),
    Metric("drift_actions", Kind.GAUGE, "Differences that the last drift report found.", _MODE),
    Metric("paused", Kind.GAUGE, "1 while the offering is paused.", _OFFERING),
    Metric(
        "part_heartbeat_timestamp_seconds",
        Kind.GAUGE,
        "When a worker, beat or bridge of this host wrote its last heartbeat, as `healthz` sees it.",
        ("part", "name"),
    ),
    Metric(
        "source_up",
        Kind.GAUGE,
        "1 when a source of metrics could be read: `state`, `health` (the heartbeats), `broker`.",
        ("source",),
    ),
    Metric("queue_length", Kind.GAUGE, "Tasks that wait in a queue.", ("queue", "priority"), Origin.BROKER),
    Metric(
        "queue_oldest_task_timestamp_seconds",
        Kind.GAUGE,
        "When the task that waits longest in a queue was sent: `time() -` this is the lag; nothing while it is empty.",
        ("queue",),
        Origin.BROKER,
    ),
    Metric(
        "tasks_unacknowledged",
        Kind.GAUGE,
        "Tasks that workers have taken and not ended: running, or waiting for their next attempt.",
        (),
        Origin.BROKER,
    ),
    Metric(
        "events_cover",
        Kind.GAUGE,
        "1 while a bridge listens to the events of a mode, for offerings that have events; else it is polled.",
        _MODE,
        Origin.BROKER,
    ),
    Metric(
        "bridge_messages_total",
        Kind.COUNTER,
        "Messages of Waldur's brokers: `understood`, `nothing_due`, `dead_letter`, `fault`.",
        ("result",),
        Origin.BRIDGE,
    ),
    Metric(
        "bridge_jobs_total",
        Kind.COUNTER,
        "Jobs that messages asked for: `queued`, or `merged` with one that waits already.",
        ("result",),
        Origin.BRIDGE,
    ),
    Metric(
        "bridge_gaps_total",
        Kind.COUNTER,
        "Times that messages may have been missed, so that a full pass was queued.",
        (),
        Origin.BRIDGE,
    ),
    Metric(
        "bridge_inbox_messages", Kind.GAUGE, "Messages that came and are not queued yet.", (), Origin.BRIDGE
    ),
    Metric(
        "bridge_lag_seconds",
        Kind.GAUGE,
        "Age of the oldest message that came and is not queued yet; 0 when there is none.",
        (),
        Origin.BRIDGE,
    ),
    Metric(
        "bridge_event_types",
        Kind.GAUGE,
        "Types of events of an offering: `wanted` by its configuration, and `listened` to now.",
        ("offering", "state"),
        Origin.BRIDGE,
    ),
)
METRICS: Mapping[str, Metric] = {
    f"{PREFIX}{metric.name}": Metric(
        f"{PREFIX}{metric.name}", metric.kind, metric.meaning, metric.labels, metric.origin
    )
    for metric in _TABLE
}


class SiteCollector(Collector):
    """Asks each source when Prometheus asks. One that fails is skipped, and `source_up` says so."""

    def __init__(self, sources: Mapping[str, Source], failures: tuple[type[Exception], ...]) -> None:
        self._sources = sources
        self._failures = failures

    def collect(self) -> Iterator[Family]:
        """Yield the metrics that have values."""
        found: list[Sample] = []
        for name, source in self._sources.items():
            try:
                found += list(source())
                is_up = True
            except self._failures as error:
                log.warning("metrics: %s cannot be read: %s", name, error)
                is_up = False
            found.append(Sample("source_up", float(is_up), (name,)))
        yield from families(found)


def families(samples: Iterable[Sample]) -> Iterator[Family]:
    """Yield the metrics of these samples in their text form. Raises KeyError for a name that is in no table."""
    order = {name: place for place, name in enumerate(METRICS)}
    ordered = sorted(samples, key=lambda sample: (order[PREFIX + sample.metric], sample.labels))
    for name, group in groupby(ordered, key=lambda sample: PREFIX + sample.metric):
        metric = METRICS[name]
        yield _family(metric, list(group))


def _family(metric: Metric, samples: Sequence[Sample]) -> Family:
    # The text form has one line for each; links are for the page.
    meaning = metric.meaning.replace("[kind](actions.md)", "kind")
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, meaning, labels=metric.labels)
        for each in samples:
            histogram.add_metric(each.labels, list(each.buckets), each.value)
        return histogram
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, meaning, labels=metric.labels)
    for each in samples:
        family.add_metric(each.labels, each.value)
    return family
