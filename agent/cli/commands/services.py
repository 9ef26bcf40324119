# SPDX-License-Identifier: MIT
"""Commands that run for long, and those that bring something into Waldur or onto this host once."""

from __future__ import annotations

from pathlib import Path

import click

from agent.cli.backfill import staff_token
from agent.cli.commands.shared import (
    BRIDGE_METRICS_PORT,
    CONSOLE_PORT,
    LOOPBACK,
    LazyCommand,
    config_option,
    json_option,
    offering_option,
    parse_uuid,
)
from agent.cli.web.roles import Role
from agent.config.secret import Secret
from agent.host import collector
from agent.host import unit_files as units
from simulator.world.ages import Age

FILE = Path("/etc/waldur/waldur-site-agent-config.yaml")
TOKEN = "token"  # noqa: S105  (the name of a file)
URL_VARIABLE, TOKEN_VARIABLE = "WALDUR_API_URL", "WALDUR_API_TOKEN"
OLD_NAMES = sorted(name for unit in units.OLD_UNITS for name in unit.names)


@click.command(
    cls=LazyCommand,
    body="agent.cli.init",
    short_help="Write a first configuration file: asks Waldur and this host.",
)
@click.option(
    "-c",
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=FILE,
    show_default=True,
    help="File to write.",
)
@click.option(
    "--url", envvar=URL_VARIABLE, help=f"Address of Waldur. Default: ${URL_VARIABLE}, else asked for."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"File with the token. Default: ${TOKEN_VARIABLE}, else asked for; it is then written into a file `{TOKEN}` "
    "next to the configuration.",
)
@click.option(
    "--offering",
    "wanted",
    multiple=True,
    metavar="UUID",
    callback=lambda context, parameter, texts: [parse_uuid(context, parameter, text) for text in texts],
    help="Offering to serve; may be given several times. Default: the only one, else asked for.",
)
@click.option("--cluster", help="Cluster of this host. Default: the only one, else asked for.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init() -> None:
    """Write a first configuration file: of the offerings that Waldur has, and the cluster that this host leads to.

    What is not given is asked for, on a terminal. Changes nothing in Waldur and on the cluster. Exit code 1 where the
    file cannot be written, or the token lacks rights.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.unit_files",
    short_help="Write the systemd units of this installation into a folder.",
    epilog=f"NAME is one of: {', '.join(OLD_NAMES)}.",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(OLD_NAMES))
@click.option(
    "-c",
    "--config",
    "config",
    type=click.Path(path_type=Path),
    default=units.CONFIG,
    show_default=True,
    help="Configuration file that the units read.",
)
@click.option("--legacy", is_flag=True, help="For systemd older than 247 (RHEL 7 and 8).")
@click.option("--force", is_flag=True, help="Replace files that are there and differ.")
def unit_files() -> None:
    """Write the systemd units of this installation into DIR: worker, beat, bridge, Flower, metrics, console and the
    target of them all. With NAMEs, the units of waldur-site-agent and the services before it instead, which run without
    a broker.

    Nothing is written when one of the files is there and differs; exit code 1.
    """


def hide_token(_context: click.Context, _parameter: click.Parameter, token: str) -> Secret:
    if token:
        staff_token.hide_typed(token)
    return Secret(token)


@click.command(
    cls=LazyCommand,
    body="agent.cli.load_components",
    short_help="Bring the configured components into the offerings in Waldur.",
)
@config_option
@offering_option
@json_option
@click.option(
    "--components-may-fail", is_flag=True, hidden=True, help="Exit code 0 as well when components failed."
)
def load_components() -> None:
    """Create or update the offering's components in Waldur. Components that only Waldur has are left alone. In a pause
    and in mode `observe` it only shows what it would change; exit code 1 when there is something.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.backfill.historical_usage",
    short_help="Load usage of past months into Waldur, with a staff token.",
    epilog=f"The staff token is taken from --user-token, --user-token-file, the variable {staff_token.VARIABLE} or the "
    "offering's `staff_token_file`, whichever comes first; else it is asked for.",
)
@config_option
@click.option("-o", "--offering-uuid", "--offering", "offering_uuid", metavar="OFFERING",
              help="The offering; may be omitted where the configuration has one only.")  # fmt: skip
@click.option("-t", "--user-token", default="", is_eager=True, callback=hide_token, metavar="TOKEN",
              help="Token of a staff user. Others may see it in the list of processes.")  # fmt: skip
@click.option("--user-token-file", type=click.Path(path_type=Path), metavar="FILE",
              help="File with nothing but the token of a staff user.")  # fmt: skip
@click.option("-s", "--start-date", required=True, metavar="YYYY-MM-DD",
              help="A day in the first month; months are loaded whole.")  # fmt: skip
@click.option("-e", "--end-date", required=True, metavar="YYYY-MM-DD",
              help="A day in the last month, at most 1825 days later.")  # fmt: skip
@click.option("--resource-backend-id", "resource_backend_ids", multiple=True, metavar="ID",
              help="This resource only; may be given several times.")  # fmt: skip
