# SPDX-License-Identifier: MIT
"""`pause`: one offering is left alone for a while, without a change of the configuration."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from agent.cli import full_passes
from agent.cli.options import read_settings, select_offerings
from agent.cli.output import echo
from agent.config.model import Offering, Settings
from agent.core.errors import SiteAgentError, StateError
from agent.state import journal, pauses
from agent.state.store import stamp


def command(
    offering_uuid: str, config_file: Path | None, off: bool, reason: str, lasts: timedelta | None
) -> int:
    if off and lasts:
        raise click.UsageError("--off ends a pause, and --for says how long a new one lasts: choose one.")
    settings = read_settings(config_file)
    (offering,) = select_offerings(settings, offering_uuid)
    if off:
        echo(resume(settings, offering, by=journal.operator(), reason=reason))
    else:
        until = datetime.now(UTC) + lasts if lasts else None
        echo(pause(settings, offering, by=journal.operator(), reason=reason, until=until))
    return 0


def pause(
    settings: Settings, offering: Offering, *, by: str, reason: str, until: datetime | None = None
) -> str:
    """Pause an offering, and write that into the journal; return what is to be said. Raises SiteAgentError."""
    try:
        pauses.pause(settings.state_dir, offering, by=by, reason=reason, until=until)
    except StateError as error:
        raise SiteAgentError(f"nothing is changed: {error}") from error
    end = f"until {stamp(until)}" if until else ""
    _note(settings, offering, ("paused the offering", end, reason and f"({reason})"), by)
    return f"{offering.name} is paused{end and f' {end}'}; `pause {offering.uuid} --off` ends the pause"


def resume(settings: Settings, offering: Offering, *, by: str, reason: str = "") -> str:
    """End a pause, write that into the journal, and queue passes; return what is to be said. Raises SiteAgentError."""
    try:
        pauses.resume(settings.state_dir, offering)
    except StateError as error:
        raise SiteAgentError(f"nothing is changed: {error}") from error
    _note(settings, offering, ("resumed the offering", reason and f"({reason})"), by)
    full_passes.queue(settings, offering)
    if offering.policy.paused:
        return f"{offering.name} stays paused: the configuration says `paused: true`"
    return f"{offering.name} goes on"


def _note(settings: Settings, offering: Offering, words: Iterable[str], by: str) -> None:
    journal.note(settings.state_dir, offering, " ".join(filter(None, words)), by=by)
