# SPDX-License-Identifier: MIT
"""SLURM's programs: where they are, how they are called, and what their end means.

rc 1 with words on stdout is "nothing to do", on stderr a refusal; some phrases point to an outage (docs/slurm.md, 6).
All of them have a blank or a sign that no name has, and free text of ours is not looked at.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Sequence
from pathlib import PurePath

from agent.core.errors import (
    BackendError,
    BackendUnavailable,
    CommandDenied,
    CommandFailed,
    JobsStillActive,
    ParseError,
)
from backends.command_output import one_line, without
from backends.process import Completed

log = logging.getLogger(__name__)

# rc 1 with one of these on stdout and nothing on stderr: there was nothing to do (or nothing there: read back).
# 22.05 says "Nothing new added", later releases "Already existing account" or "Nothing added".
NO_CHANGE = (
    "Nothing new added",
    "Nothing added",
    "Already existing account",
    "Nothing modified",
    "Nothing deleted",
)
# The same on stderr, of a `modify` (24.11).
NO_EFFECT = re.compile(
    r"request didn't affect anything|data has not changed since time specified", re.IGNORECASE
)
# A default QoS was not given to an account, as a member's own QoS lack it (22.05: rc 0).
NO_ACCESS_TO_QOS = re.compile(r"have access to their default qos", re.IGNORECASE)
# Part of what was asked, or all of it, was left out, whatever the exit code.
LEFT_OUT = re.compile(
    r"no account \S+ on cluster \S+, skipping|parent account \S+ doesn't exist|please re-parent \S+ before|"
    + NO_ACCESS_TO_QOS.pattern,
    re.IGNORECASE,
)
# No connection came about: whatever else is said, nothing was asked, so nothing was refused.
NO_CONNECTION = re.compile(
    r"connection refused|persistent connection (?:init|to)|no response to persist_?init|sending persist_?init msg|"
    r"talking to the database|unable to contact|unable to connect to database|incompatible versions of client",
    re.IGNORECASE,
)
OUTAGE = re.compile(
    r"persistent connection|zero bytes were transmitted|"
    r"connection (?:timed out|reset)|broken pipe|communication connection|lock wait timeout|"
    r"mysql gave ER_LOCK_WAIT_TIMEOUT|unable to resolve deadlock|deadlock found|database connection|"
    r"slurmdbd: (?:error|fatal)|unexpected message|socket timed out|if munged is up|munge (?:en|de)code failed|"
    r"authentication error|response to message type: DBD_|from database\.  Contact|insane message length",
    re.IGNORECASE,
)
# What commands and servers of releases say that are too far apart, or where the command is the newer one.
OTHER_RELEASE = re.compile(
    r"incompatible versions|unpack SLURM_PERSIST_INIT|insane message length|protocol authentication error",
    re.I,
)
REFUSED = re.compile(r"access/permission denied|doesn't have privilege|job\(s\) active", re.IGNORECASE)
DENIED = re.compile(
    r"permission denied|doesn't have privilege|not in the accounting system|sufficient privilege", re.I
)
JOBS_ACTIVE = re.compile(r"job\(s\) active", re.IGNORECASE)
# Who was asked and did not answer: for people, and as a service.
OF_SLURMDBD, OF_SLURMCTLD = ("the accounting database", "slurmdbd"), ("slurmctld", "slurmctld")
OF_DATABASE = re.compile(r"database|slurmdbd", re.IGNORECASE)
SLURMCTLD_PROGRAMS = frozenset({"squeue", "scancel", "scontrol", "sdiag"})


def first_program(bin_path: str, prefix: Sequence[str]) -> str:
    """Return what is started for a command of SLURM on this host: sacctmgr itself, or the prefix before it."""
    return prefix[0] if prefix else Programs(bin_path).sacctmgr


class Programs:
    """Paths of SLURM's programs, and the flags that every call of them needs."""

    def __init__(self, bin_path: str) -> None:
        folder = f"{bin_path.rstrip('/')}/" if bin_path else ""
        self.sacctmgr = f"{folder}sacctmgr"
        self.scancel = f"{folder}scancel"
        self.squeue = f"{folder}squeue"
        self.scontrol = f"{folder}scontrol"
        self.sreport = f"{folder}sreport"
        self.sdiag = f"{folder}sdiag"
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
    values = [word.partition("=")[2] or word for word in completed.words or completed.argv]
    free_texts = [value for value in values if " " in value]
    judged, printed = without(said, free_texts), without(completed.stdout, free_texts)
    is_outage = NO_CONNECTION.search(judged) or (OUTAGE.search(judged) and not REFUSED.search(judged))
    is_left_out = LEFT_OUT.search(f"{printed}\n{judged}") is not None
    if completed.returncode == 0 and not is_outage and not is_left_out:
        return None
    is_modify = "modify" in (completed.words or completed.argv)
    if completed.returncode == 1 and not is_left_out and _is_no_change(said, printed, is_modify=is_modify):
        return None
    if is_outage:
        return _outage(completed)
    if JOBS_ACTIVE.search(judged) or JOBS_ACTIVE.search(printed):
        return JobsStillActive(f"`{' '.join(completed.argv)}`: {one_line(said or completed.stdout)}")
    if DENIED.search(judged):
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


def _is_no_change(said: str, printed: str, *, is_modify: bool) -> bool:
    """Return whether a command that ended with 1 had nothing to do."""
    if said:
        return is_modify and all(NO_EFFECT.search(line) for line in said.splitlines())
    return any(text in printed for text in NO_CHANGE)


def _outage(completed: Completed) -> BackendUnavailable:
    """Return the error of a command that got no answer, with the service that it asked."""
    program = PurePath((completed.words or completed.argv)[0]).name
    # With --clusters they ask the database first.
    is_slurmctld = program in SLURMCTLD_PROGRAMS and not OF_DATABASE.search(completed.stderr)
    silent, service = OF_SLURMCTLD if is_slurmctld else OF_SLURMDBD
    said = one_line(completed.stderr.strip())
    remedy = f"Check {service} (systemctl status {service})"
    if OTHER_RELEASE.search(said):
        remedy = (
            f"{program} and {service} are of releases that do not speak with each other: {service} is to be as new as "
            f"{program}, and newer by at most what SLURM supports ({program} --version, {service} -V)"
        )
    return BackendUnavailable(
        f"`{' '.join(completed.argv)}`: {silent} does not answer: {said}. "
        f"Nothing is lost: the step is tried again. {remedy}.",
        brief=f"{silent} does not answer: {said}. {remedy}",
    )
