# SPDX-License-Identifier: MIT
"""`audit`: what was done to whom, why, and with which result, from this head node's journal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from agent.cli.options import one_meant, print_json, read_settings, select_offerings
from agent.cli.output import echo
from agent.config.model import Settings
from agent.core.account_names import fold
from agent.state import journal
from agent.state.journal import Query


def command(
    config_file: Path | None,
    offering_uuid: str | None,
    user: str,
    account: str,
    order: str | None,
    since: datetime | None,
    until: datetime | None,
    everything: bool,
    with_commands: bool,
    as_json: bool,
) -> int:
    settings = read_settings(config_file)
    selected = frozenset(offering.uuid for offering in select_offerings(settings, offering_uuid))
    # What a person did to all offerings at once names none.
    selected |= frozenset() if offering_uuid else frozenset({""})
    query = Query(
        user=fold(user),
        account=fold(account),
        order=_order(settings, order) if order else "",
        offerings=frozenset() if everything else selected,
        since=since,
        until=until,
    )
    found = 0
    for line in journal.read(settings.state_dir, query):
        found += 1
        if as_json:
            print_json(line)
        else:
            echo(*_lines(in_words(line, query.account), with_commands=with_commands))
    if not found and not as_json:
        echo("the journal has nothing about that")
    return 0


def _order(settings: Settings, beginning: str) -> str:
    """Return the uuid of the one order in the journal that begins so. Raises click's BadParameter."""
    if not re.fullmatch(r"[0-9a-fA-F-]+", beginning):
        raise click.BadParameter(
            f"{beginning!r} is not a uuid, nor the beginning of one", param_hint="--order"
        )
    orders = {
        str(line["ids"]["order"])
        for line in journal.read(settings.state_dir)
        if "order" in line.get("ids", ())
    }
    return one_meant(beginning, sorted(orders), str, what="orders") or beginning


@dataclass(frozen=True, slots=True)
class AuditLine:
    """A line of the journal in words."""

    # None where the line does not say it.
    time: datetime | None
    outcome: str
    text: str
    # Empty where the text says it already.
    cause: str
    offering: str
    error: str
    commands: tuple[str, ...]


def in_words(line: Mapping[str, Any], account: str = "") -> AuditLine:
    """Return a line in words; of a report about many accounts, what it said of this one."""
    try:
        time: datetime | None = datetime.fromisoformat(str(line["time"]))
    except (KeyError, ValueError):
        time = None
    action = line.get("action") or {}
    text = str(action.get("text", "?"))
    amounts = journal.reported_in(line).get(account)
    if isinstance(amounts, dict):
        reported = ", ".join(f"{name} {amount}" for name, amount in amounts.items())
        text = f"reported usage of {account} in {action.get('month')}: {reported}"
    cause = str(line.get("cause", ""))
    return AuditLine(
        time,
        str(line.get("outcome", "?")),
        text,
        "" if cause in text else cause,
        str(line.get("offering_name", "")),
        str(line.get("error") or ""),
        tuple(str(each) for each in line.get("commands", ())),
    )


def _lines(line: AuditLine, *, with_commands: bool) -> list[str]:
    """Return time, outcome, action and cause; then what went wrong, and with --commands how it was done."""
    time = line.time.strftime("%Y-%m-%d %H:%M:%SZ") if line.time else "some time"
    why = f"  [{line.cause}]" if line.cause else ""
    shown = [f"{time}  {line.outcome:<6}  {line.text}{why}  {line.offering}"]
    if line.error:
        shown.append(f"    failed: {line.error}")
    if with_commands:
        shown += [f"    $ {each}" for each in line.commands]
    return shown
