# SPDX-License-Identifier: MIT
"""`create-homedirs`: the homes and quotas of all users of the offerings, whatever is remembered of earlier passes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from agent.cli.console import console
from agent.cli.options import Outcome, of_each, print_errors, print_json, select_offerings
from agent.cli.output import echo
from agent.cli.settings import load_settings
from agent.config.model import Offering, Settings
from agent.plan.policy.gate import HeldPlan
from agent.run import gate, passes
from agent.run.people import homes
from agent.run.people.homes import HomesReport
from agent.run.site import connect

STYLES = {"made": "green", "quota set": "green", "waiting": "cyan", "later": "yellow", "failed": "red"}
WORDS = {"limited": "quotas set"}


@dataclass(frozen=True, slots=True)
class MadeHomes:
    """What became of an offering's homes, or why there are none."""

    report: HomesReport | None = None
    skipped: str = ""
    # What waits for `approve`.
    held: tuple[HeldPlan, ...] = ()

    @property
    def failed(self) -> bool:
        return self.report is not None and not self.report.ok

    def as_json(self) -> dict[str, Any]:
        return {
            "skipped": self.skipped or None,
            "held": [plan.id for plan in self.held],
            **(self.report or HomesReport()).as_json(),
        }


def command(config_file: Path | None, offering_uuid: str | None, as_json: bool, homes_may_fail: bool) -> int:
    settings = load_settings(config_file)
    done = of_each(select_offerings(settings, offering_uuid), lambda each: _create(settings, each))
    if as_json:
        print_json(
            {"offerings": [{**each.as_json(), **(each.found or MadeHomes()).as_json()} for each in done]}
        )
    else:
        for each in done:
            _print(each)
        print_errors((each.offering, each.error) for each in done)
    is_failed = any(each.found is None or each.found.failed for each in done)
    return 1 if is_failed and not homes_may_fail else 0


def _create(settings: Settings, offering: Offering) -> MadeHomes:
    """Make the homes of all users of one offering who have a name, unless the policy forbids it. Raises
    SiteAgentError.
    """
    why_not = homes.reason_for_none(offering)
    if why_not:
        return MadeHomes(skipped=why_not)
    mode = next(mode for mode in homes.MEMBERS_MODES if offering.backend_of(mode))
    run, report = passes.make_homes(connect(settings, offering, mode), mode)
    if not gate.may_report(run.rules):
        return MadeHomes(skipped=f"paused {run.rules.paused_why}" if run.rules.paused else "it only observes")
    return MadeHomes(report, held=run.report.held)


def _print(outcome: Outcome[MadeHomes]) -> None:
    """Print the users who are not simply as before, the problems, and a line with counts."""
    offering, found = outcome.offering, outcome.found
    if found is None:
        return
    report = found.report
    if report is None:
        echo(f"{offering.name}: no homes are made: {found.skipped}")
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
    print_errors((offering, problem) for problem in report.problems)
    for plan in found.held:
        echo(f"{offering.name}: plan {plan.short_id} is held: {plan.reason}; {plan.release}")
    counts = ", ".join(f"{count} {WORDS.get(word, word)}" for word, count in report.counted().items())
    echo(f"{offering.name}: {counts or 'no users with a name'}")
