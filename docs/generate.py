# SPDX-License-Identifier: MIT
"""Writes docs/commands.md, docs/actions.md and docs/reference-keys.md from the code: `make docs`. A test holds them to
it.
"""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

import click

from agent.cli.main import COMMANDS, cli
from agent.core import plans
from agent.core.actions import KINDS

FOLDER = Path(__file__).parent
REFERENCE = runpy.run_path(str(FOLDER / "reference_keys.py"))


def commands() -> str:
    """The help of every command, as the operator sees it."""
    context = click.Context(cli, info_name="manage.py", terminal_width=100, **cli.context_settings)
    parts = ["# Commands", "", "Made by `make docs` from the commands' own help.", ""]
    parts += ["```", cli.get_help(context), "```", ""]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        inner = click.Context(
            command, info_name=name, parent=context, terminal_width=100, **cli.context_settings
        )
        parts += [f"## {name}", "", "```", command.get_help(inner), "```", ""]
    return "\n".join(parts)


def actions() -> str:
    """What a plan can hold."""
    assert plans.KINDS is KINDS  # imported, so that every kind is known
    parts = [
        "# Actions",
        "",
        "What a plan can hold, as `plan --json` and the log name it. Made by `make docs` from the code.",
        "What an action can cost people counts against the [budgets](configuration.md#budgets).",
        "",
        "| action | in words | where | effect | can cost | meaning |",
        "|---|---|---|---|---|---|",
    ]
    # By module: which one was imported first is not the same in every program.
    for name, kind in sorted(KINDS.items(), key=lambda item: item[1].__module__):
        if not kind.__module__.startswith("agent."):
            continue  # a third party's, or a test's
        meaning = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        meaning = "" if meaning.startswith(f"{name}(") else meaning
        costs = ", ".join(f"`{cost}`" for cost in sorted(kind.costs))
        parts.append(f"| `{name}` | {kind.verb} | {kind.where} | {kind.effect} | {costs} | {meaning} |")
    return "\n".join(parts) + "\n"


PAGES = {"commands.md": commands, "actions.md": actions, "reference-keys.md": REFERENCE["page"]}

if __name__ == "__main__":
    for page, text in PAGES.items():
        (FOLDER / page).write_text(text(), encoding="utf-8")