@click.option("--skip-user-usage", is_flag=True, help="Totals of resources only.")
@click.option("--no-staff-check", is_flag=True, help="Do not ask Waldur whether the token is that of staff.")
@click.option("--reconcile-stale", is_flag=True,
              help="Set to zero what Waldur has and the cluster does not know of; allows decreases.")  # fmt: skip
@click.option("--allow-decreases", is_flag=True,
              help="Send figures that are less than what Waldur has; else they are held and listed.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be submitted; submit nothing.")
@click.option("--local", "is_local", is_flag=True, help="Load in this process, whatever queue there is.")
@click.option("--resume", is_flag=True, help="Go on with an earlier run of the same parameters.")
@click.option("--delay-between-months", "delay_s", type=click.IntRange(0, 86400), default=0, metavar="SECONDS",
              help="Wait so long after each month.")  # fmt: skip
@json_option
@click.option("--months-may-fail", is_flag=True, hidden=True, help="Exit code 0 as well when months failed.")
def historical_usage() -> None:
    """Load usage of past months into Waldur: totals of resources and shares of users, month by month. Safe to
    repeat: what Waldur has already is not sent again. Exit code 1 when a month failed, or
    when usage is held because a figure would get less.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.create_homedirs",
    short_help="Make missing home directories of the offerings' users, and set their quotas.",
)
@config_option
@offering_option
@json_option
@click.option("--homes-may-fail", is_flag=True, hidden=True, help="Exit code 0 as well when homes failed.")
def create_homedirs() -> None:
    """Make missing home directories of the offering's users on this host and set their quotas. Exit code 1 when
    something failed; users whom this host does not know wait, and are no failure.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.cluster",
    short_help="Run broker, worker, beat and bridge of a one-machine site in the foreground.",
)
@config_option
@click.option(
    "--broker",
    type=click.Choice(["embedded", "site"]),
    help="The broker that comes with us, on a socket below state_dir, or the one that the configuration names. "
    "Default: the latter where it names another one than the usual address.",
)
def cluster() -> None:
    """Run broker, worker, beat and bridge of a one-machine site until it is asked to stop.

    What ends is started again. At the stop the worker finishes what it has begun.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.bridge",
    short_help="Listen to Waldur's events for all offerings, and queue tasks.",
)
@config_option
@click.option(
    "--metrics",
    "address",
    metavar="HOST:PORT",
    help=f"Serve metrics of the bridge there, such as {LOOPBACK}:{BRIDGE_METRICS_PORT}. Default: nowhere.",
)
def bridge() -> None:
    """Listen to Waldur's events (STOMP or MQTT) for all offerings that have them, and queue tasks."""


@click.command(
    cls=LazyCommand, body="agent.cli.simulate", short_help="Run a simulated Waldur to try things against."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8899, show_default=True,
              help="TCP port; 0 takes a free one.")  # fmt: skip
@click.option("--age", type=click.Choice([age.value for age in Age]), default="8.0", show_default=True,
              help="Which server to be: Waldur of October 2024, 8.0.5 or 8.1.")  # fmt: skip
@click.option(
    "--customers", type=click.IntRange(1), default=2, show_default=True, help="Customers with projects."
)
@click.option(
    "--projects", type=click.IntRange(1), default=2, show_default=True, help="Projects per customer."
)
@click.option("--members", type=click.IntRange(0), default=5, show_default=True, help="Members per project.")
@json_option
def simulate() -> None:
    """Run a simulated Waldur on loopback, with its events. Orders are placed through /control/
    (docs/simulated-waldur.md).
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.demo",
    short_help="Run the whole system on embedded parts and watch orders travel.",
)
@click.option("--once", is_flag=True, help="End by itself; exit code 0 only when the end state is right.")
@json_option
@click.option("--keep", is_flag=True, help="Keep the folder with configuration and logs.")
@click.option(
    "--backend",
    type=click.Choice(["slurm", "moab"]),
    default="slurm",
    show_default=True,
    help="Kind of cluster.",
)
def demo() -> None:
    """Start a simulated Waldur with its events, a broker, an emulated cluster, bridge, worker, beat, Flower and
    console, and place orders.
    """


@click.group(
    invoke_without_command=True,
    short_help="Serve pages behind a login, where operators look at the site and act.",
)
@config_option
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="",
    help=f"Where it listens, instead of `console.listen`, which is {LOOPBACK}:{CONSOLE_PORT} by default.",
)
@click.pass_context
def console(context: click.Context, config_file: Path | None, listen: str) -> int:
    """Serve pages behind a login: what needs a look, plans, allocations, people, orders, usage, the journal and queues.
    Operators approve plans there, pause offerings, start passes and try orders again.
    """
    if context.invoked_subcommand:
        if config_file:
            raise click.UsageError("write -c after `passwd`.")
        return 0
    # Imported here, as the bodies of all commands.
    from agent.cli.web import console as body

    collector.begin()  # as LazyCommand does
    return body.command(config_file, listen)


@console.command("passwd", cls=LazyCommand, body="agent.cli.web.console:passwd")
@click.argument("name")
@config_option
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.VIEWER.value,
    show_default=True,
    help="A viewer looks, an operator approves, too.",
)
@click.option("--remove", is_flag=True, help="Take the person out.")
def console_passwd() -> None:
    """Set the password of NAME, which is asked for, or read from a pipe."""
