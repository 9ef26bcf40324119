# SPDX-License-Identifier: MIT
"""Record how a pass ended, for `status`, and what it did, for the metrics: both in the state file.

What cannot be written is a warning.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.config.model import Mode
from agent.run.results import OrderResult, PassReport, Result, waits
from agent.state import counts, passes
from agent.state.counts import SECONDS_UP_TO, Figure
from agent.state.store import stamp

FAILURES_SHOWN = 10
NOTES_SHOWN = 5
ORDERS_KEPT = 100
# What may stand in the path of a request as it is; whatever else does is an identifier.
_WORD = re.compile(r"[a-z_-]{1,60}|\{uuid\}|")


def record(state_dir: Path, report: PassReport, *, subject: str = "") -> None:
    """Write down a pass. `subject`: the order or resource it was about, empty for all of them."""
    result = "something failed" if report.failed else "ok"
    ended = stamp(datetime.now(UTC))
    is_good = not subject and not report.failed
    unfinished = [order for order in report.orders if order.result not in (Result.DONE, Result.FAILED)]
    # A good pass over everything that leaves nothing open needs no word of those before it.
    is_new = is_good and not unfinished
    before = [] if is_new else passes.last(state_dir, report.offering_uuid, report.mode)
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
        "failures": _failures(report),
        "notes": report.notes[:NOTES_SHOWN],
        "waits": _waits(report),
        "orders": _with_age(unfinished, before, ended),
    }
    is_eventful = any(entry[what] for what in ("failures", "results", "actions", "held"))
    idle = entry["result"] == "ok" and not is_eventful
    passes.add(
        state_dir,
        report.offering_uuid,
        report.mode,
        entry,
        idle=idle,
        sums=sums(report, is_whole=not subject),
    )


def _failures(report: PassReport) -> list[str]:
    """Return what went wrong in a pass, a sentence each, as many as `status` shows."""
    failures = [str(report.error)] if report.error else []
    failures += [f"order {o.order_uuid} {o.result}: {o.message}" for o in report.orders if o.error]
    failures += [f"resource {r.resource_uuid} {r.result}: {r.message}" for r in report.resources if r.error]
    failures += report.problems + report.home_problems
    return failures[:FAILURES_SHOWN]


def _waits(report: PassReport) -> list[str]:
    """Return for whom a report waits, and why, where that is no error; other passes tell of it at the order or plan."""
    if report.mode != Mode.REPORT:
        return []
    return waits([each for each in report.resources if each.error is None])[:FAILURES_SHOWN]


def _with_age(
    orders: Sequence[OrderResult], before: Sequence[Mapping[str, Any]], now: str
) -> list[dict[str, str]]:
    """Return orders that wait or are stuck, each with the time since which passes have found it so."""
    since: dict[str, str] = {}
    for entry in before:
        for order in entry.get("orders") or ():
            since.setdefault(order.get("order", ""), order.get("since", now))
    return [{**order.as_json(), "since": since.get(order.order_uuid, now)} for order in orders[:ORDERS_KEPT]]


def count(state_dir: Path, report: PassReport) -> None:
    """Add what was done beside the passes over orders, members and usage to the sums."""
    counts.add(state_dir, report.offering_uuid, report.mode, _work(report))


def sums(report: PassReport, *, is_whole: bool) -> dict[tuple[Figure, str, str], float]:
    """Return what a pass adds to the sums of its offering and mode; how long it took only for one over everything."""
    found = _work(report)
    kind = "all" if is_whole else "part"
    outcome = "error" if report.error is not None else "failed" if report.failed else "ok"
    found[Figure.PASSES, kind, outcome] = 1
    for order in report.orders:
        found[Figure.RESULTS, "order", order.result] += 1
    for resource in report.resources:
        found[Figure.RESULTS, "resource", resource.result] += 1
    if is_whole:
        seconds = report.effort.seconds
        bound = next((bound for bound in SECONDS_UP_TO if seconds <= bound), float("inf"))
        found[Figure.SECONDS_UP_TO, str(bound), ""] = 1
        found[Figure.SECONDS, "", ""] = seconds
    return found


def _work(report: PassReport) -> dict[tuple[Figure, str, str], float]:
    found: dict[tuple[Figure, str, str], float] = defaultdict(float)
    for outcome in report.outcomes:
        name = type(outcome.action).__name__
        found[Figure.ACTIONS, name, "done" if outcome.done else "failed"] += 1
    for request, number in report.effort.requests.items():
        found[Figure.REQUESTS, _bounded(request), ""] += number
    for command, number in report.effort.commands.items():
        found[Figure.COMMANDS, command, ""] += number
    return found


def _bounded(request: str) -> str:
    """Return the method and path of a request without names in it, of which there may be any number."""
    method, _, path = request.partition(" ")
    return f"{method} {'/'.join(p if _WORD.fullmatch(p) else '{id}' for p in path.split('/'))}"
