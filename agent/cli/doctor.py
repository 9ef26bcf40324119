# SPDX-License-Identifier: MIT
"""`doctor`: checks of this host, the broker, workers and beat, and of each offering; each with its remedy."""

from __future__ import annotations

import os
from pathlib import Path

from agent.cli import checks_text
from agent.cli.options import select_offerings
from agent.cli.settings import load_settings
from agent.host.heartbeat import last_heartbeats
from agent.run.diagnosis import faults, host, offering, picture, probes
from agent.run.diagnosis.probes import Probe
from agent.run.service import configuration
from tasks.queue import inspection


def command(config_file: Path | None, offering_uuid: str | None, as_json: bool) -> int:
    if configuration.checked(config_file, os.environ, strict=False).settings is None:
        found = probes.run(host.without_settings(config_file, os.environ))
        return checks_text.show(found, as_json=as_json)
    settings = load_settings(config_file)
    listed = select_offerings(settings, offering_uuid)
    needless = picture.without_broker(settings)
    broker, of_broker = (needless, []) if needless else inspection.examine(settings)
    state_dir = settings.state_dir
    rules = [
        Probe("heartbeats", lambda: faults.of_heartbeats(last_heartbeats(state_dir)), "look at state_dir"),
        Probe(
            "passes",
            lambda: faults.of_offerings(picture.of_site(settings, listed, broker)),
            "look at state_dir",
        ),
    ]
    found = [
        *probes.run(host.probes(settings, config_file, os.environ)),
        *of_broker,
        *faults.of_broker(broker),
        *probes.run([*rules, *(probe for each in listed for probe in offering.probes(settings, each))]),
    ]
    return checks_text.show(found, as_json=as_json)
