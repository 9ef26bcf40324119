# SPDX-License-Identifier: MIT
"""`drift`: how far the cluster is from what Waldur wants, for all modes; the same comparison as a pass, read only."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from agent.cli import plan
from agent.cli.options import (
    STEERING,
    chosen,
    complain,
    config_option,
    json_option,
    number,
    offering_option,
    print_json,
    settings_from,
)
from agent.cli.plan import EXIT_CHANGES, Planned
from agent.config.model import Mode
from agent.run.preview import drift
from agent.run.preview.previews import Preview

Report = dict[Mode, Planned]


@click.command()
@config_option
@offering_option
@json_option
@click.option("--exit-code", is_flag=True, help=f"End with {EXIT_CHANGES} when something differs.")
def command(config_file: Path | None, offering_uuid: str | None, as_json: bool, exit_code: bool) -> int:
    """Report how the cluster differs from what Waldur wants, in every mode. Reads both, changes neither."""
    settings = settings_from(config_file)
    reports = [
        {mode: plan.made(settings, offering, mode) for mode in STEERING if offering.backend_of(mode)}
        for offering in chosen(settings, offering_uuid)
    ]
    if as_json:
        print_json(
            {"drift": [_document(mode, planned) for report in reports for mode, planned in report.items()]}
        )
    else:
        for report in reports:
            for mode, planned in report.items():
                _print(mode, planned)
    made = [planned for report in reports for planned in report.values()]
    if any(planned.error for planned in made):
        return 1
    return EXIT_CHANGES if exit_code and any(p.plan and _differences(p.plan) for p in made) else 0


def _differences(found: Preview) -> int:
    """Everything that differs, whether or not the policy lets a pass mend it."""
    return len(drift.actions(found))


def _document(mode: Mode, planned: Planned) -> dict[str, Any]:
    found = planned.plan
    return {
        "mode": mode,
        "differences": _differences(found) if found else None,
        "by_kind": dict(sorted(_kinds(found).items())) if found else {},
        **plan.document(planned),
    }


def _kinds(found: Preview) -> Counter[str]:
    return Counter(action.verb for action in drift.actions(found))


def _print(mode: Mode, planned: Planned) -> None:
    if planned.error is not None:
        complain(planned.offering, planned.error)
    if planned.plan is None:
        return
    count = _differences(planned.plan)
    if not count and not planned.plan.unplanned:
        click.echo(f"# {planned.offering.name}, {mode}: no drift")
        return
    kinds = ", ".join(f"{count} x {verb}" for verb, count in sorted(_kinds(planned.plan).items()))
    click.echo(
        f"# {planned.offering.name}, {mode}: {number(count, 'difference')} ({kinds or 'none planned'})"
    )
    for line in plan.lines_of(planned.plan):
        click.echo(line)
