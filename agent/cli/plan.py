# SPDX-License-Identifier: MIT
"""`plan MODE`: every action that a pass would carry out now, with its reason; nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agent.cli.options import (
    MODE_EPILOG,
    chosen,
    complain,
    config_option,
    json_option,
    mode_argument,
    offering_option,
    print_json,
    say_unserved,
    settings_from,
)
from agent.config.model import Mode, Offering, Settings
from agent.core.errors import SiteAgentError
from agent.run import orders
from agent.run.order_plan import PlannedPass
from agent.run.sites import connect

EXIT_CHANGES = 3


@dataclass(frozen=True, slots=True)
class _Planned:
    """One offering: its plan, or what kept it from being made."""

    offering: Offering
    plan: PlannedPass | None = None
    error: SiteAgentError | None = None
    commands: Sequence[str] = ()


@click.command(epilog=MODE_EPILOG)
@mode_argument
@config_option
@offering_option
@json_option
@click.option("--commands", "as_commands", is_flag=True, help="Print the cluster commands that would be run.")
@click.option("--exit-code", is_flag=True, help=f"End with {EXIT_CHANGES} when there is something to do.")
def command(
    mode: str,
    config_file: Path | None,
    offering_uuid: str | None,
    as_json: bool,
    as_commands: bool,
    exit_code: bool,
) -> int:
    """Show what a pass of MODE would do. Reads Waldur and the cluster, changes neither."""
    if as_json and as_commands:
        raise click.UsageError("--json and --commands are two ways to print one plan: choose one.")
    settings = settings_from(config_file)
    served = [o for o in chosen(settings, offering_uuid) if o.backend_of(Mode(mode))]
    planned = [_plan(settings, offering, Mode(mode), as_commands=as_commands) for offering in served]
    if not served:
        say_unserved(mode)
    if as_json:
        print_json({"offerings": [_document(each) for each in planned]})
    else:
        for each in planned:
            _print(each, as_commands=as_commands)
    if any(each.error for each in planned):
        return 1
    changes = any(each.plan and each.plan.plan() for each in planned)
    return EXIT_CHANGES if exit_code and changes else 0


def _plan(settings: Settings, offering: Offering, mode: Mode, *, as_commands: bool) -> _Planned:
    try:
        site = connect(settings, offering, mode)
        plan = orders.plan(site)
        commands = site.backend.commands(plan.plan().cluster_actions()) if as_commands else ()
        return _Planned(offering, plan, commands=commands)
    except SiteAgentError as error:
        return _Planned(offering, error=error)


def _document(planned: _Planned) -> dict[str, Any]:
    plan = planned.plan
    return {
        "offering": planned.offering.uuid,
        "name": planned.offering.name,
        "actions": [action.as_json() for action in plan.plan()] if plan else [],
        "notes": _notes(plan) if plan else [],
        "unplanned": [result.as_json() for result in plan.results] if plan else [],
        "error": str(planned.error) if planned.error else None,
    }


def _notes(planned: PlannedPass) -> list[str]:
    return [f"order {plan.case.order.uuid}: {note}" for plan in planned.plans for note in plan.notes]


def _print(planned: _Planned, *, as_commands: bool) -> None:
    if planned.error is not None:
        complain(planned.offering, planned.error)
    if planned.plan is None:
        return
    click.echo(f"# {planned.offering.name}")
    plan = planned.plan.plan()
    if as_commands:
        for line in planned.commands:
            click.echo(line)
        return
    click.echo(plan.render() or "nothing to do")
    for note in _notes(planned.plan):
        click.echo(f"note: {note}")
    for result in planned.plan.results:
        click.echo(f"order {result.order_uuid} ({result.type}) {result.result}: {result.message}")
