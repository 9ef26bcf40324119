# SPDX-License-Identifier: MIT
"""The lines that commands print. Tables go through `console.console`, JSON through `options.print_json`.

Colours are for terminals, and for none with NO_COLOR or TERM=dumb: as rich decides it for tables, which takes too long
to import for a line.
"""

from __future__ import annotations

import os
import sys

import click

from agent.core.printable import printable


def echo(*lines: str, err: bool = False, fg: str | None = None) -> None:
    """Print each text as one line, whatever names and words of servers are in it."""
    coloured = fg if fg and has_colours(err=err) else None
    for line in lines:
        text = printable(line)
        styled = click.style(text, fg=coloured) if coloured else text
        click.echo(styled, err=err, color=bool(coloured))  # noqa: TID251  (this is the place)


def has_colours(*, err: bool = False) -> bool:
    """Return whether colours are printed: a terminal shows them, or FORCE_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return False
    if (forced := os.environ.get("FORCE_COLOR")) is not None:
        return bool(forced)
    is_dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    return not is_dumb and (sys.stderr if err else sys.stdout).isatty()
