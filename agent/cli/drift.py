# SPDX-License-Identifier: MIT
"""`drift`: how far the cluster is from what Waldur wants, for all modes; the same comparison as a pass, read only."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from agent.cli import plan
from agent.cli.commands.shared import EXIT_CHANGES
from agent.cli.options import STEERING, number, print_errors, print_json, select_offerings
from agent.cli.output import echo
from agent.cli.plan import OfferingPlan
from agent.cli.settings import load_settings
from agent.config.model import Mode
from agent.run.preview import drift


def command(config_file: Path | None, offering_uuid: str | None, as_json: bool, exit_code: bool) -> int:
    settings = load_settings(config_file)
    compared = [
        (mode, plan.plan_offering(settings, offering, mode))
        for offering in select_offerings(settings, offering_uuid)
        for mode in STEERING
        if offering.backend_of(mode)
    ]
    if as_json:
        documents = []
        for mode, planned in compared:
            kinds = _kinds(planned)
            count = sum(kinds.values()) if planned.plan else None
            documents.append({"mode": mode, "differences": count, "by_kind": kinds, **planned.as_json()})
        print_json({"drift": documents})
    else:
        for mode, planned in compared:
            _print(mode, planned)
        print_errors((planned.offering, planned.error) for _, planned in compared)
    if any(planned.error for _, planned in compared):
        return 1
    return EXIT_CHANGES if exit_code and any(_kinds(planned) for _, planned in compared) else 0


def _kinds(planned: OfferingPlan) -> dict[str, int]:
    """Count everything that differs by kind, whether or not the policy lets a pass change it."""
    actions = drift.actions(planned.plan) if planned.plan else ()
    return dict(sorted(Counter(action.verb for action in actions).items()))


def _print(mode: Mode, planned: OfferingPlan) -> None:
    if planned.plan is None:
        return
    kinds = _kinds(planned)
    if not kinds and not planned.plan.unplanned:
        echo(f"# {planned.offering.name}, {mode}: no drift")
        return
    listed = ", ".join(f"{count} x {verb}" for verb, count in kinds.items()) or "none planned"
    count = number(sum(kinds.values()), "difference")
    echo(f"# {planned.offering.name}, {mode}: {count} ({listed})")
    for line in planned.lines():
        echo(line)
