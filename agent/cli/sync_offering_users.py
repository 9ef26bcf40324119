# SPDX-License-Identifier: MIT
"""`waldur_sync_offering_users`: give usernames to the offerings' people who have none yet, and change nothing else."""

from __future__ import annotations

from pathlib import Path

from agent.cli.options import offerings_with_members, print_errors
from agent.cli.output import echo
from agent.cli.run import pass_each
from agent.cli.settings import load_settings
from agent.config.model import Mode
from agent.run import passes


def command(config_file: Path | None, offering_uuid: str | None) -> int:
    settings = load_settings(config_file)
    served = offerings_with_members(settings, offering_uuid, "no names are given")
    passed = pass_each(settings, served, Mode.MEMBERSHIP_SYNC, passes.name_offering_users)
    for offering, report in passed:
        if report.error is not None:
            continue
        echo(*(f"{offering.name}: {each.action.line()}" for each in report.outcomes if each.done))
        echo(*(f"{offering.name}: {problem}" for problem in report.problems), err=True)
        done = sum(each.done for each in report.outcomes)
        echo(f"{offering.name}: {done} changes, {len(report.outcomes) - done} failed")
    print_errors((offering, report.error) for offering, report in passed)
    return 1 if any(report.failed for _, report in passed) else 0
