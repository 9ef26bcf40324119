# SPDX-License-Identifier: MIT
"""The metrics that this head node's files tell: what passes did, what waits for a person, who is alive. Reads only."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from agent import __version__
from agent.config.model import Mode, Offering, Settings
from agent.host import heartbeat
from agent.observability.metrics import Sample
from agent.state import counts, drifts, held_plans, left_out, passes, pauses
from agent.state.counts import SECONDS_UP_TO, Figure
from agent.state.store import Store

# By figure: the metric, and whether its labels have the kind and the outcome.
NAMES: Mapping[Figure, tuple[str, bool, bool]] = {
    Figure.PASSES: ("passes_total", True, True),
    Figure.ACTIONS: ("actions_total", True, True),
    Figure.RESULTS: ("results_total", True, True),
    Figure.REQUESTS: ("waldur_requests_total", True, False),
    Figure.COMMANDS: ("cluster_commands_total", True, False),
}


def of_state(settings: Settings) -> Iterator[Sample]:
    """Yield what passes did and what waits, of the offerings of this configuration. Raises StateError."""
    yield Sample("build_info", 1, (__version__,))
    store = Store(settings.state_dir)
    with store.read():
        pass  # one clear error, instead of a warning for each table
    yield from _sums(settings)
    waiting: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for held in held_plans.all_held(store, settings.offerings):
        for plan in held.planned():
            waiting[plan.offering, plan.mode].append(plan.since)
    for offering in settings.offerings:
        yield Sample("offering_info", 1, (offering.uuid, offering.name, offering.queue))
        is_paused = bool(pauses.pause_note(store, offering) or offering.policy.paused)
        yield Sample("paused", float(is_paused), (offering.uuid,))
        for mode in Mode:
            if offering.backend_of(mode):
                yield from _of_mode(store, offering, mode, waiting[offering.uuid, mode])


def of_health(settings: Settings) -> Iterator[Sample]:
    """Yield the signs of life of the parts on this host. Raises OSError, StateError."""
    now = time.time()
    for sign in heartbeat.signs(settings.state_dir):
        yield Sample("part_heartbeat_timestamp_seconds", now - sign.age_s, (sign.part, sign.name))


def _sums(settings: Settings) -> Iterator[Sample]:
    known = {offering.uuid for offering in settings.offerings}
    seconds: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    total: dict[tuple[str, str], float] = defaultdict(float)
    for count in counts.all_of(settings.state_dir):
        if count.offering not in known:
            continue
        whose = (count.offering, count.mode)
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


def _of_mode(store: Store, offering: Offering, mode: Mode, waiting: list[datetime]) -> Iterator[Sample]:
    whose = (offering.uuid, str(mode))
    ended = passes.last(store, offering.uuid, mode)
    yield Sample("last_pass_timestamp_seconds", _seconds(ended[0].get("ended") if ended else None), whose)
    good = _seconds(ended[0].get("last_good") if ended else None)
    yield Sample("last_good_pass_timestamp_seconds", good, whose)
    if mode is Mode.REPORT:
        yield Sample("usage_reported_timestamp_seconds", good, (offering.uuid,))
    whole = next((entry for entry in ended if not entry.get("subject")), {})
    for result, number in sorted(_numbers(whole.get("results")).items()):
        yield Sample("last_pass_results", number, (*whose, result))
    if whole:
        yield Sample("resources_in_step", _number(whole.get("in_step")), whose)
    for state, number in sorted(_numbers(whole.get("homes")).items()):
        yield Sample("homes", number, (*whose, state))
    yield Sample("held_plans", len(waiting), whose)
    if waiting:
        yield Sample("oldest_held_plan_timestamp_seconds", min(waiting).timestamp(), whose)
    yield Sample("left_out_actions", left_out.last(store, offering.uuid, mode).count, whose)
    drift = drifts.last(store, offering.uuid, mode)
    if drift is not None:
        yield Sample("drift_actions", drift.differences, whose)


def _seconds(text: Any) -> float:
    """Return a moment that a pass has written in seconds since 1970, 0 for anything else."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return 0.0


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _numbers(value: Any) -> dict[str, float]:
    return {str(name): _number(each) for name, each in value.items()} if isinstance(value, dict) else {}
