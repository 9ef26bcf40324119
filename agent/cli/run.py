# SPDX-License-Identifier: MIT
"""`run MODE --once`: one pass here and now, for scripts, cron and the first try."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from agent.cli.options import (
    MODE_EPILOG,
    chosen,
    complain,
    config_option,
    console,
    json_option,
    mode_argument,
    number,
    offering_option,
    print_json,
    say_unserved,
    settings_from,
)
from agent.config.model import Mode, Offering, Settings
from agent.core.errors import SiteAgentError
from agent.run.passes import PASSES
from agent.run.results import OrderResult, PassReport, ResourceResult, summary
from agent.run.site import connect

STYLES = {"done": "green", "failed": "red", "stuck": "red", "retry": "yellow", "waiting": "cyan"}

Passed = list[tuple[Offering, PassReport]]


@click.command(epilog=MODE_EPILOG)
@mode_argument
@click.option(
    "--once", is_flag=True, help="Required: passes that repeat are the business of beat and the workers."
)
@config_option
@offering_option
@json_option
def command(mode: str, once: bool, config_file: Path | None, offering_uuid: str | None, as_json: bool) -> int:
    """Run one pass of MODE in this process, without a broker. Exit code 1 when something needs a look."""
    if not once:
        raise click.UsageError(
            "add --once. Passes that repeat are run by `celery -A tasks worker` and `celery -A tasks beat`."
        )
    settings = settings_from(config_file)
    served = [o for o in chosen(settings, offering_uuid) if o.backend_of(Mode(mode))]
    passed = [(offering, _pass(settings, offering, Mode(mode))) for offering in served]
    if not served:
        say_unserved(mode)
    if as_json:
        print_json(summary(report for _, report in passed))
    else:
        print_passes(passed)
    return 1 if any(report.failed for _, report in passed) else 0


def _pass(settings: Settings, offering: Offering, mode: Mode) -> PassReport:
    """One offering; what stops it is said and does not stop the others."""
    try:
        site = connect(settings, offering, mode)
    except SiteAgentError as error:
        return PassReport(mode, offering.uuid, offering.name, error=error)
    return PASSES[mode](site)


def print_passes(passed: Passed) -> None:
    """What became of each order or resource, and a line for each offering."""
    for offering, report in passed:
        if report.error is not None:
            complain(offering, report.error)
            continue
        if report.results:
            console().print(_table(report))
        click.echo(
            f"{report.offering_name}: {_looked_at(report)}, "
            f"{number(report.effort.requests.total(), 'request')}, "
            f"{number(report.effort.commands.total(), 'cluster command')}, {report.effort.seconds:.1f} s"
        )
        for note in (*report.notes, *report.left_alone):
            click.echo(f"{report.offering_name}: {note}")
        for problem in (*report.problems, *report.home_problems):
            click.echo(f"{report.offering_name}: {problem}", err=True)


def _table(report: PassReport) -> Table:
    table = Table(title=Text(report.offering_name), title_justify="left")
    table.add_column("order" if report.mode == Mode.ORDER_PROCESS else "resource", no_wrap=True)
    for title in ("type", "account", "result", "message"):
        table.add_column(title, overflow="fold")
    for order in report.orders:
        _add_row(table, order.order_uuid, order.type, order)
    for resource in report.resources:
        _add_row(table, resource.resource_uuid, "resource", resource)
    return table


def _add_row(table: Table, uuid: str, kind: str, outcome: OrderResult | ResourceResult) -> None:
    result = Text(outcome.result, style=STYLES[outcome.result])
    table.add_row(Text(uuid), Text(kind), Text(outcome.account), result, Text(outcome.message))


def _looked_at(report: PassReport) -> str:
    if report.mode == Mode.ORDER_PROCESS:
        return number(len(report.orders), "order")
    return f"{number(report.in_step + len(report.resources), 'resource')}, {report.in_step} of them in step"
