# SPDX-License-Identifier: MIT
"""What the end of a command means: done, refused, or an outage."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from agent.core.errors import (
    BackendError,
    BackendUnavailable,
    CommandDenied,
    CommandFailed,
    JobsStillActive,
)
from backends.lock import WriteLock
from backends.process import Completed, Runner
from backends.slurm.programs import failure, output
from tests.backends.slurm.stand_in import (
    OUTAGES,
)

# What an end means --------------------------------------------------------------------------------

NO_EFFECT = (
    "sacctmgr: error: Request didn't affect anything\n"
    " Error with request: Data has not changed since time specified\n"
)
ENDS: list[tuple[int, str, str, type[BackendError] | None]] = [
    (0, "", "", None),
    (0, " Modified account associations...\n", "", None),
    (0, "", " These associations don't have access to their default qos.\n", CommandFailed),
    (1, " Nothing new added.\n", "", None),
    (1, " Nothing modified\n", "", None),
    (1, " Nothing deleted\n", "", None),
    (1, " Already existing account a on cluster c1\n", "", None),
    (1, "Request didn't affect anything\nNothing added.\nMake sure the accounts exist.\n", "", None),
    (1, "Modified account associations...\n", NO_EFFECT, None),
    (1, "", f"{NO_EFFECT} No such thing.\n", CommandFailed),
    (1, "No account x on cluster c1, skipping.\nNothing added.\n", "", CommandFailed),
    (0, " Adding User(s)\n  ann\nNo account x on cluster c1, skipping.\n", "", CommandFailed),
    (0, "  Parent account x doesn't exist on cluster c1\n", "", CommandFailed),
    (
        0,
        "  Requested parent account x is a child of y. Please re-parent x before using it.\n",
        "",
        CommandFailed,
    ),
    (1, " Nothing new added.\n", "No blank names are allowed when adding.", CommandFailed),
    (1, "", " Nothing new added.\n", CommandFailed),
    (2, " Nothing modified\n", "", CommandFailed),
    (1, "", "", CommandFailed),
    (1, " Adding User(s)\n", " This account 'x' doesn't exist.\n", CommandFailed),
    (
        1,
        " Can't modify because these users aren't associated with new default account 'a'...\n",
        "",
        CommandFailed,
    ),
    (1, "", " Error with request: Job(s) active, cancel job(s) before remove\n", JobsStillActive),
    (1, " Error with request: Job(s) active, cancel job(s) before remove\n", "", JobsStillActive),
    (1, "", " Problem adding accounts: Access/permission denied\n", CommandDenied),
    (-9, "", "", CommandFailed),
    *((1, "", words, BackendUnavailable) for words in OUTAGES),
    (0, "", OUTAGES[0], BackendUnavailable),
]


@pytest.mark.parametrize(("code", "stdout", "stderr", "kind"), ENDS)
def test_the_end_of_a_command_means(
    code: int, stdout: str, stderr: str, kind: type[BackendError] | None
) -> None:
    completed = Completed(("sacctmgr", "modify", "x"), code, stdout, stderr, 0.1)
    error = failure(completed)
    assert type(error) is (kind or type(None))
    if error is None:
        assert output(completed) == stdout
    else:
        assert "\n" not in str(error)
        assert "`sacctmgr modify x`" in str(error)
        with pytest.raises(type(error)):
            output(completed)


@pytest.mark.parametrize("argv", [("sacctmgr", "show", "assoc", "where", "account=modify"), ("squeue",)])
def test_a_read_that_failed_is_not_taken_for_one_that_found_nothing(argv: tuple[str, ...]) -> None:
    with pytest.raises(CommandFailed):
        output(Completed(argv, 1, "", NO_EFFECT, 0.1))


@pytest.mark.parametrize(
    "name", ["deadlock", "munged", "a_munged-2", "persist_init", "lock.wait", "a_deadlocks", "connection"]
)
@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        (" This account '{name}' doesn't exist.\n", CommandFailed),
        (" Problem adding users: {name}\n", CommandFailed),
        (" Error with request: Job(s) active, cancel job(s) before remove\n  {name}\n", JobsStillActive),
        (" Problem adding accounts: Access/permission denied\n {name}\n", CommandDenied),
        (
            "sacctmgr: error: Problem talking to the database: Connection refused\n {name}\n",
            BackendUnavailable,
        ),
    ],
)
def test_a_name_that_holds_the_words_of_an_outage_is_none(
    name: str, stderr: str, kind: type[BackendError]
) -> None:
    argv = ("sacctmgr", "add", "user", f"name={name}", f"account={name},b")
    assert type(failure(Completed(argv, 1, "", stderr.format(name=name), 0.1))) is kind
    assert failure(Completed(argv, 0, f" {name}\n", f" {name}\n", 0.1)) is None


@pytest.mark.parametrize(
    "text", ["Connection refused", "Job(s) active", "Permission denied", "Nothing added"]
)
def test_our_own_free_text_is_not_looked_at(text: str) -> None:
    """A description is what a person has called a resource."""
    argv = ("sacctmgr", "add", "account", "name=x", f"description={text} by all")
    said = f" Description = {text} by all\n Unknown option\n"
    assert type(failure(Completed(argv, 1, said, said, 0.1))) is CommandFailed
    assert type(failure(Completed(argv, 1, said, "", 0.1))) is CommandFailed


def test_a_refusal_is_reported_before_an_outage() -> None:
    said = (
        "error: persistent connection closed\n Error with request: Job(s) active, cancel job(s) before remove"
    )
    assert type(failure(Completed(("sacctmgr",), 1, "", said, 0.1))) is JobsStillActive


@pytest.mark.parametrize(
    "said",
    [
        "error: persistent connection init message to db:6819: Access/permission denied\n"
        "error: Sending PersistInit msg: Access/permission denied",
        "error: Problem talking to the database: Connection refused\n Job(s) active, cancel job(s) before remove",
        " Problem adding accounts: Access/permission denied\nerror: slurmdbd: Connection refused",
    ],
)
def test_without_a_connection_nothing_was_refused(said: str) -> None:
    error = failure(Completed(("sacctmgr",), 1, "", said, 0.1))
    assert type(error) is BackendUnavailable
    assert error.retryable


def test_behind_ssh_our_own_free_text_is_not_looked_at_either(tmp_path: Path) -> None:
    """There the whole command is one word."""
    ssh, sacctmgr = tmp_path / "ssh", tmp_path / "sacctmgr"
    ssh.write_text('#!/bin/sh\nshift\nexec /bin/sh -c "$*"\n')
    sacctmgr.write_text('#!/bin/sh\necho " Unknown option: $3" >&2\nexit 1\n')
    for program in (ssh, sacctmgr):
        program.chmod(0o755)
    command = [str(sacctmgr), "name=x", "account=y", "description=Broken pipe by all"]
    runner = Runner(prefix=[str(ssh), "head"])
    for done in (runner.read(command), runner.write(command, WriteLock(tmp_path, "c1"))):
        assert "Broken pipe by all" in done.stderr
        assert type(failure(done)) is CommandFailed


def test_what_a_signal_ended_may_be_tried_again_and_a_refusal_not() -> None:
    killed, refused = (failure(Completed(("x",), code, "", "no", 0)) for code in (-signal.SIGKILL, 1))
    assert killed is not None
    assert refused is not None
    assert (killed.retryable, refused.retryable) == (True, False)


def test_a_missing_right_is_reported_with_what_to_give() -> None:
    error = failure(Completed(("x",), 1, "", " Error with request: Access/permission denied", 0))
    assert "needs AdminLevel Operator" in str(error)
