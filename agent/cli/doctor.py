# SPDX-License-Identifier: MIT
"""`doctor`: checks of this host, the broker, workers and beat, and of each offering; each with its remedy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent.cli import checks_text
from agent.cli.options import select_offerings
from agent.cli.settings import load_settings
from agent.config.model import Offering, Settings
from agent.core.checks import Check
from agent.host.heartbeat import last_heartbeats
from agent.run.diagnosis import faults, heartbeats, host, offering, picture, probes
from agent.run.diagnosis.probes import Probe
from agent.run.service import configuration
from tasks.queue import inspection


def command(config_file: Path | None, offering_uuid: str | None, as_json: bool) -> int:
    if configuration.checked(config_file, os.environ, strict=False).settings is None:
        found = probes.run(host.without_settings(config_file, os.environ))
        return checks_text.show(found, as_json=as_json)
    settings = load_settings(config_file)
    listed = select_offerings(settings, offering_uuid)
    return checks_text.show(_look(settings, config_file, listed), as_json=as_json)


def _look(settings: Settings, config_file: Path | None, listed: Sequence[Offering]) -> Iterator[Check]:
    """Yield each finding as soon as it is there."""
    known: probes.Causes = {}
    yield from probes.run(host.probes(settings, config_file, os.environ), known)
    needless = picture.without_broker(settings)
    broker, of_broker = (needless, []) if needless else inspection.examine(settings)
    yield from of_broker
    yield from faults.of_broker(broker)
    state_dir = settings.state_dir
    rules = [
        Probe(
            "heartbeats", lambda: heartbeats.of_heartbeats(last_heartbeats(state_dir)), "look at state_dir"
        ),
        Probe(
            "passes",
            lambda: faults.of_offerings(picture.of_site(settings, listed, broker)),
            "look at state_dir",
        ),
    ]
    yield from probes.run([*rules, *offering.probes(settings, listed, known)], known)
