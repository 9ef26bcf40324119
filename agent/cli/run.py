# SPDX-License-Identifier: MIT
"""`run MODE --once`: one pass here and now, for scripts, cron and the first try."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from agent.cli.console import PIPE_WIDTH, console
from agent.cli.options import number, print_errors, print_json, served_offerings
from agent.cli.output import echo
from agent.cli.settings import load_settings
from agent.config.model import Mode, Offering, Settings
from agent.core.errors import SiteAgentError
from agent.run.passes import PASSES
from agent.run.results import OrderResult, PassReport, ResourceResult, Result, summary
from agent.run.service import log_shipping
from agent.run.site import Site, connect

STYLES = {"done": "green", "failed": "red", "stuck": "red", "retry": "yellow", "waiting": "cyan"}

Row = tuple[str, str, OrderResult | ResourceResult]
Passed = list[tuple[Offering, PassReport]]


def command(mode: str, once: bool, config_file: Path | None, offering_uuid: str | None, as_json: bool) -> int:
    if not once:
        raise click.UsageError(
            f"`run {mode} --once` runs one pass now. Passes that repeat are run by the services: worker and beat "
            "(`systemctl start waldur-site-worker waldur-site-beat`), or on a one-machine site by `cluster`, in the "
            "foreground."
        )
    settings = load_settings(config_file)
    log_shipping.set_up(settings)
    served = served_offerings(settings, offering_uuid, Mode(mode))
    passed = pass_each(settings, served, Mode(mode), PASSES[Mode(mode)])
    if as_json:
        print_json(summary(report for _, report in passed))
    else:
        print_passes(passed)
    if not served:
        return 2
    return 1 if any(report.failed for _, report in passed) else 0


def pass_each(
    settings: Settings, offerings: Iterable[Offering], mode: Mode, run: Callable[[Site], PassReport]
) -> Passed:
    """Run a pass over each offering; what keeps one from it is in its report, and stops no other."""
    passed = []
    for offering in offerings:
        try:
            report = run(connect(settings, offering, mode))
        except SiteAgentError as error:
            report = PassReport(mode, offering.uuid, offering.name, error=error)
        passed.append((offering, report))
    return passed


def print_passes(passed: Passed) -> None:
    """Print the result of each order or resource, and a line for each offering."""
    for _, report in passed:
        if report.error is not None:
            continue
        is_orders = report.mode == Mode.ORDER_PROCESS
        if report.results:
            _print_results(report, "order" if is_orders else "resource")
        seen = number(len(report.orders), "order") if is_orders else _in_step(report)
        echo(
            f"{report.offering_name}: {seen}, "
            f"{number(report.effort.requests.total(), 'request')}, "
            f"{number(report.effort.commands.total(), 'cluster command')}, {report.effort.seconds:.1f} s"
        )
        for note in (*report.notes, *report.left_alone):
            echo(f"{report.offering_name}: {note}")
        for problem in (*report.problems, *report.home_problems):
            echo(f"{report.offering_name}: {problem}", err=True)
    print_errors((offering, report.error) for offering, report in passed)


def _print_results(report: PassReport, kind: str) -> None:
    """Print a table of the results. Messages that make it wider than the terminal stand below it, each in lines of its
    own.
    """
    rows: list[Row] = [
        *((order.order_uuid, order.type, order) for order in report.orders),
        *((resource.resource_uuid, "resource", resource) for resource in report.resources),
    ]
    out, table = console(), _table(report, kind, rows, has_messages=True)
    if out.measure(table, options=out.options.update_width(PIPE_WIDTH)).maximum <= out.width:
        out.print(table)
        return
    out.print(_table(report, kind, rows, has_messages=False))
    for uuid, _, outcome in rows:
        if outcome.message:
            echo(f"{kind} {uuid}: {outcome.message}")


def _table(report: PassReport, kind: str, rows: list[Row], *, has_messages: bool) -> Table:
    table = Table(title=Text(report.offering_name), title_justify="left")
    table.add_column(kind, no_wrap=True)
    for title in ("type", "account", "result", *(("message",) if has_messages else ())):
        table.add_column(title, overflow="fold")
    for uuid, word, outcome in rows:
        result = Text(outcome.result, style=STYLES[outcome.result])
        message = (Text(outcome.message),) if has_messages else ()
        table.add_row(Text(uuid), Text(word), Text(outcome.account), result, *message)
    return table


def _in_step(report: PassReport) -> str:
    """Return how many resources are in step now: also those that this pass has brought there."""
    changed = report.counted()[Result.DONE.value]
    words = f"{report.in_step + changed} in step{f' ({changed} changed now)' if changed else ''}"
    return f"{number(report.in_step + len(report.resources), 'resource')}, {words}"
