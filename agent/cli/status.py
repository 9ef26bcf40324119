# SPDX-License-Identifier: MIT
"""`status`: each offering's mode, pause, held plans and last passes, from this head node's files. Needs no broker."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from agent.cli.approve import ListedPlan, waiting_plans
from agent.cli.moments import age
from agent.cli.options import (
    config_option,
    json_option,
    load_settings,
    number,
    offering_option,
    print_json,
    select_offerings,
)
from agent.cli.output import echo
from agent.config.model import Mode, Offering, Settings
from agent.state import drifts, left_out, passes, pauses

PASSES_SHOWN = 3
LEFT_OUT_SHOWN = 3
HOMES_WAIT = {
    "waiting": "for users that this head node does not know yet",
    "unknown": "could not be looked up",
    "later": "left for the next pass",
    "failed": "failed",
}


@click.command()
@config_option
@offering_option
@json_option
def command(config_file: Path | None, offering_uuid: str | None, as_json: bool) -> int:
    """Show how far each offering's passes may go, what waits for a person, and how the last passes ended."""
    settings = load_settings(config_file)
    offerings = select_offerings(settings, offering_uuid)
    waiting = waiting_plans(settings)
    if as_json:
        print_json({
            "state_dir": str(settings.state_dir),
            "offerings": [_document(settings, offering, waiting) for offering in offerings],
        })  # fmt: skip
    else:
        for offering in offerings:
            echo(*_lines(settings, offering, waiting))
    return 0


def _document(settings: Settings, offering: Offering, waiting: list[ListedPlan]) -> dict[str, Any]:
    return {
        "offering": offering.uuid,
        "name": offering.name,
        "mode": offering.policy.mode,
        "paused": _pause(settings, offering) or None,
        "held": [each.as_json() for each in waiting if each.held.offering is offering],
        "left_out": {
            mode: left_out.last(settings.state_dir, offering.uuid, mode).as_json()
            for mode in Mode
            if offering.backend_of(mode)
        },
        "passes": {
            mode: passes.last(settings.state_dir, offering.uuid, mode)
            for mode in Mode
            if offering.backend_of(mode)
        },
    }


def _lines(settings: Settings, offering: Offering, waiting: list[ListedPlan]) -> list[str]:
    state_dir = settings.state_dir
    lines = [f"{offering.name} ({offering.uuid})", f"  mode: {offering.policy.mode}"]
    if pause := _pause(settings, offering):
        lines.append(f"  paused {pause}; `pause {offering.uuid} --off` lets it go on")
    for each in waiting:
        if each.held.offering is offering:
            lines += each.lines(indent="  ")
    for mode in Mode:
        if not offering.backend_of(mode):
            continue
        ignored = left_out.last(state_dir, offering.uuid, mode)
        if ignored.count:
            shown = ignored.lines[:LEFT_OUT_SHOWN]
            more = ignored.count - len(shown)
            lines.append(f"  {mode}: {number(ignored.count, 'action')} left out since {ignored.since}")
            lines += [f"    {line}" for line in shown]
            lines += [f"    and {more} more"] if more > 0 else []
        ended = passes.last(state_dir, offering.uuid, mode)
        if not ended:
            lines.append(f"  {mode}: no pass has ended on this head node yet")
        for entry in ended[:PASSES_SHOWN]:
            try:
                lines += _pass_lines(mode, entry)
            except (AttributeError, KeyError, TypeError, ValueError):
                lines.append(f"  {mode}: a pass ended, and what is written of it cannot be read")
        drift = drifts.last(state_dir, offering.uuid, mode)
        if drift is not None and drift.differences:
            kinds = ", ".join(f"{count} {verb}" for verb, count in drift.kinds.items())
            lines.append(
                f"  {mode}: drift since {drift.since}: {kinds} (looked at {drift.looked}; `drift` looks now)"
            )
    return lines


def _pass_lines(mode: Mode, entry: dict[str, Any]) -> list[str]:
    """Return what one pass did to orders or resources, by kind where no resource needed anything; then homes that are
    not there yet, and failures.
    """
    try:
        ended = f"{age(datetime.fromisoformat(entry['ended']))} ago"
    except (KeyError, TypeError, ValueError):
        ended = "some time ago"
    results = ", ".join(f"{count} {result}" for result, count in (entry.get("results") or {}).items())
    actions = number(entry.get("actions", 0), "action")
    done = f"{results or 'nothing to do'}, {actions}"
    if not results and entry.get("actions"):
        kinds = ", ".join(f"{count} {verb}" for verb, count in (entry.get("kinds") or {}).items())
        done = f"{entry.get('in_step', 0)} in step, {actions}{f' ({kinds})' if kinds else ''}"
    subject = f" of {entry['subject']}" if entry.get("subject") else ""
    lines = [f"  {mode}{subject}: {entry.get('result')} {ended}: {done}, {entry.get('seconds')} s"]
    homes = entry.get("homes") or {}
    if waits := [f"{homes[state]} {text}" for state, text in HOMES_WAIT.items() if homes.get(state)]:
        lines.append(f"    homes wait: {', '.join(waits)}")
    return [*lines, *(f"    {failure}" for failure in entry.get("failures", ()))]


def _pause(settings: Settings, offering: Offering) -> str:
    note = pauses.pause_note(settings.state_dir, offering)
    return note or (offering.policy.paused_why if offering.policy.paused else "")
