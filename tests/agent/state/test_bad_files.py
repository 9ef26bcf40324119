# SPDX-License-Identifier: MIT
"""A state file that is absent, locked, damaged, newer, read-only, on a full disk, or an old copy."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agent.core.errors import StateBusy, StateError, StateUnreadable, StateUnwritable
from agent.state import pauses
from agent.state.held_plans import HeldPlans, HeldRow, HoldResult
from agent.state.schema import OLDEST, VERSION
from agent.state.store import Store
from rig.processes import wait_until
from tests.agent.state.conftest import in_private_mounts, needs_root, offering

OURS = offering()


PLAN = HeldRow("p1", "account a", "too many", "demo", {"k": "remove a"})

HOLDER = """
import sys, time
from pathlib import Path
from agent.state.store import Store
with Store(Path(sys.argv[1])).write() as db:
    db.run("INSERT INTO pauses VALUES ('x', 'holder', '', '', '')")
    Path(sys.argv[2]).touch()
    time.sleep(60)
"""

FULL_DISK = """
import os, sqlite3, subprocess, sys
from pathlib import Path
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + sys.argv[2], "none", sys.argv[1]], check=False).returncode:
    sys.exit("cannot mount")
from agent.core.errors import StateUnwritable
from agent.state import held_plans, pauses
from agent.state.held_plans import HeldRow, HoldResult, HeldPlans
from tests.agent.state.conftest import offering
ours, folder = offering(), Path(sys.argv[1])
pauses.pause(folder, ours, by="ann")
held = HeldPlans(folder, ours, "order_process")
held.hold(HeldRow("q", "s", "r", "c", {"k": "line"}))
if os.fork() == 0:
    connection = sqlite3.connect(folder / "state.sqlite3")
    connection.execute("UPDATE pauses SET reason = 'not yet in the file itself'")
    connection.commit()
    os._exit(0)
os.wait()
assert (folder / "state.sqlite3-wal").stat().st_size
filler = (folder / "filler").open("wb", buffering=0)
try:
    while filler.write(bytes(512)):
        pass
except OSError:
    pass
print("not yet" in pauses.pause_note(folder, ours), [each.id for each in held.waiting()], held.approvals.open())
print(held.hold(HeldRow("p", "s", "r", "c", {"k": "line " * 2000})).name)
approvals = held.approvals
for attempt in (lambda: pauses.resume(folder, ours), lambda: approvals.approve("q", expires=tomorrow(), by="ann")):
    def tomorrow():
        from datetime import UTC, datetime
        return datetime.now(UTC)
    try:
        attempt()
        print("written")
    except StateUnwritable as error:
        print("StateUnwritable", "disk" in str(error))
print(pauses.pause_note(folder, ours)[:6])
filler.truncate(0)
pauses.resume(folder, ours)
print(repr(pauses.pause_note(folder, ours)))
"""

SMALL_DISK = """
import subprocess, sys
from pathlib import Path
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + sys.argv[2], "none", sys.argv[1]], check=False).returncode:
    sys.exit("cannot mount")
from agent.core.errors import StateUnwritable
from agent.state import held_plans, pauses
from tests.agent.state.conftest import offering
try:
    pauses.pause(Path(sys.argv[1]), offering(), by="ann")
    print("written")
except StateUnwritable:
    print("StateUnwritable")
print(sorted(path.name for path in Path(sys.argv[1]).iterdir()))
"""

READ_ONLY = """
import subprocess, sys
from pathlib import Path
from agent.core.errors import StateUnwritable
from agent.state import held_plans, pauses
from tests.agent.state.conftest import offering
ours, folder = offering(), Path(sys.argv[1])
pauses.pause(folder, ours, by="ann")
for words in (["--bind", folder, folder], ["-o", "remount,bind,ro", folder]):
    if subprocess.run(["mount", *words], check=False).returncode:
        sys.exit("cannot mount")
print(pauses.pause_note(folder, ours)[:6])
try:
    pauses.resume(folder, ours)
except StateUnwritable as error:
    print("StateUnwritable")
