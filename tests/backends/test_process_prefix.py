# SPDX-License-Identifier: MIT
"""Words before every command: behind ssh a shell splits what follows again, behind others nothing does."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from backends.lock import WriteLock
from backends.process import Runner
from rig.child_process import script_command
from tests.backends.test_process import PRINT_ARGUMENTS, PRINT_ENVIRONMENT, WORDS

SPLITTING = """#!/bin/sh
# As sshd does: what follows the host is joined with blanks, and a shell splits it again.
shift
exec /bin/sh -c "$*"
"""


@pytest.fixture
def ssh(tmp_path: Path) -> str:
    program = tmp_path / "ssh"
    program.write_text(SPLITTING)
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((), ("head",)),
        (("env", "A=b"), ("head",)),
        ((), ("head", "env", "A=b")),
        (("timeout", "60"), ("gateway", "SSH", "head")),
        (("nice", "-n", "5", "stdbuf", "-oL"), ("head",)),
    ],
)
def test_behind_ssh_words_reach_the_program_as_they_are(
    ssh: str, tmp_path: Path, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """A shell over there splits them again, and one more for each ssh on the way."""
    runner = Runner(prefix=[*before, ssh, *(ssh if word == "SSH" else word for word in after)])
    command = script_command(PRINT_ARGUMENTS, *WORDS)
    first, *_ = runner.lines(command)
    for answer in (
        runner.read(command).stdout,
        runner.write(command, WriteLock(tmp_path, "c1")).stdout,
        first,
    ):
        assert json.loads(answer) == WORDS
    shown = shlex.join(runner.argv(command))
    by_hand = subprocess.run(["/bin/sh", "-c", shown], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(by_hand.stdout) == WORDS


def test_behind_ssh_the_environment_of_a_call_arrives(ssh: str) -> None:
    runner = Runner(prefix=[ssh, "head"])
    done = runner.read(script_command(PRINT_ENVIRONMENT), environment={"TZ": "Asia/Tokyo", "X": "a b;c"})
    environment = json.loads(done.stdout)
    assert (environment["TZ"], environment["X"]) == ("Asia/Tokyo", "a b;c")


@pytest.mark.parametrize(
    "prefix",
    [["docker", "exec", "slurmctld"], ["ssh-agent"], ["sudo", "-u", "waldur"], ["env", "SSH=ssh"], []],
)
def test_where_no_ssh_is_started_words_are_left_alone(prefix: list[str]) -> None:
    assert Runner(prefix=prefix).argv(["a", "b c"]) == (*prefix, "a", "b c")


@pytest.mark.parametrize(
    "wrapper",
    [
        "ionice -c2",
        "setpriv --reuid 0",
        "stdbuf -oL",
        "flock /tmp/x",
        "nohup",
        "chrt -b 0",
        "docker exec slurm",
        "anything",
    ],
)
def test_ssh_is_seen_behind_any_wrapper(wrapper: str) -> None:
    prefix = [*wrapper.split(), "/usr/bin/ssh", "head"]
    assert Runner(prefix=prefix).argv(["a", "b; reboot"]) == (*prefix, "a 'b; reboot'")


def test_a_host_may_be_called_ssh() -> None:
    assert Runner(prefix=["sudo", "ssh", "ssh"]).argv(["a", "b c"]) == ("sudo", "ssh", "ssh", "a 'b c'")
