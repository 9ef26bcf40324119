# SPDX-License-Identifier: MIT
"""SLURM's programs: where they are, how they are called, and what their end means.

rc 1 with words on stdout is "nothing to do", on stderr a refusal; some words point to an outage (docs/slurm.md, 6).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator

from agent.core.errors import (
    BackendError,
    BackendUnavailable,
    CommandDenied,
    CommandFailed,
    JobsStillActive,
    ParseError,
)
from backends.command_output import one_line
from backends.process import Completed

log = logging.getLogger(__name__)

# rc 1 with one of these on stdout and nothing on stderr: there was nothing to do (or nothing there: read back).
# 22.05 says "Nothing new added", 26.05 "Already existing account" or "Nothing added".
NO_CHANGE = (
    "Nothing new added",
    "Nothing added",
    "Already existing account",
    "Nothing modified",
    "Nothing deleted",
)
OUTAGE = re.compile(
    r"connection refused|persistent connection|persist_?init|talking to the database|unable to contact|"
    r"unable to connect to database|zero bytes were transmitted|connection (?:timed out|reset)|broken pipe|"
    r"communication connection|lock wait|deadlock|database connection|slurmdbd: (?:error|fatal)|"
    r"unexpected message|socket timed out|munged|munge encode|authentication error|"
    r"response to message type: DBD_|from database\.  Contact",
    re.IGNORECASE,
)
DENIED = re.compile(
    r"permission denied|doesn't have privilege|not in the accounting system|sufficient privilege", re.I
)
JOBS_ACTIVE = re.compile(r"job\(s\) active", re.IGNORECASE)


class Programs:
    """Paths of SLURM's programs, and the flags that every call of them needs."""

    def __init__(self, bin_path: str) -> None:
        folder = f"{bin_path.rstrip('/')}/" if bin_path else ""
        self.sacctmgr = f"{folder}sacctmgr"
        self.scancel = f"{folder}scancel"
        self.squeue = f"{folder}squeue"
        self.scontrol = f"{folder}scontrol"
        self.sreport = f"{folder}sreport"
        # Without --immediate and with no input, 22.05 asks its question for ever; some reads ask one, too.
        self.sacctmgr_write = (self.sacctmgr, "--immediate", "--parsable2", "--noheader")
        self.sacctmgr_read = self.sacctmgr_write
        self.sacctmgr_ask = (self.sacctmgr, "--parsable2", "--noheader")
        self.sacct_read = (
            *(f"{folder}sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "--noconvert"),
        )


def output(completed: Completed) -> str:
    """Return what a read printed. Raises BackendUnavailable, CommandDenied, CommandFailed or JobsStillActive."""
    error = failure(completed)
    if error:
        raise error
    if completed.stderr.strip():
        log.warning("`%s` said: %s", " ".join(completed.argv), completed.stderr.strip())
    return completed.stdout


def streamed(lines: Generator[str, None, Completed]) -> Generator[str, None, None]:
    """Yield the lines of a long read. None of them counts before the last: raises what `output` does, and ParseError
    where the last line is cut.
    """
    completed = yield from lines
    cut = output(completed)
    if cut:
        raise ParseError(" ".join(completed.argv), cut, "the last line is cut")


def failure(completed: Completed) -> BackendError | None:
    """Return the error that a command's end means, an outage or a refusal; None where nothing is wrong."""
    said = completed.stderr.strip()
    if completed.returncode == 0 and not OUTAGE.search(said):
        return None
    if completed.returncode == 1 and not said and any(text in completed.stdout for text in NO_CHANGE):
        return None
    if OUTAGE.search(said):
        return BackendUnavailable(
            f"`{' '.join(completed.argv)}`: the accounting database does not answer: {one_line(said)}. "
            "Nothing is lost: the step is tried again. Check slurmdbd (systemctl status slurmdbd)."
        )
    if JOBS_ACTIVE.search(said) or JOBS_ACTIVE.search(completed.stdout):
        return JobsStillActive(f"`{' '.join(completed.argv)}`: {one_line(said or completed.stdout)}")
    if DENIED.search(said):
        return CommandDenied(
            completed.argv,
            returncode=completed.returncode,
            stdout="",
            stderr=f"{said}\nThe agent's user needs AdminLevel Operator (for `load`: Administrator) in SLURM.",
        )
    # A signal ended it (out of memory, a reboot): that says nothing about what was asked.
    return CommandFailed(
        completed.argv,
        returncode=completed.returncode,
        stdout=completed.stdout,
        stderr=completed.stderr,
        retryable=completed.returncode < 0,
        lines=completed.lines,
    )
