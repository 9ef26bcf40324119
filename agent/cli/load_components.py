# SPDX-License-Identifier: MIT
"""`load-components`: brings the configured components into Waldur and shows what became of each."""

from __future__ import annotations

from dataclasses import dataclass, field
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
from agent.config.model import Offering
from agent.core.errors import SiteAgentError
from agent.plan.components import Change
from agent.run import components
from agent.run.components import Loaded, LoadResult
from agent.run.site import client

AS_CONFIGURED = "Waldur has it as it is configured"
STYLES = {"created": "green", "updated": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class ComponentsOutcome:
    """One offering: what became of its components, or what stopped it."""

    offering: Offering
    result: LoadResult = field(default_factory=LoadResult)
    error: SiteAgentError | None = None

    @property
    def is_incomplete(self) -> bool:
        """Whether a component is not in Waldur as it is configured."""
        is_skipped = bool(self.result.skipped)
        return any(
            item.error or (is_skipped and item.change.change is not Change.LEAVE)
            for item in self.result.components
        )

    def result_of(self, item: Loaded) -> str:
        """Return the word for what became of a component."""
        if item.error:
            return "failed"
        is_only_shown = self.result.skipped and item.change.change is not Change.LEAVE
        return f"would be {item.change.change}" if is_only_shown else item.change.change.value

    def as_json(self) -> dict[str, Any]:
        return {
            "offering": self.offering.uuid,
            "name": self.offering.name,
            "components": [
                {
                    "component": item.change.name,
                    "result": self.result_of(item),
                    "differences": {k: list(v) for k, v in item.change.differences.items()},
                    "error": str(item.error) if item.error else None,
                }
                for item in self.result.components
            ],
            "skipped": self.result.skipped or None,
            "error": str(self.error) if self.error else None,
        }


@click.command()
@config_option
@offering_option
@json_option
@click.option(
    "--components-may-fail", is_flag=True, hidden=True, help="Exit code 0 as well when components failed."
)
def command(
    config_file: Path | None, offering_uuid: str | None, as_json: bool, components_may_fail: bool
) -> int:
    """Create or update the offering's components in Waldur. Components that only Waldur has are left alone. In a pause
    and in mode `observe` it only shows what it would change; exit code 1 when there is something.
    """
    settings = load_settings(config_file)
    done: list[ComponentsOutcome] = []
    for offering in select_offerings(settings, offering_uuid):
        try:
            result = components.load(client(offering, "load_components"), offering, settings.state_dir)
            done.append(ComponentsOutcome(offering, result))
        except SiteAgentError as error:
            done.append(ComponentsOutcome(offering, error=error))
    if as_json:
        print_json({"offerings": [each.as_json() for each in done]})
    else:
        for each in done:
            _print(each)
    is_incomplete = not components_may_fail and any(each.is_incomplete for each in done)
    return 1 if is_incomplete or any(each.error for each in done) else 0


def _print(outcome: ComponentsOutcome) -> None:
    """Print what was changed, or would be; of a component that was not there, what it is now."""
    if outcome.error is not None:
        print_error(outcome.offering, outcome.error)
        return
    if not outcome.result.components:
        echo(f"{outcome.offering.name}: no backend_components are configured")
        return
    table = Table(title=Text(outcome.offering.name), title_justify="left")
    for title in ("component", "result", "what"):
        table.add_column(title, overflow="fold")
    for item in outcome.result.components:
        is_new = item.change.change is Change.CREATE
        differences = ", ".join(
            f"{key}: {wanted}" if is_new else f"{key}: {there} -> {wanted}"
            for key, (there, wanted) in item.change.differences.items()
            if not (there is None and wanted is None)
        )
        result = outcome.result_of(item)
        what = str(item.error) if item.error else differences or AS_CONFIGURED
        table.add_row(Text(item.change.name), Text(result, style=STYLES.get(result, "")), Text(what))
    console().print(table)
    if outcome.result.skipped:
        echo(f"{outcome.offering.name}: nothing is changed in Waldur: {outcome.result.skipped}")
