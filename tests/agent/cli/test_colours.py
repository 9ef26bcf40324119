# SPDX-License-Identifier: MIT
"""Lines and tables have colours, and any other style, by one rule."""

from __future__ import annotations

import pytest
from rich.text import Text

from agent.cli.console import console
from agent.cli.output import echo


@pytest.mark.parametrize(
    ("environment", "is_styled"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1", "TERM": "xterm"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"}, False),
    ],
    ids=["in a pipe", "asked for", "NO_COLOR"],
)
def test_lines_and_tables_are_styled_alike(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    environment: dict[str, str],
    is_styled: bool,
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    echo("a line", fg="red")
    line = capsys.readouterr().out
    console().print(Text("a cell", style="bold"))
    cell = capsys.readouterr().out

    assert ("\x1b[" in line, "\x1b[" in cell) == (is_styled, is_styled)
