# SPDX-License-Identifier: MIT
"""Long reads: lines as they come, a flat memory, the end judged last, and no process left by who stops early."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from agent.core.errors import BackendError, BackendUnavailable
from backends.process import READS_AT_ONCE, CommandMissing, Completed, Runner
from rig.child_process import is_alive, script_command
from rig.processes import REPOSITORY, wait_until
from tests.backends.interruption import Interrupted, interrupted_in, killed_when_begun
from tests.backends.test_process import PRINT_ENVIRONMENT


def read(lines: Generator[str, None, Completed]) -> tuple[list[str], Completed]:
    """All lines, and what came at their end."""
    found: list[str] = []
    while True:
        try:
            found.append(next(lines))
        except StopIteration as end:
            return found, end.value


@pytest.mark.parametrize("code", [0, 1, 77])
def test_lines_come_in_order_and_code_and_words_at_their_end(code: int) -> None:
    script = script_command(
        "print('a\\n\\nb c'); print('err', file=sys.stderr); sys.exit(int(sys.argv[1]))", code
    )
    runner = Runner()
    lines, done = read(runner.lines(script))
    assert lines == ["a", "", "b c"]
    assert (done.returncode, done.stdout, done.stderr, done.argv) == (code, "", "err\n", tuple(script))
    assert runner.executed == {"read": 1}


def test_lines_come_before_the_command_has_ended(tmp_path: Path) -> None:
    go = tmp_path / "go"
    lines = Runner().lines(
        script_command("print('first', flush=True); wait_for(sys.argv[1]); print('last')", go)
    )
    assert next(lines) == "first"
    go.touch()
    assert read(lines)[0] == ["last"]


ENDS: dict[str, tuple[str, list[str], str]] = {
    "nothing": ("", [], ""),
    "one line break": ("\n", [""], ""),
    "a line that is cut": ("a\nb", ["a"], "b"),
    "only a cut line": ("b", [], "b"),
    "other line breaks": ("a\r\x0b\x0c\x85\u2028b\n", ["a\r\x0b\x0c\x85\u2028b"], ""),
}


@pytest.mark.parametrize("kind", ENDS)
def test_what_no_line_break_ended_is_recognised(kind: str) -> None:
    text, lines, rest = ENDS[kind]
    found, done = read(Runner().lines(script_command("sys.stdout.buffer.write(sys.argv[1].encode())", text)))
    assert (found, done.stdout) == (lines, rest)


def test_lines_that_come_in_pieces_are_whole() -> None:
    script = (
        "for byte in 'zürich|ÿ€\\n\\nend'.encode() + b'\\xff\\n':\n"
        "    os.write(1, bytes([byte])); time.sleep(0.001)"
    )
    assert read(Runner().lines(script_command(script)))[0] == ["zürich|ÿ€", "", "end\ufffd"]


def test_lines_longer_than_a_chunk_are_whole() -> None:
    lines, _ = read(Runner().lines(script_command("for n in range(3): print(str(n) * 300_000)")))
    assert lines == [digit * 300_000 for digit in "012"]


def test_this_call_has_its_own_environment() -> None:
    runner = Runner(environment={"TZ": "Asia/Tokyo", "X": "1"})
    for wanted in ({"TZ": "Europe/Tallinn"}, {}):
        (line,), _ = read(runner.lines(script_command(PRINT_ENVIRONMENT), environment=wanted))
        again = runner.read(script_command(PRINT_ENVIRONMENT), environment=wanted).stdout
        for environment in (json.loads(line), json.loads(again)):
            assert (environment["TZ"], environment["X"]) == (wanted.get("TZ", "Asia/Tokyo"), "1")


def test_behind_a_prefix_the_environment_of_a_call_goes_along_as_words() -> None:
    """`docker exec` and `sudo` hand on no environment of ours."""
    runner = Runner(prefix=["env", "-i", "LEFT=over"])
    words = ["sh", "-c", "echo $TZ $LEFT $HOME"]
    assert read(runner.lines(words, environment={"TZ": "Asia/Tokyo"}))[0] == ["Asia/Tokyo over"]
    assert runner.read(words, environment={"TZ": "A B"}).stdout == "A B over\n"
    assert shlex.join(runner.argv(["sacct"], {"TZ": "A B"})) == "env -i LEFT=over env 'TZ=A B' sacct"
    assert runner.argv(["sacct"]) == ("env", "-i", "LEFT=over", "sacct")


# Ends before the end --------------------------------------------------------------------------------

HANGING = 'sleep 987 & echo "$$ $!" > "$0"; echo "waiting for slurmdbd" >&2; echo "row 1"; wait'


def gone(pids: Path) -> bool:
    return not any(is_alive(int(pid)) for pid in pids.read_text().split())


def test_a_command_that_hangs_after_rows_is_killed_with_all_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    rows: list[str] = []

    def run(timeout_s: float) -> None:
        for row in Runner().lines(["sh", "-c", HANGING, str(pids)], timeout_s=timeout_s):
            rows.append(row)  # before the time-out

    assert killed_when_begun(run, lambda _: rows).endswith(": waiting for slurmdbd")
    assert rows == ["row 1"]
    wait_until("both are gone", lambda: gone(pids))


def test_a_command_that_prints_and_prints_ends_at_the_time_out() -> None:
    with pytest.raises(BackendUnavailable, match="gave no answer within 0 s"):
        read(Runner().lines(["yes"], timeout_s=0.4))


def test_a_command_that_closes_its_output_and_stays_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = 'exec >&-; echo $$ > "$0"; exec sleep 987'
    killed_when_begun(
        lambda timeout_s: read(Runner().lines(["sh", "-c", script, str(pids)], timeout_s=timeout_s)),
        lambda _: pids.exists() and pids.read_text(),
    )
    assert gone(pids)


def test_who_has_read_enough_ends_the_command_and_gives_its_place_back(tmp_path: Path) -> None:
    runner = Runner()
    for number in range(2 * READS_AT_ONCE):
        pids = tmp_path / str(number)
        script = "open(sys.argv[1], 'w').write(str(os.getpid()))\nwhile True: print('x' * 1000)"
        with closing(runner.lines(script_command(script, pids))) as lines:
            assert list(islice(lines, 3)) == ["x" * 1000] * 3
        assert gone(pids)


def test_a_command_ends_when_its_reader_is_interrupted(tmp_path: Path) -> None:
    """As by Celery's soft time limit, which raises in the main thread."""
    pids = tmp_path / "pids"
    lines = Runner().lines(["sh", "-c", HANGING, str(pids)])
    assert next(lines) == "row 1"
    with pytest.raises(Interrupted), interrupted_in("_chunks", pids):
        next(lines)
    wait_until("both are gone", lambda: gone(pids))


