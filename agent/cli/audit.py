# SPDX-License-Identifier: MIT
"""`audit`: what was done to whom, why, and with which result, from this head node's journal."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from agent.cli.moments import MOMENT
from agent.cli.options import chosen, config_option, json_option, offering_option, settings_from
from agent.core.account_names import fold, uuid_hex
from agent.state import journal
from agent.state.journal import Query


@click.command()
@config_option
@offering_option
@click.option("--user", default="", help="Actions about this user.")
@click.option("--account", default="", help="Actions about this account, or below it.")
@click.option("--order", "order_uuid", default="", metavar="UUID", help="Actions for this order.")
@click.option(
    "--since", type=MOMENT, help="From then on: 2026-11-21, 2026-11-21T03:00, or 2h for so long ago."
)
@click.option("--until", type=MOMENT, help="Until then.")
@click.option("--commands", "with_commands", is_flag=True, help="Show the commands that were run, too.")
@json_option
def command(
    config_file: Path | None, offering_uuid: str | None, as_json: bool, with_commands: bool, **wanted: Any
) -> int:
    """Show what was done, oldest first, from the journal of this head node. --json prints one object per line."""
    settings = settings_from(config_file)
    (offering,) = chosen(settings, offering_uuid) if offering_uuid else (None,)
    query = Query(
        user=fold(wanted["user"]),
        account=fold(wanted["account"]),
        order=_order(wanted["order_uuid"]),
        offering=offering.uuid if offering else "",
        since=wanted["since"],
        until=wanted["until"],
    )
    found = 0
    for line in journal.read(settings.state_dir, query):
        found += 1
        if as_json:
            click.echo(json.dumps(line, ensure_ascii=False))
        else:
            click.echo("\n".join(_lines(line, account=query.account, with_commands=with_commands)))
    if not found and not as_json:
        click.echo("the journal has nothing about that")
    return 0


def _order(written: str) -> str:
    try:
        return uuid_hex(written) if written else ""
    except ValueError as error:
        raise click.BadParameter(f"{written!r} is not a uuid", param_hint="--order") from error


def _lines(line: dict[str, Any], *, account: str, with_commands: bool) -> list[str]:
    """When, what came of it, what and why; then what went wrong, and with --commands how it was done."""
    action = _about(line, account)
    cause = str(line.get("cause", ""))
    why = "" if cause in str(action.get("text", "")) else f"  [{cause}]"
    shown = [
        f"{_moment(line)}  {line.get('outcome', '?'):<6}  {action.get('text', '?')}{why}"
        f"  {line.get('offering_name', '')}"
    ]
    if line.get("error"):
        shown.append(f"    failed: {line['error']}")
    if with_commands:
        shown += [f"    $ {each}" for each in line.get("commands", ())]
    return shown


def _about(line: dict[str, Any], account: str) -> dict[str, Any]:
    """The action; of one that told of many accounts, what it told of this one."""
    action = line.get("action") or {}
    amounts = journal.told_in(line).get(account)
    if not isinstance(amounts, dict):
        return action
    told = ", ".join(f"{name} {amount}" for name, amount in amounts.items())
    return {"text": f"reported usage of {account} in {action.get('month')}: {told}"}


def _moment(line: dict[str, Any]) -> str:
    try:
        return datetime.fromisoformat(str(line["time"])).strftime("%Y-%m-%d %H:%M:%SZ")
    except (KeyError, ValueError):
        return "some time"
