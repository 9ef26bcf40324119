# SPDX-License-Identifier: MIT
"""`forget`: drops what the agent has written down, where the world has changed behind its back."""

from __future__ import annotations

from pathlib import Path

import click

from agent.cli.options import config_option, number, offering_option, read_settings, select_offerings
from agent.cli.output import echo
from agent.state import forget, journal


@click.command()
@click.argument("what", metavar="WHAT", type=click.Choice(sorted(forget.FORGETTABLE)))
@config_option
@offering_option
def command(what: str, config_file: Path | None, offering_uuid: str | None) -> int:
    """Forget one kind of what is remembered, so that it is asked or done once more. WHAT is one of:

    homes: whose home was made and whose quota set. listings: that Waldur had a listing of service or course accounts.
    refused-months: closed months that Waldur did not take. live-jobs: the jobs that explain a decrease of usage.
    finalised-usage: sums of jobs that have ended; the next report counts the months in full.
    named-accounts: which accounts the offering names and reports; until its next pass no member is removed on its
    cluster.
    hierarchy-names: which accounts stand for projects and customers; those with another slug in Waldur move.
    unreported-usage: last usage of ended resources that was not reported to Waldur, once it is put right there.
    """
    settings = read_settings(config_file)
    for offering in select_offerings(settings, offering_uuid):
        count = forget.forget(settings.state_dir, what, offering.uuid)
        if count:
            journal.note(
                settings.state_dir, offering, f"made the agent forget {what} ({count})", by=journal.operator()
            )
        echo(f"{offering.name}: {number(count, 'row')} forgotten ({what})")
    return 0