def test_a_line_without_end_is_not_kept() -> None:
    with pytest.raises(BackendError, match="it printed a line without end"):
        read(Runner().lines(["cat", "/dev/zero"]))


def test_words_without_end_on_the_other_stream_are_not_kept() -> None:
    script = "while True: sys.stderr.write('x' * 1000)"
    with pytest.raises(BackendError, match="was stopped: it printed 10000 bytes and more"):
        read(Runner(output_limit_bytes=10_000).lines(script_command(script)))


def test_lines_are_as_many_as_there_are_whatever_the_limit_of_short_answers() -> None:
    assert len(read(Runner(output_limit_bytes=10_000).lines(["seq", "100000"]))[0]) == 100_000


def test_a_program_that_is_not_there_is_named_and_takes_no_place() -> None:
    runner = Runner()
    for _ in range(READS_AT_ONCE + 1):
        with pytest.raises(CommandMissing, match="cannot start `/nowhere/sacct`"):
            next(runner.lines(["/nowhere/sacct"]))


def test_long_and_short_reads_share_their_places(tmp_path: Path) -> None:
    runner = Runner()
    held = [runner.lines(["yes"]) for _ in range(READS_AT_ONCE)]
    for lines in held:
        next(lines)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(runner.read, ["true"])
        time.sleep(0.1)
        assert not waiting.done()
        for lines in held:
            lines.close()
        assert waiting.result().returncode == 0


PEAK = """
import sys
from pathlib import Path
from backends.process import Runner
count = sum(1 for _ in Runner().lines(["sh", "-c", f"yes $(printf %0200d 7) | head -n {sys.argv[1]}"]))
print(count, Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


def test_memory_stays_flat() -> None:
    def peak_kib(count: int) -> int:
        done = subprocess.run(
            [sys.executable, "-c", PEAK, str(count)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
        read_count, peak = map(int, done.stdout.split())
        assert read_count == count
        return peak

    # 20 MB of lines.
    assert peak_kib(100_000) - peak_kib(1_000) < 4096
