# SPDX-License-Identifier: MIT
"""`waldur_site_agent`: one service of the reference in one process, without a broker: old units keep working."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

from agent import __version__
from agent.cli.bridge import new_bridge
from agent.cli.options import config_option
from agent.cli.output import echo
from agent.cli.plan import plan_offering
from agent.cli.settings import load_settings
from agent.config.model import Settings
from agent.host import running
from agent.host.running import Agent
from agent.run.service import services
from agent.run.service.services import Service

log = logging.getLogger(__name__)


@click.command()
@click.option(
    "-m",
    "--mode",
    type=click.Choice([service.value for service in Service]),
    default=Service.ORDER_PROCESS.value,
    show_default=True,
    help="What this process does.",
)
@config_option
@click.option("--dry-run", is_flag=True, help="Print what a pass would do now, change nothing, and end.")
def command(mode: str, config_file: Path | None, dry_run: bool) -> int:
    """Run one service in this process until it is asked to stop, as the reference does: no broker is needed.

    The passes are those of the workers. For several head nodes, retries that survive a restart and Flower use
    `celery -A tasks worker` and `beat`, or `waldur-site-cluster cluster`.
    """
    service = Service(mode)
    settings = load_settings(config_file)
    if dry_run:
        return _show_plan(settings, service)
    log.info("Using %s as a config source", settings.source)
    log.info("waldur-site-cluster %s: Running agent in %s mode", __version__, service)
    served = services.needed(settings)
    if service not in served:
        log.warning(
            "no offering here needs %s: this service idles. Needed are: %s",
            service,
            ", ".join(served) or "none",
        )
    others = [agent for agent in running.agents() if agent.pid != os.getpid()]
    for sentence in services.clashes(settings, [*others, Agent(os.getpid(), service, is_service=True)]):
        log.warning("%s", sentence)
    # Imported here: Celery takes its settings from what was loaded above.
    from tasks import embedded

    return embedded.run(
        settings,
        service,
        lambda offering: services.modes_of(offering, service),
        lambda: new_bridge(settings) if service is Service.EVENT_PROCESS else None,
    )


def _show_plan(settings: Settings, service: Service) -> int:
    """Print the plan of each offering of the service; return 1 where one could not be made."""
    planned = [
        plan_offering(settings, offering, mode)
        for offering in settings.offerings
        for mode in sorted(services.modes_of(offering, service), reverse=True)
    ]
    for each in planned:
        each.show(as_commands=False)
    if not planned:
        served = services.needed(settings)
        echo(f"no offering here needs {service}. Needed are: {', '.join(served) or 'none'}", err=True)
    return 1 if any(each.error for each in planned) else 0
