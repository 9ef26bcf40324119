# SPDX-License-Identifier: MIT
"""Commands that only the reference's console scripts have (`agent.cli.reference`)."""

from __future__ import annotations

from pathlib import Path

import click

from agent.cli.commands.shared import LazyCommand, config_option, offering_option
from agent.core.modes import Service

TEMPLATES = Path(__file__).parents[1] / "order_templates"


@click.command(cls=LazyCommand, body="agent.cli.site_agent")
@click.option(
    "-m",
    "--mode",
    "modes",
    type=click.Choice([service.value for service in Service]),
    multiple=True,
    default=[Service.ORDER_PROCESS.value],
    show_default=True,
    help="What this process does; may be given several times.",
)
@config_option
@click.option("--dry-run", is_flag=True, help="Print what a pass would do now, change nothing, and end.")
def site_agent() -> None:
    """Run a service, or several, in this process until it is asked to stop, as the reference does: no broker is needed.

    The passes are those of the workers. For several head nodes, retries that survive a restart and Flower use
    `celery -A tasks worker` and `beat`, or `waldur-site-cluster cluster`.
    """


@click.command(cls=LazyCommand, body="agent.cli.order_check")
@config_option
@click.option("--template-dir", type=click.Path(path_type=Path, file_okay=False), default=TEMPLATES,
              help="Folder of templates. Default: those that come with the agent.")  # fmt: skip
@click.option("--template", metavar="FILE", help="Make the order from this template.")
@click.option("--order-file", type=click.Path(path_type=Path), help="Check the order in this file.")
@click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the template.")
@click.option(
    "--offering-uuid",
    metavar="OFFERING",
    help="Its name or uuid, or how either begins. Default: the first offering of the configuration.",
)
@click.option("--validate-only", is_flag=True, help="Check, and read no configuration.")
@click.option("--generate-only", is_flag=True, help="Print the order, and check nothing.")
@click.option("--dry-run", is_flag=True, help="Accepted: nothing is ever carried out.")
@click.option("--use-real-backend", is_flag=True, help="Accepted: no backend is asked.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the order into this file.")
@click.option("--verbose", is_flag=True, help="Show the checked fields as well.")
@click.option("--json-output", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--list-templates", is_flag=True, help="List the templates.")
def order_check() -> None:
    """Make an order from a template and check it; carry out nothing. Exit code 1 when it is no good order."""


@click.command(cls=LazyCommand, body="agent.cli.probe")
@config_option
@click.option(
    "--max-age",
    type=float,
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="Of the last heartbeat.",
)
@click.option(
    "--readiness-timeout", type=float, default=5.0, show_default=True, metavar="SECONDS",
    help="So long Waldur may take to answer.",
)  # fmt: skip
@click.option(
    "--heartbeat-path",
    metavar="FILE",
    help="Look at this file only. Default: $WALDUR_SITE_AGENT_HEARTBEAT_PATH, else the heartbeats of all parts here.",
)
@click.option("--liveness-only", is_flag=True, help="Do not ask Waldur.")
def probe() -> None:
    """Check whether the agent lives, and whether Waldur answers for one offering at least. Exit code 1 when not."""


@click.command(cls=LazyCommand, body="agent.cli.catalogue")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Default: stdout.")
def catalogue() -> None:
    """Export the installed backends with the keys of their settings and components, as JSON. Exit code 1, and nothing
    is written, when one of them cannot be loaded.
    """


@click.command(cls=LazyCommand, body="agent.cli.sync_offering_users")
@config_option
@offering_option
def sync_offering_users() -> None:
    """Give usernames to the offerings' people who have none yet, as each membership pass does first. Exit code 1 when
    something failed.
    """


@click.command(cls=LazyCommand, body="agent.cli.sync_resource_limits")
@config_option
@offering_option
def sync_resource_limits() -> None:
    """Show in Waldur the limits that accounts have on the cluster, where those count, as each membership pass does
    among other things. The cluster is not changed. A resource that fails is printed; exit code 1 when an offering could
    not be read.
    """
