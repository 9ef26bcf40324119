# SPDX-License-Identifier: MIT
"""`plan MODE`: every action that a pass would carry out now, with its reason; nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agent.cli.commands.shared import EXIT_CHANGES
from agent.cli.options import number, print_errors, print_json, served_offerings
from agent.cli.output import echo
from agent.cli.settings import load_settings
from agent.config.model import Mode, Offering, Settings
from agent.core.errors import SiteAgentError
from agent.run.diagnosis.person import NothingFound, find_resource
from agent.run.preview import files as plan_files
from agent.run.preview.previews import Preview, preview, preview_of_resource
from agent.run.results import withheld
from agent.run.site import connect
from agent.state.journal import ids_of


@dataclass(frozen=True, slots=True)
class OfferingPlan:
    """One offering: its plan, or the error that kept it from being made."""

    offering: Offering
    plan: Preview | None = None
    error: SiteAgentError | None = None
    commands: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "offering": self.offering.uuid,
            "name": self.offering.name,
            "actions": [action.as_json() for action in plan.allowed] if plan else [],
            **withheld(plan.held if plan else (), plan.refused if plan else ()),
            "notes": list(plan.notes) if plan else [],
            "unplanned": [result.as_json() for result in plan.unplanned] if plan else [],
            "error": str(self.error) if self.error else None,
        }

    def lines(self) -> list[str]:
        """Return what happens, what is held or skipped and why, and what else should be known."""
        plan = self.plan
        if plan is None:
            return []
        lines = [action.render() for action in plan.allowed.actions] or ["nothing to do"]
        for held in plan.held:
            lines.append(
                f"held: plan {held.short_id} ({held.scope}): {held.reason}; `approve {held.short_id}` releases it"
            )
            lines += [f"  {action.line()}" for action in held.actions]
        lines += [f"skipped: {r.action.line()}: {r.sentence}" for r in plan.refused]
        lines += [f"note: {note}" for note in plan.notes]
        for result in plan.unplanned:
            about = result.as_json()
            what = f"resource {about.get('resource')}"
            if "order" in about:
                what = f"order {about['order']} ({about['type']})"
            lines.append(f"{what} {result.result}: {result.message}")
        return [*lines, self._count(plan)] if plan.allowed else lines

    def _count(self, plan: Preview) -> str:
        """Return how much it is, and of how many orders, or else accounts."""
        found = [ids_of(action) for action in plan.allowed.actions]
        orders = number(len({ids["order"] for ids in found if "order" in ids}), "order")
        accounts = number(len({ids["account"] for ids in found if "account" in ids}), "account")
        parts = [accounts if orders.startswith("0 ") else orders, number(len(found), "action")]
        held = sum(len(each.actions) for each in plan.held)
        parts += [
            f"{count} {word}" for count, word in ((held, "held"), (len(plan.refused), "skipped")) if count
        ]
        return ", ".join(part for part in parts if not part.startswith("0 "))

    def show(self, *, as_commands: bool) -> None:
        """Print the plan, or the commands that would be run."""
        if self.plan is not None:
            echo(f"# {self.offering.name}")
            # A command may have several lines: what it reads.
            lines = [line for command in self.commands for line in command.split("\n")]
            echo(*((lines or ["no commands"]) if as_commands else self.lines()))


def command(
    mode: str,
    config_file: Path | None,
    offering_uuid: str | None,
    resource_name: str | None,
    as_json: bool,
    as_commands: bool,
    out: Path | None,
    exit_code: bool,
) -> int:
    if as_json and as_commands:
        raise click.UsageError("--json and --commands are two ways to print one plan: choose one.")
    settings = load_settings(config_file)
    served = served_offerings(settings, offering_uuid, Mode(mode))
    check_scope(mode, len(served), resource_name, out)
    planned = [
        plan_offering(settings, offering, Mode(mode), as_commands=as_commands, resource_name=resource_name)
        for offering in served
    ]
    if as_json:
        print_json({"offerings": [each.as_json() for each in planned]})
    else:
        for each in planned:
            each.show(as_commands=as_commands)
        print_errors((each.offering, each.error) for each in planned)
    if any(each.error for each in planned):
        return 1
    if out and planned[0].plan:
        file = plan_files.write(out, served[0].uuid, Mode(mode), planned[0].plan)
        echo(f"written to {out}: `apply {out}` carries it out until {file.expires:%Y-%m-%d %H:%MZ}", err=True)
    changes = any(each.plan and each.plan.allowed for each in planned)
    return EXIT_CHANGES if exit_code and changes else 0


def check_scope(mode: str, offerings: int, resource_name: str | None, out: Path | None) -> None:
    """Raise click.UsageError for options that do not go together. `offerings`: how many are served."""
    if resource_name and (mode != Mode.MEMBERSHIP_SYNC or offerings != 1 or out):
        raise click.UsageError(
            "--resource shows the membership plan of one resource of one offering: choose it with --offering, and "
            "omit --out, which is about all of them."
        )
    if out and offerings != 1:
        raise click.UsageError("--out writes the plan of one offering: choose it with --offering.")


def plan_offering(
    settings: Settings,
    offering: Offering,
    mode: Mode,
    *,
    as_commands: bool = False,
    resource_name: str | None = None,
) -> OfferingPlan:
    """Return the plan of one offering, or the error that kept it from being made: it stops no other offering."""
    try:
        site = connect(settings, offering, mode)
        if resource_name is None:
            plan = preview(site, mode)
        else:
            resource = find_resource(site, resource_name)
            if resource is None:
                raise NothingFound(f"there is no resource {resource_name!r} in Waldur that is not terminated")
            plan = preview_of_resource(site, resource.uuid)
        commands = site.backend.commands(plan.allowed.cluster_actions()) if as_commands else ()
        return OfferingPlan(offering, plan, commands=commands)
    except SiteAgentError as error:
        return OfferingPlan(offering, error=error)
