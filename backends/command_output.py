# SPDX-License-Identifier: MIT
"""Output of commands before it is parsed: whole lines or no answer; messages on one line. Readers and writers call
it.
"""

from __future__ import annotations

from agent.core.errors import ParseError


def lines(command: str, stdout: str) -> list[str]:
    """Return the lines of an answer. Raises ParseError where the last one is cut."""
    if stdout and not stdout.endswith("\n"):
        raise ParseError(command, stdout.rsplit("\n", 1)[-1], "the last line is cut")
    return [line for line in stdout.split("\n") if line.strip()]


def one_line(text: str) -> str:
    return " / ".join(line.strip() for line in text.splitlines() if line.strip())
