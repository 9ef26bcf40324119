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
    chosen,
    complain,
    config_option,
    console,
    json_option,
    offering_option,
    print_json,
    settings_from,
)
from agent.config.model import Offering, Settings
from agent.core.errors import SiteAgentError
from agent.run import engine, gate
from agent.run.gate import Pass
from agent.run.people import homes
from agent.run.people.homes import HomesReport
from agent.run.site import client, connect
from agent.waldur import members

STYLES = {"made": "green", "quota set": "green", "waiting": "cyan", "later": "yellow", "failed": "red"}
WORDS = {"limited": "quotas set"}


@dataclass(frozen=True, slots=True)
class Done:
    """One offering: what became of its homes, why there are none, or what stopped it."""

    offering: Offering
    report: HomesReport | None = None
    skipped: str = ""
    error: SiteAgentError | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None or (self.report is not None and not self.report.ok)


@click.command()
@config_option
@offering_option
@json_option
def command(config_file: Path | None, offering_uuid: str | None, as_json: bool) -> int:
    """Make missing home directories of the offering's users on this host and set their quotas. Exit code 1 when
    something failed; users whom this host does not know wait, and are no failure.
    """
    settings = settings_from(config_file)
    done = [_create(settings, offering) for offering in chosen(settings, offering_uuid)]
    if as_json:
        print_json({"offerings": [_document(each) for each in done]})
    else:
        for each in done:
            _print(each)
    return 1 if any(each.failed for each in done) else 0


def _create(settings: Settings, offering: Offering) -> Done:
    """One offering; what stops it is said and does not stop the others."""
    why_not = homes.reason_for_none(offering)
    if why_not:
        return Done(offering, skipped=why_not)
    mode = next(mode for mode in homes.MEMBERS_MODES if offering.backend_of(mode))
    done = Done(offering)
    try:
        site = connect(settings, offering, mode)
        with engine.passing(site, mode, is_recorded=False) as run:
            run.cause = "create-homedirs"
            done = _settled(run)
    except SiteAgentError as error:
        return Done(offering, error=error)
    return done if run.report.error is None else Done(offering, error=run.report.error)


def _settled(run: Pass) -> Done:
    """The homes of all users who have a name, unless the policy lets nothing be done. Raises SiteAgentError."""
    offering, rules = run.site.offering, run.rules
    if not gate.may_tell(rules):
        return Done(offering, skipped=f"paused {rules.paused_why}" if rules.paused else "it only observes")
    users = members.offering_users(client(offering, "create_homedirs"))
    names = {u.username for u in users if u.state == "OK" and u.username and not u.is_restricted}
    return Done(offering, homes.provision(run, names, at_most=len(names), budget_s=math.inf, again=True))


def _document(done: Done) -> dict[str, Any]:
    return {
        "offering": done.offering.uuid,
        "name": done.offering.name,
        "skipped": done.skipped or None,
        "error": str(done.error) if done.error else None,
        **(done.report or HomesReport()).as_json(),
    }


def _print(done: Done) -> None:
    if done.error is not None:
        complain(done.offering, done.error)
        return
    if done.report is None:
        click.echo(f"{done.offering.name}: no homes are made: {done.skipped}")
        return
    rows = _rows(done.report)
    if rows:
        table = Table(title=Text(done.offering.name), title_justify="left")
        table.add_column("user", no_wrap=True)
        table.add_column("result", no_wrap=True)
        table.add_column("message", overflow="fold")
        for user, result, message in rows:
            table.add_row(Text(user), Text(result, style=STYLES.get(result, "")), Text(message))
        console().print(table)
    for problem in done.report.problems:
        complain(done.offering, problem)
    counts = done.report.counted().items()
    told = ", ".join(f"{count} {WORDS.get(word, word)}" for word, count in counts)
    click.echo(f"{done.offering.name}: {told or 'no users with a name'}")


def _rows(report: HomesReport) -> list[tuple[str, str, str]]:
    """User, result and message of whoever is not simply as before."""
    rows = [(user, "made", "") for user in report.made]
    rows += [(user, "quota set", "") for user in report.limited]
    rows += [(user, "waiting", "this host does not know the user yet") for user in report.waiting]
    rows += [(user, "unknown", "could not be looked up") for user in report.unknown]
    rows += [(user, "later", "not tried") for user in report.later]
    rows += [(user, "failed", str(error)) for user, error in report.failed.items()]
    return sorted(rows)
