# SPDX-License-Identifier: MIT
"""MAM's programs: where they are, how the lists are asked for, and what it means when one ends.

0 is done, anything else is not. What a change that ended otherwise has done, and whether MAM answers at all, is not
read from its words but asked of the lists (`apply`); only words about our rights are looked for.
"""

from __future__ import annotations

import logging
import re

from agent.core.errors import BackendError, BackendUnavailable, CommandDenied, CommandFailed
from backends.command_output import one_line, without
from backends.moab import parse
from backends.process import Completed

log = logging.getLogger(__name__)

DENIED = re.compile(r"not authori[sz]ed|unauthori[sz]ed|permission|authenticat|access denied", re.IGNORECASE)


class Programs:
    """Paths of MAM's programs, and the words of the reads."""

    def __init__(self, bin_path: str) -> None:
        self._folder = bin_path.rstrip("/")
        self.accounts = self.listing("accounts", parse.ACCOUNT_COLUMNS)
        self.funds = self.listing("funds", parse.FUND_COLUMNS)
        self.users = self.listing("users", parse.USER_COLUMNS)
        self.usage = self.listing("usagerecords", parse.USAGE_COLUMNS)
        self.version = (self.path("mam-list-accounts"), "--version")

    def path(self, program: str) -> str:
        return f"{self._folder}/{program}" if self._folder else program

    def listing(self, what: str, columns: tuple[str, ...]) -> tuple[str, ...]:
        return (self.path(f"mam-list-{what}"), "--raw", "--quiet", "--show", ",".join(columns))


def answer(completed: Completed) -> str:
    """Return the output of a read. Raises CommandDenied or BackendUnavailable: a list says nothing about any one
    account.
    """
    if completed.returncode != 0:
        said = one_line(completed.stderr or completed.stdout) or "no output"
        if is_denied(completed):
            raise _denied(completed)
        raise BackendUnavailable(
            f"`{' '.join(completed.argv)}` ended with {completed.returncode}: {said}. Nothing is lost: it is tried "
            "again. Check that MOAB Accounting Manager runs, and the command by hand"
        )
    if completed.stderr.strip():
        log.warning("`%s` said: %s", " ".join(completed.argv), one_line(completed.stderr))
    return completed.stdout


def failure(completed: Completed) -> BackendError | None:
    """Return the error that the end of a change means, where MAM still answers; None where it was done."""
    if completed.returncode == 0:
        return None
    if is_denied(completed):
        return _denied(completed)
    # A signal ended it (out of memory, a reboot): that says nothing about what was asked.
    if completed.returncode < 0:
        return BackendUnavailable(f"`{' '.join(completed.argv)}` was ended by signal {-completed.returncode}")
    return CommandFailed(
        completed.argv,
        returncode=completed.returncode,
        stdout=completed.stdout,
        stderr=completed.stderr,
    )


def is_denied(completed: Completed) -> bool:
    """Return whether MAM speaks of our rights: the names and texts of the command itself do not count."""
    words = [word.lstrip("+^-") for word in (completed.words or completed.argv)[1:]]
    named = [part for word in words for part in (word, *word.split(","))]
    return DENIED.search(without(completed.stderr or completed.stdout, named)) is not None


def _denied(completed: Completed) -> CommandDenied:
    said = completed.stderr.strip() or completed.stdout.strip()
    return CommandDenied(
        completed.argv,
        returncode=completed.returncode,
        stdout="",
        stderr=f"{said}\nThe agent's user needs the role of an administrator in MOAB Accounting Manager.",
    )
