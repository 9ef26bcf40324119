# SPDX-License-Identifier: MIT
"""`load-components`: brings the configured components into Waldur and shows what became of each. Each goes on its own,
so that one refusal stops no other.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from agent.cli.console import console
from agent.cli.options import Outcome, of_each, print_errors, print_json, select_offerings
from agent.cli.output import echo
from agent.cli.settings import load_settings
from agent.config.model import Offering
from agent.core.errors import WaldurError
from agent.plan.components import Change, ComponentChange, changes
from agent.run import gate
from agent.run.site import client
from agent.waldur import offerings
from agent.waldur.client import WaldurClient
from backends import registry

log = logging.getLogger(__name__)

AS_CONFIGURED = "Waldur has it as it is configured"
STYLES = {"created": "green", "updated": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Loaded:
    """What became of one component."""

    change: ComponentChange
    error: WaldurError | None = None


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What became of an offering's components."""

    components: Sequence[Loaded] = ()
    # Why nothing was reported to Waldur, else empty.
    skipped: str = ""

    @property
    def is_incomplete(self) -> bool:
        """Whether a component is not in Waldur as it is configured."""
        return any(
            item.error or (self.skipped and item.change.change is not Change.LEAVE)
            for item in self.components
        )

    def result_of(self, item: Loaded) -> str:
        """Return the word for what became of a component."""
        if item.error:
            return "failed"
        is_only_printed = self.skipped and item.change.change is not Change.LEAVE
        return f"would be {item.change.change}" if is_only_printed else item.change.change.value

    def as_json(self) -> dict[str, Any]:
        return {
            "components": [
                {
                    "component": item.change.name,
                    "result": self.result_of(item),
                    "differences": {k: list(v) for k, v in item.change.differences.items()},
                    "error": str(item.error) if item.error else None,
                }
                for item in self.components
            ],
            "skipped": self.skipped or None,
        }


def command(
    config_file: Path | None, offering_uuid: str | None, as_json: bool, components_may_fail: bool
) -> int:
    settings = load_settings(config_file)
    done = of_each(
        select_offerings(settings, offering_uuid),
        lambda each: load(client(each, "load_components"), each, settings.state_dir),
    )
    if as_json:
        print_json(
            {"offerings": [{**each.as_json(), **(each.found or LoadResult()).as_json()} for each in done]}
        )
    else:
        for each in done:
            _print(each)
        print_errors((each.offering, each.error) for each in done)
    is_incomplete = not components_may_fail and any(each.found and each.found.is_incomplete for each in done)
    return 1 if is_incomplete or any(each.error for each in done) else 0


def load(client: WaldurClient, offering: Offering, state_dir: Path) -> LoadResult:
    """Make the offering's components in Waldur like the configured ones that its backends know, where the policy
    allows it. Raises WaldurError when it cannot be read.
    """
    skipped = gate.reason_to_report_nothing(gate.rules_for(offering, state_dir))
    known = registry.with_known_components(offering).components
    loaded = []
    for change in changes(known.values(), offerings.facts(client).components):
        error = None
        try:
            if change.change is Change.CREATE and not skipped:
                offerings.create_component(client, change.body)
            elif change.change is Change.UPDATE and not skipped:
                offerings.update_component(client, change.body)
        except WaldurError as raised:
            log.error("component %s of offering %s: %s", change.name, offering.uuid, raised)
            error = raised
        loaded.append(Loaded(change, error))
    return LoadResult(loaded, skipped)


def _print(outcome: Outcome[LoadResult]) -> None:
    """Print what was changed, or would be; of a component that was not there, what it is now."""
    name, found = outcome.offering.name, outcome.found
    if found is None:
        return
    if not found.components:
        echo(f"{name}: no backend_components are configured")
        return
    table = Table(title=Text(name), title_justify="left")
    for title in ("component", "result", "what"):
        table.add_column(title, overflow="fold")
    for item in found.components:
        is_new = item.change.change is Change.CREATE
        differences = ", ".join(
            f"{key}: {wanted}" if is_new else f"{key}: {there} -> {wanted}"
            for key, (there, wanted) in item.change.differences.items()
            if not (there is None and wanted is None)
        )
        result = found.result_of(item)
        what = str(item.error) if item.error else differences or AS_CONFIGURED
        table.add_row(Text(item.change.name), Text(result, style=STYLES.get(result, "")), Text(what))
    console().print(table)
    if found.skipped:
        echo(f"{name}: nothing is changed in Waldur: {found.skipped}")
