# SPDX-License-Identifier: MIT
"""`approve`: shows the plans that wait for a person, or lets one of them go."""

from __future__ import annotations

from collections.abc import Set
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from agent.cli import full_passes
from agent.cli.moments import age
from agent.cli.options import number, one_meant, print_json, read_settings
from agent.cli.output import echo
from agent.config.model import Mode, Settings
from agent.core.errors import SiteAgentError, StateError
from agent.core.policy import SHORT_ID
from agent.run.diagnosis.picture import WaitingPlan, waiting_plans
from agent.state import held_plans, journal
from agent.state.held_plans import HeldPlans, PlanChanged
from agent.state.store import stamp

LINES_SHOWN = 20


def plan_lines(each: WaitingPlan, *, indent: str = "") -> list[str]:
    """Return what a plan is about, why and since when it is held, and how it is released."""
    held, plan, approval = each.held, each.plan, each.approval
    release = f"release: approve {plan.short_id}"
    if approval:
        release = f"approved by {approval.by} until {stamp(approval.expires)}: the next pass carries it out"
    return [
        f"{indent}plan {plan.short_id}  {held.offering.name}, {held.mode}, {plan.scope}, held for {age(plan.since)}",
        f"{indent}  {plan.reason}",
        f"{indent}  {number(len(plan.lines), 'action')}; {release}",
    ]


def command(
    plan_id: str | None,
    config_file: Path | None,
    lasts: timedelta,
    reason: str,
    revoke: bool,
    all_lines: bool,
    as_json: bool,
) -> int:
    settings = read_settings(config_file)
    if revoke:
        if plan_id is None:
            raise click.UsageError("name the plan whose approval is to be revoked.")
        return _revoke(settings, plan_id)
    waiting = waiting_plans(settings.state_dir, settings.offerings)
    if plan_id is None:
        _print(waiting, LINES_SHOWN if not all_lines else None, as_json=as_json)
        return 0
    found = one_meant(plan_id, waiting, lambda each: each.plan.id, what="plans")
    if found is None:
        known = ", ".join(sorted(each.plan.short_id for each in waiting)) or "none"
        raise SiteAgentError(f"plan {plan_id} is not held; held are: {known}")
    if all_lines:
        _print([found], None, as_json=as_json)
        return 0
    held, plan = found.held, found.plan
    by = journal.operator()
    count, expires = release(settings, found, lasts=lasts, by=by, reason=reason)
    if as_json:
        print_json({"approved": plan.id, "expires": stamp(expires), "by": by})
    else:
        # Groups, homes and periodic limits go with the passes of the modes.
        mode = f"{held.mode} " if held.mode in set(Mode) else ""
        echo(
            f"plan {plan.short_id} is approved until {stamp(expires)}: the next {mode}pass of {held.offering.name} "
            f"carries out what is still wanted of its {number(count, 'action')}"
        )
    full_passes.queue(settings, held.offering)
    return 0


def release(
    settings: Settings,
    found: WaitingPlan,
    *,
    lasts: timedelta,
    by: str,
    reason: str = "",
    shown: Set[str] | None = None,
) -> tuple[int, datetime]:
    """Approve a held plan, and write that into the journal; return of how many actions, and until when. `shown`: the
    marks of what the person has seen. Raises PlanChanged, and other SiteAgentErrors: then nothing is approved.
    """
    held, plan = found.held, found.plan
    expires = datetime.now(UTC) + lasts
    try:
        count = held.approvals.approve(plan.id, expires=expires, by=by, shown=shown)
    except StateError as error:
        raise SiteAgentError(f"plan {plan.short_id} is not approved: {error}") from error
    if not count:
        raise PlanChanged(
            f"plan {plan.short_id} is not approved: a pass has ended just now that plans nothing of it"
        )
    because = f" ({reason})" if reason else ""
    text = f"approved plan {plan.short_id} until {stamp(expires)}{because}: {plan.reason}"
    journal.note(settings.state_dir, held.offering, text, by=by, mode=held.mode)
    return count, expires


def _print(waiting: list[WaitingPlan], most: int | None, *, as_json: bool) -> None:
    """Print the plans, each with so many of its lines at the most; None: all of them."""
    if as_json:
        print_json({"held": [each.as_json() for each in waiting]})
        return
    if not waiting:
        echo("no plan is held")
    for each in waiting:
        lines = list(each.plan.lines.values())
        shown = [f"    {line}" for line in lines[:most]]
        more = len(lines) - len(shown)
        rest = [f"    and {more} more: `approve --all-lines {each.plan.short_id}` shows them"] if more else []
        echo(*[*plan_lines(each), *shown, *rest])


def _revoke(settings: Settings, plan_id: str) -> int:
    meant = one_meant(plan_id, _approved(settings), str, what="approved plans")
    if meant is None:
        raise SiteAgentError(f"plan {plan_id} is not approved")
    revoke(settings, meant, by=journal.operator())
    echo(f"plan {meant[:SHORT_ID]} is not approved any more; what was begun is not undone")
    return 0


def _approved(settings: Settings) -> dict[str, HeldPlans]:
    """Return where each plan that is approved is held, or was. Raises StateError."""
    return {
        approval.plan: held
        for held in held_plans.all_held(settings.state_dir, settings.offerings)
        for approval in held.approvals.open()
    }


def revoke(settings: Settings, plan_id: str, *, by: str, reason: str = "") -> None:
    """Revoke an approval, also where no pass plans anything of it now, and write that into the journal. Raises
    PlanChanged where there is none any more, and other SiteAgentErrors.
    """
    short = plan_id[:SHORT_ID]
    try:
        held = _approved(settings).get(plan_id)
        was_there = held is not None and held.approvals.revoke(plan_id)
    except StateError as error:
        raise SiteAgentError(f"the approval of plan {short} stays: {error}") from error
    if held is None or not was_there:
        raise PlanChanged(f"plan {short} is not approved any more: it is done, or its approval was revoked")
    text = f"revoked the approval of plan {short}{f' ({reason})' if reason else ''}"
    journal.note(settings.state_dir, held.offering, text, by=by, mode=held.mode)


def leave(settings: Settings, found: WaitingPlan, *, by: str, reason: str) -> None:
    """Write into the journal that a person has looked at a held plan, and leaves it: it stays held. Raises PlanChanged
    where somebody has approved it meanwhile.
    """
    if found.approval:
        raise PlanChanged(f"plan {found.plan.short_id} is approved by {found.approval.by}: revoke that first")
    text = f"left plan {found.plan.short_id} as it is ({reason}): {found.plan.reason}"
    journal.note(settings.state_dir, found.held.offering, text, by=by, mode=found.held.mode)
