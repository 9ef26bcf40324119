# SPDX-License-Identifier: MIT
"""How a pass ended, written down for `status` and for Prometheus. What cannot be written is a warning."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from agent.run import metrics
from agent.run.results import PassReport
from agent.state import passes
from agent.state.store import stamp

FAILURES_SHOWN = 10


def record(state_dir: Path, report: PassReport, *, subject: str = "") -> None:
    """Write down a pass. `subject`: the order or resource it was about, empty for all of them."""
    entry = {
        "ended": stamp(datetime.now(UTC)),
        "seconds": round(report.effort.seconds, 1),
        "subject": subject,
        "result": _result(report),
        "results": dict(report.counted()),
        "in_step": report.in_step,
        "actions": sum(outcome.done for outcome in report.outcomes),
        "kinds": dict(Counter(outcome.action.verb for outcome in report.outcomes if outcome.done)),
        "homes": dict(report.homes),
        "held": [plan.id for plan in report.held],
        "failures": _failures(report)[:FAILURES_SHOWN],
    }
    is_eventful = any(entry[what] for what in ("failures", "results", "actions", "held"))
    passes.add(
        state_dir,
        report.offering_uuid,
        report.mode,
        entry,
        idle=entry["result"] == "ok" and not is_eventful,
    )
    if not subject:
        metrics.write(state_dir, report)


def _result(report: PassReport) -> str:
    if report.error is not None:
        return "ended by an error"
    return "something failed" if report.failed else "ok"


def _failures(report: PassReport) -> list[str]:
    found = [str(report.error)] if report.error else []
    found += [f"order {o.order_uuid} {o.result}: {o.message}" for o in report.orders if o.error]
    found += [f"resource {r.resource_uuid} {r.result}: {r.message}" for r in report.resources if r.error]
    return found + report.problems + report.home_problems
