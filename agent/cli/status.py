# SPDX-License-Identifier: MIT
"""`status`: each offering's mode, pause, held plans and last passes, from this head node's files. Needs no broker."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from agent.cli import approve
from agent.cli.moments import age
from agent.cli.options import (
    chosen,
    config_option,
    json_option,
    number,
    offering_option,
    print_json,
    settings_from,
)
from agent.config.model import Mode, Offering, Settings
from agent.state import drifts, left_out, passes, pauses

PASSES_SHOWN = 3
LEFT_OUT_SHOWN = 3


@click.command()
@config_option
@offering_option
@json_option
def command(config_file: Path | None, offering_uuid: str | None, as_json: bool) -> int:
    """Show how far each offering's passes may go, what waits for a person, and how the last passes ended."""
    settings = settings_from(config_file)
    offerings = chosen(settings, offering_uuid)
    entries = [entry for entry in approve.waiting(settings) if entry[0].offering in offerings]
    if as_json:
        print_json({
            "state_dir": str(settings.state_dir),
            "offerings": [_document(settings, offering, entries) for offering in offerings],
        })  # fmt: skip
    else:
        for offering in offerings:
            click.echo("\n".join(_lines(settings, offering, entries)))
    return 0


def _document(settings: Settings, offering: Offering, entries: list[approve.Entry]) -> dict[str, Any]:
    return {
        "offering": offering.uuid,
        "name": offering.name,
        "mode": offering.policy.mode,
        "paused": _pause(settings, offering) or None,
        "held": [approve.as_document(entry) for entry in entries if entry[0].offering is offering],
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


def _lines(settings: Settings, offering: Offering, entries: list[approve.Entry]) -> list[str]:
    found = [f"{offering.name} ({offering.uuid})", f"  mode: {offering.policy.mode}"]
    if pause := _pause(settings, offering):
        found.append(f"  paused {pause}; `pause {offering.uuid} --off` lets it go on")
    for entry in entries:
        if entry[0].offering is offering:
            found += approve.lines_of(entry, indent="  ")
    for mode in Mode:
        if offering.backend_of(mode):
            found += _left_out(settings, offering, mode)
            found += _passes(settings, offering, mode)
            found += _drift(settings, offering, mode)
    return found


def _drift(settings: Settings, offering: Offering, mode: Mode) -> list[str]:
    found = drifts.last(settings.state_dir, offering.uuid, mode)
    if found is None or not found.differences:
        return []
    kinds = ", ".join(f"{count} {verb}" for verb, count in found.kinds.items())
    return [f"  {mode}: drift since {found.since}: {kinds} (looked at {found.looked}; `drift` looks now)"]


def _pause(settings: Settings, offering: Offering) -> str:
    note = pauses.pause_note(settings.state_dir, offering)
    return note or (offering.policy.paused_why if offering.policy.paused else "")


def _left_out(settings: Settings, offering: Offering, mode: Mode) -> list[str]:
    found = left_out.last(settings.state_dir, offering.uuid, mode)
    if not found.count:
        return []
    shown = found.lines[:LEFT_OUT_SHOWN]
    more = found.count - len(shown)
    head = f"  {mode}: {number(found.count, 'action')} left out since {found.since}"
    return [head, *(f"    {line}" for line in shown), *([f"    and {more} more"] if more > 0 else [])]


def _passes(settings: Settings, offering: Offering, mode: Mode) -> list[str]:
    listed = passes.last(settings.state_dir, offering.uuid, mode)
    if not listed:
        return [f"  {mode}: no pass has ended on this head node yet"]
    found = []
    for entry in listed[:PASSES_SHOWN]:
        what = f" of {entry['subject']}" if entry.get("subject") else ""
        found.append(
            f"  {mode}{what}: {entry.get('result')} {_ago(entry)}: {_done(entry)}, {entry.get('seconds')} s"
        )
        found += _homes(entry)
        found += [f"    {failure}" for failure in entry.get("failures", ())]
    return found


def _done(entry: dict[str, Any]) -> str:
    """What became of the orders or resources, and how much was done; by kind where no resource needed anything."""
    counts = ", ".join(f"{count} {result}" for result, count in (entry.get("results") or {}).items())
    actions = number(entry.get("actions", 0), "action")
    if counts or not entry.get("actions"):
        return f"{counts or 'nothing to do'}, {actions}"
    kinds = ", ".join(f"{count} {verb}" for verb, count in (entry.get("kinds") or {}).items())
    return f"{entry.get('in_step', 0)} in step, {actions}{f' ({kinds})' if kinds else ''}"


def _homes(entry: dict[str, Any]) -> list[str]:
    """Homes that are not there yet, and why; those that are need no line."""
    homes = entry.get("homes") or {}
    told = {
        "waiting": "for users that this head node does not know yet",
        "unknown": "could not be looked up",
        "later": "left for the next pass",
        "failed": "failed",
    }
    parts = [f"{homes[state]} {words}" for state, words in told.items() if homes.get(state)]
    return [f"    homes wait: {', '.join(parts)}"] if parts else []


def _ago(entry: dict[str, Any]) -> str:
    try:
        return f"{age(datetime.fromisoformat(entry['ended']))} ago"
    except (KeyError, TypeError, ValueError):
        return "some time ago"