print(pauses.pause_note(folder, ours)[:6])
"""


# Absent -----------------------------------------------------------------------------------------------


def test_a_file_that_is_absent_knows_nothing_and_reading_makes_none(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert pauses.pause_note(folder, OURS) == ""
    assert HeldPlans(folder, OURS, "report").waiting() == []
    assert not folder.exists()
    pauses.pause(folder, OURS, by="ann")
    assert "by ann" in pauses.pause_note(folder, OURS)
    assert [path.name for path in folder.iterdir()] == ["state.sqlite3"]


def test_a_log_that_is_left_alone_is_not_taken_for_one_of_a_new_file(tmp_path: Path) -> None:
    pauses.pause(tmp_path, OURS, by="ann")
    (tmp_path / "state.sqlite3-wal").write_bytes(b"old changes")
    (tmp_path / "state.sqlite3").unlink()
    for attempt in (
        lambda: pauses.pause(tmp_path, OURS, by="bob"),
        lambda: HeldPlans(tmp_path, OURS, "report").waiting(),
    ):
        with pytest.raises(StateUnreadable, match="wal is left"):
            attempt()
    assert "perhaps" in pauses.pause_note(tmp_path, OURS)


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_writer_whose_file_is_deleted_under_it_has_written_nothing(
    tmp_path: Path, is_made_anew: bool
) -> None:
    folder = tmp_path / "state"
    pauses.pause(folder, OURS, by="ann")

    def write() -> None:
        with Store(folder).write() as db:
            pauses.pause(db, OURS, by="bob")
            shutil.rmtree(folder)
            if is_made_anew:
                pauses.pause(folder, OURS, by="cid")

    with pytest.raises(StateUnwritable, match="was deleted or replaced while it was written"):
        write()
    assert ("by cid" in pauses.pause_note(folder, OURS)) == is_made_anew
    pauses.pause(folder, OURS, by="dan")
    assert "by dan" in pauses.pause_note(folder, OURS)


# Locked -----------------------------------------------------------------------------------------------


def test_a_lock_ends_with_the_process_that_held_it(tmp_path: Path) -> None:
    holds = tmp_path / "holds"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "state"), str(holds)])
    try:
        wait_until("the lock is held", holds.exists)
        assert pauses.pause_note(tmp_path / "state", OURS) == "", "readers do not wait"
        with pytest.raises(StateBusy, match="another process has been writing") as caught:
            pauses.pause(Store(tmp_path / "state", busy_s=0.2), OURS, by="ann")
        assert caught.value.retryable
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    pauses.pause(Store(tmp_path / "state", busy_s=0.2), OURS, by="ann")
    with Store(tmp_path / "state").read() as db:
        assert [row["by"] for row in db.rows("SELECT by FROM pauses")] == ["ann"], (
            "half a transaction is none"
        )


# Damaged ----------------------------------------------------------------------------------------------


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    damaged = {
        "overwritten": b"\xff" * len(content),
        "overwritten pages": content[:100] + b"\x5a" * (len(content) - 100),
        "text": b'{"paused": true}',
        "truncated": content[: len(content) // 2],
        "truncated in a page": content[:5000],
        "short": content[:50],
        "one byte": content[:1],
        "empty": b"",
    }[how]
    path.write_bytes(damaged)


@pytest.mark.parametrize(
    "how",
    [
        "overwritten",
        "overwritten pages",
        "text",
        "truncated",
        "truncated in a page",
        "short",
        "one byte",
        "empty",
    ],
)
def test_a_damaged_file_stops_everything_and_stays_as_it_is(tmp_path: Path, how: str) -> None:
    pauses.pause(tmp_path, OURS, by="ann")
    path = tmp_path / "state.sqlite3"
    damage(path, how)
    before = path.read_bytes()
    with pytest.raises(StateUnreadable, match="move it aside") as caught:
        HeldPlans(tmp_path, OURS, "report").waiting()
    assert str(path) in str(caught.value) and not caught.value.retryable
    with pytest.raises(StateError):
        pauses.resume(tmp_path, OURS)
    assert pauses.pause_note(tmp_path, OURS).startswith("perhaps: the state file")
    assert HeldPlans(tmp_path, OURS, "report").hold(PLAN) is HoldResult.UNWRITTEN
    assert path.read_bytes() == before


def test_what_stands_in_its_place_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite3"
    path.mkdir()
    with pytest.raises(StateUnreadable, match="not a plain file"):
        pauses.pause(tmp_path, OURS, by="ann")
    path.rmdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE cookies (name TEXT)")
    other.commit()
    other.close()
    with pytest.raises(StateUnreadable, match="database of another program"):
        pauses.pause(tmp_path, OURS, by="ann")
    (tmp_path / "file").touch()
    with pytest.raises(StateUnwritable, match=r"File exists|Not a directory"):
        pauses.pause(tmp_path / "file", OURS, by="ann")


# Newer, older ------------------------------------------------------------------------------------------------


def test_a_file_of_a_newer_agent_is_refused(tmp_path: Path) -> None:
    pauses.pause(tmp_path, OURS, by="ann")
    newer = sqlite3.connect(tmp_path / "state.sqlite3")
    newer.execute(f"PRAGMA user_version = {VERSION + 1}")
    newer.close()
    for attempt in (
        lambda: pauses.pause(tmp_path, OURS, by="bob"),
        lambda: HeldPlans(tmp_path, OURS, "report").approvals.open(),
    ):
        with pytest.raises(StateUnreadable, match=r"a newer agent has written it\. Install that one again"):
            attempt()


@pytest.mark.parametrize("version", [1, OLDEST - 1, -1])
def test_a_file_from_before_the_oldest_version_is_refused(tmp_path: Path, version: int) -> None:
    pauses.pause(tmp_path, OURS, by="ann")
    path = tmp_path / "state.sqlite3"
    older = sqlite3.connect(path)
    older.execute(f"PRAGMA user_version = {version}")
    older.close()
    before = path.read_bytes()
    for attempt in (
        lambda: pauses.pause(tmp_path, OURS, by="bob"),
        lambda: HeldPlans(tmp_path, OURS, "report").approvals.open(),
    ):
        with pytest.raises(StateUnreadable) as refused:
            attempt()
        assert f"is of version {version}, and this agent reads versions from {OLDEST}" in str(refused.value)
        assert "move it aside" in str(refused.value) and "(docs/state.md)" in str(refused.value)
    assert path.read_bytes() == before
    path.rename(tmp_path / "aside.sqlite3")
    pauses.pause(tmp_path, OURS, by="bob")
    assert "by bob" in pauses.pause_note(tmp_path, OURS)


# Read-only, full --------------------------------------------------------------------------------------


def test_what_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    done = in_private_mounts(READ_ONLY, tmp_path)
    assert done.stdout.splitlines() == ["by ann", "StateUnwritable", "by ann"], done.stderr


@needs_root
def test_a_folder_whose_owner_may_not_write_is_not_written_by_root(foreign_folder: Path) -> None:
    pauses.pause(foreign_folder, OURS, by="ann")
    foreign_folder.chmod(0o500)
    assert "by ann" in pauses.pause_note(foreign_folder, OURS)
    with pytest.raises(StateUnwritable):
        pauses.resume(foreign_folder, OURS)
    assert HeldPlans(foreign_folder, OURS, "report").hold(PLAN) is HoldResult.UNWRITTEN
    foreign_folder.chmod(0o700)
    pauses.resume(foreign_folder, OURS)


def test_on_a_full_disk_what_is_known_is_known(tmp_path: Path) -> None:
    done = in_private_mounts(FULL_DISK, tmp_path, "1m")
    assert done.stdout.splitlines() == [
        "True ['q'] []",
        "UNWRITTEN",
        "StateUnwritable True",
        "StateUnwritable True",
        "by ann",
        "''",
    ], done.stderr


@pytest.mark.parametrize("size", ["4k", "40k", "200k", "400k"])
def test_a_disk_that_is_too_small_gets_no_half_file(tmp_path: Path, size: str) -> None:
    done = in_private_mounts(SMALL_DISK, tmp_path, size)
    assert done.stdout.splitlines() in (["StateUnwritable", "[]"], ["written", "['state.sqlite3']"]), (
        done.stderr
    )
    assert size == "400k" or "StateUnwritable" in done.stdout
