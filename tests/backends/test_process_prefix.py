# SPDX-License-Identifier: MIT
"""Words before every command: behind ssh a shell splits what follows again, behind others nothing does."""

from __future__ import annotations

import json
import shlex
import subprocess
import traceback
from pathlib import Path

import pytest

from agent.core.errors import BackendUnavailable
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
    line = shlex.join(runner.argv(command))
    by_hand = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True, timeout=600)
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


@pytest.mark.parametrize("program", ["autossh", "gsissh", "rsh", "dbclient", "plink", "pdsh", "clush"])
def test_what_else_hands_words_to_a_shell_over_there_is_known(program: str) -> None:
    prefix = ("nice", f"/usr/bin/{program}", "gateway", "ssh", "head")
    assert Runner(prefix=prefix[:3]).argv(["a", "b; reboot"]) == (*prefix[:3], "a 'b; reboot'")
    assert Runner(prefix=prefix).argv(["a b"]) == (*prefix, shlex.quote(shlex.quote("a b")))


def test_a_host_may_be_called_ssh() -> None:
    assert Runner(prefix=["sudo", "ssh", "ssh"]).argv(["a", "b c"]) == ("sudo", "ssh", "ssh", "a 'b c'")


HUSH = "hush-hush-1"
# Says what it is, as sudo does of a command that it refuses, and starts what stands behind its password.
SSHPASS = f"""#!/bin/sh
echo "user root may not run: sshpass $1 $2" >&2
[ "$2" = {HUSH} ] || exit 5
shift 2
exec "$@"
"""


@pytest.fixture
def sshpass(tmp_path: Path) -> Runner:
    program = tmp_path / "sshpass"
    program.write_text(SSHPASS)
    program.chmod(0o755)
    return Runner(prefix=[str(program), "-p", HUSH])


def test_a_password_in_the_prefix_is_used_and_printed_nowhere(
    sshpass: Runner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    for done in (
        sshpass.read(script_command(PRINT_ARGUMENTS, "a")),
        sshpass.write(script_command(PRINT_ARGUMENTS, "a"), WriteLock(tmp_path, "c1")),
    ):
        assert json.loads(done.stdout) == ["a"]
        assert done.argv[1:3] == ("-p", "***")
        assert "sshpass -p ***" in done.stderr
        assert HUSH not in repr(done)
    assert sshpass.argv(["a"])[1:] == ("-p", "***", "a")
    assert HUSH not in caplog.text


def test_a_password_in_the_prefix_is_not_in_the_error_of_a_command_that_does_not_end(
    sshpass: Runner, tmp_path: Path
) -> None:
    """Nor in its traceback: the standard library's error has the whole command as its text."""
    for call in (
        lambda: sshpass.read(["sleep", "60"], timeout_s=0.3),
        lambda: list(sshpass.lines(["sleep", "60"], timeout_s=0.3)),
        lambda: sshpass.write(["sleep", "60"], WriteLock(tmp_path, "c1"), leave_after_s=0.1),
    ):
        with pytest.raises(BackendUnavailable) as caught:
            call()
        assert "sshpass -p ***" in str(caught.value)
        assert HUSH not in "".join(traceback.format_exception(caught.value))
