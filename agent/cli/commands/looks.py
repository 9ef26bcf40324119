# SPDX-License-Identifier: MIT
"""Commands that look and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from agent.cli.commands.shared import (
    LOOPBACK,
    METRICS_PORT,
    LazyCommand,
    config_option,
    exit_code_option,
    json_option,
    offering_option,
)
from agent.cli.moments import MOMENT
from agent.core.periods import Month
from agent.host.heartbeat import MAX_AGE_S, Part

MOST_MONTHS = 36


class BillingMonth(click.ParamType[Month]):
    name = "month"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Month:
        try:
            return value if isinstance(value, Month) else Month.parse(str(value).strip())
        except ValueError:
            self.fail(f"{value!r} is no month; write it as 2026-10", param, ctx)


@click.command(
    cls=LazyCommand,
    body="agent.cli.status",
    short_help="Show passes, stuck orders, held plans, queues and workers.",
)
@config_option
@offering_option
@json_option
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE",
              help="Write a page for a browser instead, with this month's usage against the limits.")  # fmt: skip
@click.option("--every", "every_s", type=click.IntRange(5, 3600), metavar="SECONDS",
              help="With --html: write it again every so often, until Ctrl-C; the browser keeps up.")  # fmt: skip
def status() -> None:
    """Show each offering's mode, what waits for a person or for time and why, the last passes, queues and workers."""


@click.command(
    cls=LazyCommand,
    body="agent.cli.doctor",
    short_help="Check host, broker, workers, beat and offerings; say what to do.",
)
@config_option
@offering_option
@json_option
def doctor() -> None:
    """Check everything: files, packages, broker, workers, beat, passes, and each offering as `diagnostics` does. Exit
    code 1 when something is wrong, with what to do.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.diagnose_account",
    short_help="Compare one account with Waldur, field by field; print the commands that correct it.",
)
@click.argument("account_name", metavar="ACCOUNT")
@config_option
@click.option("--offering-uuid", "--offering", "offering_uuid", metavar="OFFERING",
              help="Its name or uuid. Default: the one whose allocation_prefix the name begins with.")  # fmt: skip
@json_option
@click.option(
    "-v", "--verbose", is_flag=True, help="Reasons and unit conversions too, and debug lines in the log."
)
@click.option("--no-color", "is_plain", is_flag=True, help="No colours, in a terminal either.")
def diagnose_account() -> None:
    """Compare one account with Waldur, field by field, and print the commands that the next membership pass would run.
    Changes nothing. Exit code 0 when all agrees.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.explain",
    short_help="Say why a person can, or cannot, use an allocation.",
)
@click.argument("user")
@click.argument("resource_name", metavar="RESOURCE")
@config_option
@offering_option
@json_option
def explain() -> None:
    """Say in one sentence why USER can, or cannot, use RESOURCE. USER is a username, e-mail or uuid; RESOURCE an
    account, name, slug or uuid. Changes nothing. Exit code 1 when something is wrong.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.diagnostics",
    short_help="Check each offering: Waldur, rights, components, the cluster.",
)
@config_option
@offering_option
@json_option
def diagnostics() -> None:
    """Check each offering: token, rights, components, orders, clocks, cluster. Exit code 1 when something is wrong."""


@click.command(
    cls=LazyCommand,
    body="agent.cli.audit",
    short_help="Show what was done to whom, why, and what came of it.",
)
@config_option
@offering_option
@click.option("--user", default="", help="Actions about this user.")
@click.option("--account", default="", help="Actions about this account, or below it.")
@click.option(
    "--order", "order", metavar="UUID", help="Actions for this order; how its uuid begins is enough."
)
@click.option(
    "--since", type=MOMENT, help="From then on: 2026-11-21, 2026-11-21T03:00, or 2h for so long ago."
)
@click.option("--until", type=MOMENT, help="Until then.")
@click.option(
    "--all", "everything", is_flag=True, help="Of offerings, too, that the configuration does not have."
)
@click.option("--commands", "with_commands", is_flag=True, help="Show the commands that were run, too.")
@json_option
def audit() -> None:
    """Show what was done, oldest first, from the journal of this head node. --json prints one object per line."""


@click.command(
    cls=LazyCommand,
    body="agent.cli.usage.usage",
    short_help="Show what accounts have used, as a table or a page with charts.",
)
@config_option
@offering_option
@click.option("--months", type=click.IntRange(1, MOST_MONTHS), default=3, show_default=True, metavar="N",
              help="How many months, the present one included. Each costs one command of the cluster.")  # fmt: skip
@click.option("--users", "with_users", is_flag=True, help="The users of each account, too.")
@json_option
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE",
              help="Write a page with charts, for a browser, instead of printing a table.")  # fmt: skip
def usage() -> None:
    """Show what each account has used, month by month, in Waldur's units, against its limits. Exit code 1 when the
    cluster or Waldur did not answer.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.usage.usage_check",
    short_help="Count a month in every way: would bills move, and does the cluster agree?",
)
@config_option
@offering_option
@click.option(
    "--month", type=BillingMonth(), help="This month, written 2026-10. Default: the last that has ended."
)
@click.option("--account", default="", help="This account only.")
@json_option
@exit_code_option("Waldur or sreport has other figures")
def usage_check() -> None:
    """Count one month in every way there is, and show what differs: as the reference did, as jobs asked for
    (ReqTRES), as they were given (AllocTRES), by sreport, and in Waldur.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.metrics",
    short_help="Print or serve the metrics of passes, held plans and queues for Prometheus.",
)
@config_option
@click.option(
    "--serve", is_flag=True, help="Serve them over HTTP at /metrics, and the answer of `healthz` at /healthz."
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=f"{LOOPBACK}:{METRICS_PORT}",
    show_default=True,
    help="Where --serve listens. No password is needed: leave it on loopback, or in a network of its own.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write them to a file for node_exporter's textfile collector.",
)
def metrics() -> None:
    """Print the metrics of this head node and of its queues, as Prometheus reads them."""


@click.command(
    cls=LazyCommand,
    body="agent.cli.healthz",
    short_help="Check for probes whether worker, beat and bridge of this host are alive.",
)
@click.argument("parts", nargs=-1, metavar="[PART]...", type=click.Choice([part.value for part in Part]))
@config_option
@click.option(
    "--max-age",
    type=click.FloatRange(min=1),
    default=MAX_AGE_S,
    show_default=True,
    metavar="SECONDS",
    help="An older heartbeat is a failure.",
)
@click.option(
    "--heartbeat-path",
    "path",
    metavar="FILE",
    help="Look at this file only. Default: $WALDUR_SITE_AGENT_HEARTBEAT_PATH, which a part touches besides its own.",
)
@json_option
def healthz() -> None:
    """Check whether each PART on this host (worker, beat, bridge; default: all that are here) has written a heartbeat:
    for probes of containers. Asks neither Waldur nor the broker. Exit code 1 when one has not, or none is here.
    """
