# SPDX-License-Identifier: MIT
"""`approve`: shows the plans that wait for a person, or lets one of them go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from agent.cli.moments import DURATION, age
from agent.cli.options import config_option, json_option, number, print_json, settings_from
from agent.config.model import Mode, Settings
from agent.core.errors import SiteAgentError, StateError
from agent.state import held_plans, journal
from agent.state.held_plans import Approval, HeldPlans, HeldRow
from agent.state.store import stamp

LINES_SHOWN = 20

Entry = tuple[HeldPlans, HeldRow, Approval | None]


@click.command()
@click.argument("plan_id", metavar="[PLAN-ID]", required=False)
@config_option
@click.option("--for", "lasts", type=DURATION, default="24h", show_default=True,
              help="How long the approval lasts: 30m, 24h, 2d.")  # fmt: skip
@click.option("--revoke", is_flag=True, help="Take an approval back.")
@json_option
def command(
    plan_id: str | None, config_file: Path | None, lasts: timedelta, revoke: bool, as_json: bool
) -> int:
    """List the plans that are held, or approve one. It is carried out by the next pass, only if it is the same then."""
    settings = settings_from(config_file)
    entries = waiting(settings)
    if plan_id is None:
        if revoke:
            raise click.UsageError("name the plan whose approval is to be revoked.")
        _list(entries, as_json=as_json)
        return 0
    if revoke:
        return _revoke(settings, plan_id)
    held, plan, _ = _named(plan_id, entries)
    by = journal.operator()
    expires = datetime.now(UTC) + lasts
    try:
        held.approvals.approve(plan.id, expires=expires, by=by)
    except StateError as error:
        raise SiteAgentError(f"plan {plan.id} is not approved: {error}") from error
    text = f"approved plan {plan.id} until {stamp(expires)}: {plan.reason}"
    journal.note(settings.state_dir, held.offering, text, by=by, mode=held.mode)
    if as_json:
        print_json({"approved": plan.id, "expires": stamp(expires), "by": by})
    else:
        # Groups, homes and periodic limits go with the passes of the modes.
        mode = f"{held.mode} " if held.mode in set(Mode) else ""
        click.echo(
            f"plan {plan.id} is approved until {stamp(expires)}: "
            f"the next {mode}pass of {held.offering.name} carries it out if it is still the same"
        )
    return 0


def waiting(settings: Settings) -> list[Entry]:
    """The held plans of all offerings, each with its approval if it has one."""
    found: list[Entry] = []
    for held in held_plans.all_held(settings.state_dir, settings.offerings):
        approvals = {approval.plan: approval for approval in held.approvals.open()}
        found += [(held, plan, approvals.get(plan.id)) for plan in held.waiting()]
    return found


def as_document(entry: Entry) -> dict[str, Any]:
    held, plan, approval = entry
    approved = {"by": approval.by, "expires": stamp(approval.expires)} if approval else None
    return {**plan.as_json(), "offering_name": held.offering.name, "approved": approved}


def lines_of(entry: Entry, *, indent: str = "") -> list[str]:
    """A held plan for people: what, why, since when, and how it is let go."""
    held, plan, approval = entry
    how = f"release: approve {plan.id}"
    if approval:
        how = f"approved by {approval.by} until {stamp(approval.expires)}: the next pass carries it out"
    return [
        f"{indent}plan {plan.id}  {held.offering.name}, {held.mode}, {plan.scope}, held for {age(plan.since)}",
        f"{indent}  {plan.reason}",
        f"{indent}  {number(len(plan.lines), 'action')}; {how}",
    ]


def _list(entries: list[Entry], *, as_json: bool) -> None:
    if as_json:
        print_json({"held": [as_document(entry) for entry in entries]})
        return
    if not entries:
        click.echo("no plan is held")
    for entry in entries:
        lines = entry[1].lines
        more = len(lines) - LINES_SHOWN
        shown = [f"    {line}" for line in lines[:LINES_SHOWN]]
        click.echo("\n".join([*lines_of(entry), *shown, *([f"    and {more} more"] if more > 0 else [])]))


def _named(plan_id: str, entries: list[Entry]) -> Entry:
    """The held plan of this id, or of the only one that begins with it."""
    found = [entry for entry in entries if entry[1].id.startswith(plan_id)] if plan_id else []
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted(entry[1].id for entry in entries)) or "none"
    problem = "is not held" if not found else "could be several plans"
    raise SiteAgentError(f"plan {plan_id} {problem}; held are: {known}")


def _revoke(settings: Settings, plan_id: str) -> int:
    for held in held_plans.all_held(settings.state_dir, settings.offerings):
        for approval in held.approvals.open():
            if plan_id and approval.plan.startswith(plan_id):
                try:
                    held.approvals.revoke(approval.plan)
                except StateError as error:
                    raise SiteAgentError(f"the approval of plan {approval.plan} stays: {error}") from error
                text = f"revoked the approval of plan {approval.plan}"
                journal.note(settings.state_dir, held.offering, text, by=journal.operator(), mode=held.mode)
                click.echo(f"plan {approval.plan} is not approved any more; what was begun is not undone")
                return 0
    raise SiteAgentError(f"plan {plan_id} is not approved")
