# SPDX-License-Identifier: MIT
"""`forget`: drops hints that the agent has written down, where the world has changed behind its back."""

from __future__ import annotations

from pathlib import Path

import click

from agent.cli.options import config_option, load_settings, number, offering_option, select_offerings
from agent.cli.output import echo
from agent.state import forget, journal


@click.command()
@click.argument("what", metavar="WHAT", type=click.Choice(sorted(forget.HINTS)))
@config_option
@offering_option
def command(what: str, config_file: Path | None, offering_uuid: str | None) -> int:
    """Forget one kind of hint, so that it is asked or done once more. WHAT is one of:

    homes: whose home was made and whose quota set. listings: that Waldur had a listing of service or course accounts.
    refused-months: closed months that Waldur did not take. live-jobs: the jobs that explain a decrease of usage.
    settled-usage: sums of jobs that have ended; the next report counts the months in full.
    named-accounts: which accounts the offering names and reports; nobody is removed on its cluster until its next pass.
    hierarchy-names: which accounts stand for projects and customers; those with another slug in Waldur move.
    untold-usage: last usage of ended resources that Waldur was not told, once it is put right there.
    """
    settings = load_settings(config_file)
    for offering in select_offerings(settings, offering_uuid):
        count = forget.forget(settings.state_dir, what, offering.uuid)
        if count:
            journal.note(
                settings.state_dir, offering, f"made the agent forget {what} ({count})", by=journal.operator()
            )
        echo(f"{offering.name}: {number(count, 'hint')} forgotten ({what})")
    return 0
