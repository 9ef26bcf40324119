# SPDX-License-Identifier: MIT
"""`pause`: one offering is left alone for a while, without a change of the configuration."""

from __future__ import annotations

from pathlib import Path

from agent.cli import full_passes
from agent.cli.options import read_settings, select_offerings
from agent.cli.output import echo
from agent.core.errors import SiteAgentError, StateError
from agent.state import journal, pauses


def command(offering_uuid: str, config_file: Path | None, off: bool, reason: str) -> int:
    settings = read_settings(config_file)
    (offering,) = select_offerings(settings, offering_uuid)
    by = journal.operator()
    try:
        if off:
            pauses.resume(settings.state_dir, offering)
        else:
            pauses.pause(settings.state_dir, offering, by=by, reason=reason)
    except StateError as error:
        raise SiteAgentError(f"nothing is changed: {error}") from error
    said = "goes on" if off else f"is paused; `pause {offering.uuid} --off` ends the pause"
    text = "resumed" if off else " ".join(filter(None, ("paused", reason and f"({reason})")))
    journal.note(settings.state_dir, offering, f"{text} the offering", by=by)
    if off and offering.policy.paused:
        said = "stays paused: the configuration says `paused: true`"
    echo(f"{offering.name} {said}")
    if off:
        full_passes.queue(settings, offering)
    return 0
