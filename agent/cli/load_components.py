# SPDX-License-Identifier: MIT
"""`load-components`: brings the configured components into Waldur and shows what became of each."""

from __future__ import annotations

from pathlib import Path

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
from agent.config.model import Offering
from agent.core.errors import SiteAgentError
from agent.plan.components import Change
from agent.run import components
from agent.run.components import Loaded
from agent.run.site import client

STYLES = {"created": "green", "updated": "yellow", "failed": "red"}

Result = tuple[Offering, list[Loaded], SiteAgentError | None]


@click.command()
@config_option
@offering_option
@json_option
def command(config_file: Path | None, offering_uuid: str | None, as_json: bool) -> int:
    """Create or update the offering's components in Waldur. Components that only Waldur has are left alone."""
    settings = settings_from(config_file)
    done: list[Result] = []
    for offering in chosen(settings, offering_uuid):
        try:
            done.append((offering, components.load(client(offering, "load_components"), offering), None))
        except SiteAgentError as error:
            done.append((offering, [], error))
    if as_json:
        print_json({"offerings": [_document(*each) for each in done]})
    else:
        _print(done)
    failed = any(error or any(item.error for item in loaded) for _, loaded, error in done)
    return 1 if failed else 0


def _document(offering: Offering, loaded: list[Loaded], error: SiteAgentError | None) -> dict[str, object]:
    return {
        "offering": offering.uuid,
        "name": offering.name,
        "components": [
            {
                "component": item.change.name,
                "result": _result(item),
                "differences": {k: list(v) for k, v in item.change.differences.items()},
                "error": str(item.error) if item.error else None,
            }
            for item in loaded
        ],
        "error": str(error) if error else None,
    }


def _print(done: list[Result]) -> None:
    for offering, loaded, error in done:
        if error is not None:
            complain(offering, error)
        elif loaded:
            console().print(_table(offering, loaded))
        else:
            click.echo(f"{offering.name}: no backend_components are configured")


def _table(offering: Offering, loaded: list[Loaded]) -> Table:
    table = Table(title=Text(offering.name), title_justify="left")
    for title in ("component", "result", "what"):
        table.add_column(title, overflow="fold")
    for item in loaded:
        result = _result(item)
        what = str(item.error) if item.error else _differences(item)
        table.add_row(Text(item.change.name), Text(result, style=STYLES.get(result, "")), Text(what))
    return table


def _differences(item: Loaded) -> str:
    """What was changed; of a component that was not there, what it is now."""
    changes = item.change.differences.items()
    return ", ".join(
        f"{key}: {wanted}" if item.change.change is Change.CREATE else f"{key}: {there} -> {wanted}"
        for key, (there, wanted) in changes
        if not (there is None and wanted is None)
    )


def _result(item: Loaded) -> str:
    return "failed" if item.error else item.change.change.value
