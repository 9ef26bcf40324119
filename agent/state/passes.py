# SPDX-License-Identifier: MIT
"""The last passes of each offering and mode, in `state_dir/passes`: what `status` shows without a broker."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.config.model import Mode, Offering
from agent.run import metrics
from agent.run.results import PassReport
from agent.state import json_files as state_files
from agent.state.json_files import Unreadable
from agent.state.store import stamp

KEPT = 10
FAILURES_SHOWN = 10


def record(state_dir: Path, report: PassReport, *, subject: str = "") -> None:
    """Write down how a pass ended. `subject`: the order or resource it was about, empty for all of them.

    Passes that found nothing to do replace each other.
    """
    path = _path(state_dir, report.offering_uuid, report.mode)
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
    before = _read(path)
    if before and _is_idle(before[0]) and _is_idle(entry):
        before = before[1:]
    state_files.write_json(state_dir, path, {"passes": [entry, *before][:KEPT]})
    if not subject:
        metrics.write(state_dir, report)


def last(state_dir: Path, offering: Offering, mode: Mode) -> list[dict[str, Any]]:
    """Newest first."""
    return _read(_path(state_dir, offering.uuid, mode))


def _path(state_dir: Path, offering_uuid: str, mode: str) -> Path:
    return state_dir / "passes" / f"{offering_uuid}-{mode}.json"


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        document = state_files.read_json(path) or {}
    except Unreadable:
        return []
    listed = document.get("passes")
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _is_idle(entry: dict[str, Any]) -> bool:
    return entry.get("result") == "ok" and not (
        entry.get("failures") or entry.get("results") or entry.get("actions") or entry.get("held")
    )


def _result(report: PassReport) -> str:
    if report.error is not None:
        return "ended by an error"
    return "something failed" if report.failed else "ok"


def _failures(report: PassReport) -> list[str]:
    found = [str(report.error)] if report.error else []
    found += [f"order {o.order_uuid} {o.result}: {o.message}" for o in report.orders if o.error]
    found += [f"resource {r.resource_uuid} {r.result}: {r.message}" for r in report.resources if r.error]
    return found + report.problems + report.home_problems
