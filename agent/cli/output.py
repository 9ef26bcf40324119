# SPDX-License-Identifier: MIT
"""The lines that commands print. Tables go through `options.console`, JSON through `options.print_json`."""

from __future__ import annotations

import click

from agent.core.printable import printable


def echo(*lines: str, err: bool = False, fg: str | None = None) -> None:
    """Print each text as one line, whatever names and words of servers are in it."""
    for line in lines:
        text = printable(line)
        click.echo(click.style(text, fg=fg) if fg else text, err=err)  # noqa: TID251  (this is the place)
