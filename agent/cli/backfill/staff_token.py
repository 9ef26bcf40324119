# SPDX-License-Identifier: MIT
"""The staff token of an operator: typed, in a file, in a variable, or asked for without an echo; and out of sight.

What is typed stands in the list of processes, for everybody, from the first moment: it is blanked there as soon as it
has been read (Linux: the kernel shows the memory in which a process got its arguments), and warned about.
"""

from __future__ import annotations

import sys

import click

from agent.cli import arguments
from agent.cli.output import echo
from agent.config.secret import MASK, Secret

VARIABLE = "WALDUR_STAFF_TOKEN"
WAYS = f"--user-token-file FILE, the variable {VARIABLE}, or `staff_token_file` of the offering in the configuration"


def asked() -> Secret:
    """Ask a person at the terminal for the token. Raises click's UsageError where there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"a staff token is needed: {WAYS}")
    return Secret(click.prompt("Staff token", hide_input=True, err=True).strip())


def hide_typed(token: str) -> None:
    """Blank the token in the process's arguments, with a warning."""
    for words in (sys.argv, sys.orig_argv):
        words[:] = [
            f"{word.removesuffix(token)}{MASK}" if arguments.holds(word, token) else word for word in words
        ]
    gone = "it is blanked there now" if arguments.blank(token) else "and it could not be blanked there"
    echo(
        f"warning: `ps` shows a token in the command line to everybody: {gone}, and your shell may keep it in its "
        f"history. Better ways: {WAYS}",
        err=True,
    )
