# SPDX-License-Identifier: MIT
"""`diagnostics`: checks of each offering, of Waldur and of its cluster."""

from __future__ import annotations

from pathlib import Path

from agent.cli import checks_text
from agent.cli.options import select_offerings
from agent.cli.settings import load_settings
from agent.run.diagnosis import offering, probes


def command(config_file: Path | None, offering_uuid: str | None, as_json: bool) -> int:
    settings = load_settings(config_file)
    listed = select_offerings(settings, offering_uuid)
    known: probes.Causes = {}
    return checks_text.show(probes.run(offering.probes(settings, listed, known), known), as_json=as_json)
