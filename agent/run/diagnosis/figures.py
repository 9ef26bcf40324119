# SPDX-License-Identifier: MIT
"""The picture of a site as metrics: what passes did, what waits for a person, the queues, and who is alive."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from agent import __version__
from agent.config.model import Mode, Offering
from agent.core.errors import SiteAgentError
from agent.host.heartbeat import LastHeartbeat
from agent.observability.metrics import Sample
from agent.run.diagnosis import faults
from agent.run.diagnosis.picture import BrokerStatus, ModeStatus, Picture, moment
from agent.run.service import event_coverage
from agent.state.passes import SECONDS_UP_TO, Count, Figure

# By figure: the metric, and whether its labels have the kind and the outcome.
NAMES: Mapping[Figure, tuple[str, bool, bool]] = {
    Figure.PASSES: ("passes_total", True, True),
    Figure.ACTIONS: ("actions_total", True, True),
    Figure.RESULTS: ("results_total", True, True),
    Figure.REQUESTS: ("waldur_requests_total", True, False),
    Figure.COMMANDS: ("cluster_commands_total", True, False),
}


def of_picture(found: Picture) -> Iterator[Sample]:
    """Yield what passes did, what waits, and how many faults there are."""
    yield Sample("build_info", 1, (__version__,))
    for each in found.offerings:
        offering = each.offering
        yield from _sums(offering.uuid, each.sums)
        yield Sample("offering_info", 1, (offering.uuid, offering.name, offering.queue))
        yield Sample("paused", float(bool(each.paused)), (offering.uuid,))
        for mode in each.modes:
            waiting = [held.plan.since for held in each.held if held.held.mode == mode.mode]
            yield from _of_mode((offering.uuid, str(mode.mode)), mode, waiting)
    uuids = {each.offering.name: each.offering.uuid for each in found.offerings}
    number = Counter(
        (uuids.get(each.about, ""), each.name, each.state)
        for each in faults.of_site(found)
        if faults.is_fault(each)
    )
    for labels, count in number.items():
        yield Sample("faults", count, labels)


def of_heartbeats(heartbeats: Iterable[LastHeartbeat]) -> Iterator[Sample]:
    """Yield when parts on this host wrote heartbeats."""
    now_s = time.time()
    for last in heartbeats:
        if last.age_s is not None:
            yield Sample("part_heartbeat_timestamp_seconds", now_s - last.age_s, (last.part, last.name))


def of_broker(found: BrokerStatus, offerings: Iterable[Offering]) -> Iterator[Sample]:
    """Yield the queues, and what events cover; nothing where no broker is needed, or of one that is no Redis: RabbitMQ
    has an exporter of its own. Raises SiteAgentError where nothing is known.
    """
    if found.problem and not found.alone:
        raise SiteAgentError(found.problem)
    if found.unacknowledged is None:
        return
    for queue in found.queues:
        for priority, waiting in queue.by_priority.items():
            yield Sample("queue_length", waiting, (queue.name, str(priority)))
        if queue.oldest:
            yield Sample("queue_oldest_task_timestamp_seconds", queue.oldest.timestamp(), (queue.name,))
    yield Sample("tasks_unacknowledged", found.unacknowledged)
    for offering in offerings:
        for mode in sorted(event_coverage.modes_by_events(offering)):
            is_covered = mode in found.covered.get(offering.uuid, ())
            yield Sample("events_cover", float(is_covered), (offering.uuid, str(mode)))


def _sums(offering_uuid: str, sums: Iterable[Count]) -> Iterator[Sample]:
    seconds: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    total: dict[tuple[str, str], float] = defaultdict(float)
    for count in sums:
        whose = (offering_uuid, count.mode)
        if count.figure is Figure.SECONDS_UP_TO:
            seconds[whose][count.kind] = count.value
        elif count.figure is Figure.SECONDS:
            total[whose] = count.value
        else:
            name, has_kind, has_outcome = NAMES[count.figure]
            labels = (*whose, *([count.kind] if has_kind else ()), *([count.outcome] if has_outcome else ()))
            yield Sample(name, count.value, labels)
    for whose, found in seconds.items():
        buckets, below = [], 0.0
        for bound in (*SECONDS_UP_TO, float("inf")):
            below += found.get(str(bound), 0.0)
            buckets.append(("+Inf" if bound == float("inf") else str(bound), below))
        yield Sample("pass_duration_seconds", total[whose], whose, tuple(buckets))


def _of_mode(whose: tuple[str, str], found: ModeStatus, waiting: list[datetime]) -> Iterator[Sample]:
    ended = moment(found.passes[0].get("ended")) if found.passes else None
    yield Sample("last_pass_timestamp_seconds", ended.timestamp() if ended else 0, whose)
    good = found.last_good.timestamp() if found.last_good else 0
    yield Sample("last_good_pass_timestamp_seconds", good, whose)
    if found.mode is Mode.REPORT:
        yield Sample("usage_reported_timestamp_seconds", good, whose[:1])
    for result, number in sorted(_numbers(found.whole.get("results")).items()):
        yield Sample("last_pass_results", number, (*whose, result))
    if found.whole:
        yield Sample("resources_in_step", _number(found.whole.get("in_step")), whose)
    for state, number in sorted(_numbers(found.whole.get("homes")).items()):
        yield Sample("homes", number, (*whose, state))
    yield Sample("held_plans", len(waiting), whose)
    if waiting:
        yield Sample("oldest_held_plan_timestamp_seconds", min(waiting).timestamp(), whose)
    yield Sample("skipped_actions", found.skipped.count, whose)
    if found.drift is not None:
        yield Sample("drift_actions", found.drift.differences, whose)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _numbers(value: Any) -> dict[str, float]:
    return {str(name): _number(each) for name, each in value.items()} if isinstance(value, dict) else {}
