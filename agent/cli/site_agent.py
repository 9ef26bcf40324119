# SPDX-License-Identifier: MIT
"""`waldur_site_agent`: services of the reference in one process, without a broker: old units keep working."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from agent import __version__
from agent.cli.bridge import new_bridge
from agent.cli.options import print_errors
from agent.cli.output import echo
from agent.cli.plan import plan_offering
from agent.cli.settings import load_settings
from agent.config.model import Mode, Offering, Settings
from agent.core.modes import Service
from agent.host import running
from agent.host.running import Agent
from agent.run.service import services

log = logging.getLogger(__name__)


def command(modes: tuple[str, ...], config_file: Path | None, dry_run: bool) -> int:
    chosen = tuple(Service(mode) for mode in dict.fromkeys(modes))
    settings = load_settings(config_file, logs_on_stdout=not dry_run)
    if dry_run:
        return _show_plan(settings, chosen)
    log.info("Using %s as a config source", settings.source)
    log.info("waldur-site-cluster %s: Running agent in %s mode", __version__, " and ".join(chosen))
    needed = services.needed(settings)
    for service in chosen:
        if service not in needed:
            log.warning("%s. This service idles", _not_needed(settings, service))
    here = [agent for agent in running.agents() if agent.pid != os.getpid()]
    here += [Agent(os.getpid(), service, is_service=True) for service in chosen]
    for sentence in services.clashes(settings, here):
        log.warning("%s", sentence)
    # Imported here: Celery takes its settings from what was loaded above.
    from tasks import embedded

    return embedded.run(
        settings,
        "-".join(chosen),
        lambda offering: _modes_of(offering, chosen),
        lambda: new_bridge(settings) if Service.EVENT_PROCESS in chosen else None,
    )


def _modes_of(offering: Offering, chosen: Iterable[Service]) -> frozenset[Mode]:
    return frozenset().union(*(services.modes_of(offering, service) for service in chosen))


def _not_needed(settings: Settings, service: Service) -> str:
    others = ", ".join(services.needed(settings)) or "none"
    return f"no offering here needs {service}. Needed are: {others}"


def _show_plan(settings: Settings, chosen: Sequence[Service]) -> int:
    """Print the plan of each offering of the services; return 1 where one could not be made."""
    planned = [
        plan_offering(settings, offering, mode)
        for offering in settings.offerings
        for mode in sorted(_modes_of(offering, chosen), reverse=True)
    ]
    for each in planned:
        each.show(as_commands=False)
    print_errors((each.offering, each.error) for each in planned)
    for service in chosen:
        if service not in services.needed(settings):
            echo(_not_needed(settings, service), err=True)
    return 1 if any(each.error for each in planned) else 0
