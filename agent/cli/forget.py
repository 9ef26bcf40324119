# SPDX-License-Identifier: MIT
"""`forget`: drops what the agent has written down, where the world has changed behind its back."""

from __future__ import annotations

from pathlib import Path

from agent.cli.options import number, read_settings, select_offerings
from agent.cli.output import echo
from agent.state import forget, journal


def command(what: str, config_file: Path | None, offering_uuid: str | None) -> int:
    settings = read_settings(config_file)
    for offering in select_offerings(settings, offering_uuid):
        count = forget.forget(settings.state_dir, what, offering.uuid)
        if count:
            journal.note(
                settings.state_dir, offering, f"made the agent forget {what} ({count})", by=journal.operator()
            )
        echo(f"{offering.name}: {number(count, 'row')} forgotten ({what})")
    return 0
