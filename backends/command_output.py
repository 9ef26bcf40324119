# SPDX-License-Identifier: MIT
"""What commands print, before anybody reads it: whole lines or no answer, and words for people on one line."""

from __future__ import annotations

from agent.core.errors import ParseError


def lines(command: str, stdout: str) -> list[str]:
    """The lines of an answer. Raises ParseError where the last one is cut."""
    if stdout and not stdout.endswith("\n"):
        raise ParseError(command, stdout.rsplit("\n", 1)[-1], "the last line is cut")
    return [line for line in stdout.split("\n") if line.strip()]


def one_line(text: str) -> str:
    return " / ".join(line.strip() for line in text.splitlines() if line.strip())
