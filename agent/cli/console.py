# SPDX-License-Identifier: MIT
"""The console on which commands print tables. Only who prints any imports this, and with it rich."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from agent.cli.output import has_colours
from agent.core.printable import printable

PIPE_WIDTH = 1000


class CleanConsole(Console):
    """A console that cleans every text before it is laid out, cells of tables too."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text):
            renderable = renderable.copy()
            renderable.plain = printable(renderable.plain)
        elif isinstance(renderable, str):
            renderable = printable(renderable)
        return super().render(renderable, options)


def console(*, stderr: bool = False) -> Console:
    """Return a console for tables. In a pipe, or in the mail of cron, rows are not folded. Without colours there is no
    other style either, as in lines.
    """
    stream = sys.stderr if stderr else sys.stdout
    return CleanConsole(
        file=stream,
        width=None if stream.isatty() else PIPE_WIDTH,
        color_system="auto" if has_colours(err=stderr) else None,
    )
