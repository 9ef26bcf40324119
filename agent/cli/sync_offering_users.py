# SPDX-License-Identifier: MIT
"""`waldur_sync_offering_users`: give usernames to the offerings' people who have none yet, and change nothing else."""

from __future__ import annotations

from pathlib import Path

import click

from agent.cli.options import config_option, load_settings, offering_option, print_error, select_offerings
from agent.cli.output import echo
from agent.config.model import Mode
from agent.core.errors import SiteAgentError
from agent.run import passes
from agent.run.site import connect


@click.command()
@config_option
@offering_option
def command(config_file: Path | None, offering_uuid: str | None) -> int:
    """Give usernames to the offerings' people who have none yet, as each membership pass does first. Exit code 1 when
    something failed.
    """
    settings = load_settings(config_file)
    is_failed = False
    for offering in select_offerings(settings, offering_uuid):
        if not offering.backend_of(Mode.MEMBERSHIP_SYNC):
            echo(f"{offering.name}: no names are given: it has no membership_sync_backend")
            continue
        try:
            report = passes.name_offering_users(connect(settings, offering, Mode.MEMBERSHIP_SYNC))
            error = report.error
        except SiteAgentError as refusal:
            error = refusal
        if error is not None:
            print_error(offering, error)
            is_failed = True
            continue
        echo(*(f"{offering.name}: {each.action.line()}" for each in report.outcomes if each.done))
        echo(*(f"{offering.name}: {problem}" for problem in report.problems), err=True)
        done = sum(each.done for each in report.outcomes)
        echo(f"{offering.name}: {done} changes, {len(report.outcomes) - done} failed")
        is_failed = is_failed or report.failed
    return 1 if is_failed else 0
