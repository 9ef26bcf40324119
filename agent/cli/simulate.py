# SPDX-License-Identifier: MIT
"""`simulate`: a simulated Waldur on this machine, with its control API, until Ctrl-C."""

from __future__ import annotations

import signal
from typing import Any

import click

from agent.cli.options import json_option, print_json
from agent.cli.output import echo
from simulator.server.waldur import SimulatedWaldur
from simulator.world.ages import Age
from simulator.world.seed import Scenario


@click.command()
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
def command(port: int, age: str, customers: int, projects: int, members: int, as_json: bool) -> int:
    """Run a simulated Waldur on loopback, with its events. Orders are placed through /control/
    (docs/simulated-waldur.md).
    """
    scenario = Scenario(customers=customers, projects_per_customer=projects, members_per_project=members)
    stop_signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
    waldur = SimulatedWaldur(age, scenario=scenario, port=port)
    waldur.publish_to(waldur.stomp)
    try:
        waldur.start()
    except OSError as error:
        raise click.ClickException(f"cannot listen on port {port}: {error.strerror}") from error
    facts: dict[str, Any] = {
        "waldur_api_url": waldur.url,
        "waldur_api_token": waldur.token(),
        "waldur_offering_uuid": waldur.seed.offering_uuid,
        "control": f"{waldur.root_url}/control/",
        "projects": waldur.seed.project_uuids,
    }
    if as_json:
        print_json(facts)
    else:
        for name, value in facts.items():
            echo(f"{name}: {', '.join(value) if isinstance(value, list) else value}")
        echo("Ctrl-C stops it.")
    signal.sigwait(stop_signals)
    waldur.stop()
    return 0
