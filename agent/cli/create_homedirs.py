# SPDX-License-Identifier: MIT
"""`create-homedirs`: the homes and quotas of all users of the offerings, whatever is remembered of earlier passes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from agent.cli.options import (
    config_option,
    console,
    json_option,
    load_settings,
    offering_option,
    print_error,
    print_json,
    select_offerings,
)
from agent.cli.output import echo
from agent.config.model import Offering, Settings
from agent.core.errors import SiteAgentError
from agent.plan.policy.gate import HeldPlan
from agent.run import engine, gate
from agent.run.people import homes
from agent.run.people.homes import HomesReport
from agent.run.site import client, connect
from agent.waldur import members

STYLES = {"made": "green", "quota set": "green", "waiting": "cyan", "later": "yellow", "failed": "red"}
WORDS = {"limited": "quotas set"}


@dataclass(frozen=True, slots=True)
class HomesOutcome:
    """One offering: what became of its homes, why there are none, or what stopped it. `held`: what waits for
    `approve`.
    """

    offering: Offering
    report: HomesReport | None = None
    skipped: str = ""
    error: SiteAgentError | None = None
    held: tuple[HeldPlan, ...] = ()

    @property
    def failed(self) -> bool:
        return self.error is not None or (self.report is not None and not self.report.ok)

    def as_json(self) -> dict[str, Any]:
        return {
            "offering": self.offering.uuid,
            "name": self.offering.name,
            "skipped": self.skipped or None,
            "error": str(self.error) if self.error else None,
            "held": [plan.id for plan in self.held],
            **(self.report or HomesReport()).as_json(),
        }


@click.command()
@config_option
@offering_option
@json_option
@click.option("--homes-may-fail", is_flag=True, hidden=True, help="Exit code 0 as well when homes failed.")
def command(config_file: Path | None, offering_uuid: str | None, as_json: bool, homes_may_fail: bool) -> int:
    """Make missing home directories of the offering's users on this host and set their quotas. Exit code 1 when
    something failed; users whom this host does not know wait, and are no failure.
    """
    settings = load_settings(config_file)
    done = [_create(settings, offering) for offering in select_offerings(settings, offering_uuid)]
    if as_json:
        print_json({"offerings": [each.as_json() for each in done]})
    else:
        for each in done:
            _print(each)
    return 1 if not homes_may_fail and any(each.failed for each in done) else 0


def _create(settings: Settings, offering: Offering) -> HomesOutcome:
    """Make the homes of all users of one offering who have a name, unless the policy forbids it."""
    why_not = homes.reason_for_none(offering)
    if why_not:
        return HomesOutcome(offering, skipped=why_not)
    mode = next(mode for mode in homes.MEMBERS_MODES if offering.backend_of(mode))
    outcome = HomesOutcome(offering)
    try:
        site = connect(settings, offering, mode)
        with engine.passing(site, mode, is_recorded=False) as run:
            run.cause = "create-homedirs"
            if not gate.may_tell(run.rules):
                paused = f"paused {run.rules.paused_why}" if run.rules.paused else ""
                outcome = HomesOutcome(offering, skipped=paused or "it only observes")
            else:
                users = members.offering_users(client(offering, "create_homedirs"))
                names = {u.username for u in users if u.may_use}
                report = homes.provision(run, names, at_most=len(names), budget_s=math.inf, again=True)
                outcome = HomesOutcome(offering, report, held=run.report.held)
    except SiteAgentError as error:
        return HomesOutcome(offering, error=error)
    return outcome if run.report.error is None else HomesOutcome(offering, error=run.report.error)


def _print(outcome: HomesOutcome) -> None:
    """Print the users who are not simply as before, the problems, and a line with counts."""
    offering, report = outcome.offering, outcome.report
    if outcome.error is not None:
        print_error(offering, outcome.error)
        return
    if report is None:
        echo(f"{offering.name}: no homes are made: {outcome.skipped}")
        return
    rows = [(user, "made", "") for user in report.made]
    rows += [(user, "quota set", "") for user in report.limited]
    rows += [(user, "waiting", "this host does not know the user yet") for user in report.waiting]
    rows += [(user, "unknown", "could not be looked up") for user in report.unknown]
    rows += [(user, "later", "not tried") for user in report.later]
    rows += [(user, "failed", str(error)) for user, error in report.failed.items()]
    if rows:
        table = Table(title=Text(offering.name), title_justify="left")
        table.add_column("user", no_wrap=True)
        table.add_column("result", no_wrap=True)
        table.add_column("message", overflow="fold")
        for user, result, message in sorted(rows):
            table.add_row(Text(user), Text(result, style=STYLES.get(result, "")), Text(message))
        console().print(table)
    for problem in report.problems:
        print_error(offering, problem)
    for plan in outcome.held:
        echo(f"{offering.name}: plan {plan.short_id} is held: {plan.reason}; {plan.release}")
    counts = ", ".join(f"{count} {WORDS.get(word, word)}" for word, count in report.counted().items())
    echo(f"{offering.name}: {counts or 'no users with a name'}")
