# SPDX-License-Identifier: MIT
"""`doctor`: checks of this host, the broker, workers and beat, and of each offering; each with its remedy."""

from __future__ import annotations

import os
from pathlib import Path

import click

from agent.cli import checks_text
from agent.cli.options import (
    config_option,
    json_option,
    load_settings,
    offering_option,
    select_offerings,
)
from agent.run import configuration
from agent.run.diagnosis import host, offering, probes
from agent.run.diagnosis.probes import Probe
from agent.run.status import of_site


@click.command()
@config_option
@offering_option
@json_option
def command(config_file: Path | None, offering_uuid: str | None, as_json: bool) -> int:
    """Check everything: files, packages, broker, workers, beat, passes, and each offering as `diagnostics` does. Exit
    code 1 when something is wrong, with what to do.
    """
    # Imported here: only who needs the broker pays for its libraries.
    from tasks import inspection

    if configuration.checked(config_file, os.environ, strict=False).settings is None:
        found = probes.run(host.without_settings(config_file, os.environ))
        return checks_text.show(found, as_json=as_json)
    settings = load_settings(config_file)
    listed = select_offerings(settings, offering_uuid)
    broker = inspection.look(settings)
    found = probes.run(
        [
            *host.probes(settings, config_file, os.environ),
            *inspection.probes(settings, broker),
            Probe("passes", lambda: host.of_passes(of_site(settings, listed, broker)), "look at state_dir"),
            *(probe for each in listed for probe in offering.probes(settings, each)),
        ]
    )
    return checks_text.show(found, as_json=as_json)
