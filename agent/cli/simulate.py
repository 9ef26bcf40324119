# SPDX-License-Identifier: MIT
"""`simulate`: a simulated Waldur on this machine, with its control API, until Ctrl-C."""

from __future__ import annotations

import signal
from typing import Any

import click

from agent.cli.options import print_json
from agent.cli.output import echo
from simulator.server.waldur import SimulatedWaldur
from simulator.world.ages import Age
from simulator.world.seed import Scenario


def command(port: int, age: str, customers: int, projects: int, members: int, as_json: bool) -> int:
    scenario = Scenario(customers=customers, projects_per_customer=projects, members_per_project=members)
    stop_signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
    waldur = SimulatedWaldur(age, scenario=scenario, port=port, idle_s=Age(age).keep_alive_s)
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
