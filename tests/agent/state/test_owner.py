# SPDX-License-Identifier: MIT
"""Root works in a folder of another user with that user's rights only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from agent.bridge.dead_letters import DeadLetters
from agent.bridge.instance import Instance
from agent.core.actions import CreateAccount
from agent.core.errors import StateError
from agent.host import files
from agent.host.files import Owner, acting_as_owner
from agent.run.results import PassReport, record
from agent.state import journal, passes, pauses, store
from agent.state.dead_letters import DeadLetter
from agent.state.store import Store
from backends.base import HintsOfThisProcess
from backends.lock import WriteLock
from backends.process import Runner
from backends.slurm.commands import CommandBuilder
from backends.slurm.costs import Costs
from backends.slurm.loader import Loader
from backends.slurm.programs import Programs
from tests.agent.state.conftest import OTHER_USER, needs_root, offering

OURS = offering()

pytestmark = needs_root


def rights() -> tuple[int, int, list[int], str]:
    """File system user and group of this thread, its other groups, and what it may do."""
    libc = ctypes.CDLL(None)
    status = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text()
    (effective,) = [line for line in status.splitlines() if line.startswith("CapEff")]
    return libc.setfsuid(-1), libc.setfsgid(-1), os.getgroups(), effective


def owners(folder: Path) -> set[tuple[int, int]]:
    found = [folder, *folder.rglob("*")]
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in found}


def test_all_that_root_makes_belongs_to_the_owner(foreign_folder: Path) -> None:
    before = rights()
    with Store(foreign_folder).write() as db:
        pauses.pause(db, OURS, by="ann")
        assert len(list(foreign_folder.iterdir())) == 3, "the log and its index as well"
        assert owners(foreign_folder) == {(OTHER_USER, OTHER_USER)}
    journal.note(foreign_folder, OURS, "paused", by="ann")
    with Store(foreign_folder / "bridge").write() as db:
        pauses.pause(db, OURS, by="ann")
    assert owners(foreign_folder) == {(OTHER_USER, OTHER_USER)}
    assert {path.name for path in foreign_folder.iterdir()} == {"state.sqlite3", "journal", "bridge"}
    assert rights() == before


def test_a_connection_that_is_kept_is_closed_with_the_rights_of_the_owner(
    foreign_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite writes the file as the last connection is closed. What closes it does so, and notes who it is."""
    before, seen, close = rights(), [], store._close

    def noted(connection: sqlite3.Connection) -> None:
        seen.append(rights()[0])
        close(connection)

    pauses.pause(foreign_folder, OURS, by="ann")
    monkeypatch.setattr(store, "_close", noted)
    with store.kept_open(foreign_folder):
        pauses.resume(foreign_folder, OURS)
        assert seen == []
    assert seen == [OTHER_USER]
    assert [path.name for path in foreign_folder.iterdir()] == ["state.sqlite3"]
    assert rights() == before


def test_a_connection_that_is_kept_is_closed_after_its_folder_has_gone(foreign_folder: Path) -> None:
    pauses.pause(foreign_folder, OURS, by="ann")
    path = os.path.realpath(foreign_folder / "state.sqlite3")
    with store.kept_open(foreign_folder):
        assert "by ann" in pauses.pause_note(foreign_folder, OURS)
        shutil.rmtree(foreign_folder)
    opened = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert not [each for each in opened if each.startswith(path)]


def test_the_bridge_of_another_user_has_its_number_and_letters_there(foreign_folder: Path) -> None:
    """Root looks at them, and even makes the folder."""
    numbers = [Instance(foreign_folder).name.rpartition("-")[2] for _ in range(2)]
    assert numbers == ["0", "1"]
    letters = DeadLetters(foreign_folder)
    assert letters.add(DeadLetter("1", "", "o", "queue", "order", "why", 1, "{"))
    assert [each.id for each in letters.all()] == ["1"]
    assert owners(foreign_folder) == {(OTHER_USER, OTHER_USER)}
    assert {path.name for path in (foreign_folder / "bridge").iterdir()} == {
        "state.sqlite3", "bridge-0.lock", "bridge-1.lock"
    }  # fmt: skip


def test_figures_of_passes_belong_to_the_owner(foreign_folder: Path) -> None:
    record(foreign_folder, PassReport("report", OURS.uuid, OURS.name))
    assert owners(foreign_folder) == {(OTHER_USER, OTHER_USER)}
    assert {count.figure for count in passes.counts(foreign_folder, OURS.uuid)} == {"passes", "seconds_up_to"}


def test_the_owner_reads_what_root_wrote(foreign_folder: Path) -> None:
    pauses.pause(foreign_folder, OURS, by="ann")
    script = (
        "import os, sys; from pathlib import Path; from agent.state import pauses; "
        "from tests.agent.state.conftest import offering; os.setgroups([]); os.setgid(12345); os.setuid(12345); "
        "print(pauses.pause_note(Path(sys.argv[1]), offering())); pauses.pause(Path(sys.argv[1]), offering(), by='me')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, foreign_folder], capture_output=True, text=True, check=False
    )
    assert "by ann" in done.stdout, done.stderr
    assert "by me" in pauses.pause_note(foreign_folder, OURS)


@pytest.mark.parametrize(
    "name", ["state.sqlite3", "state.sqlite3-wal", "state.sqlite3-shm", "journal", "journal.jsonl"]
)
def test_a_planted_link_leads_root_nowhere(foreign_folder: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "secret"
    target.mkdir() if name == "journal" else target.write_text("root's own")
    if name == "journal.jsonl":
        (foreign_folder / "journal").mkdir()
        os.chown(foreign_folder / "journal", OTHER_USER, OTHER_USER)
        name = "journal/journal.jsonl"
    elif name != "state.sqlite3":
        pauses.pause(foreign_folder, OURS, by="ann")
    (foreign_folder / name).symlink_to(target)
    os.lchown(foreign_folder / name, OTHER_USER, OTHER_USER)
    with contextlib.suppress(StateError):
        pauses.pause(foreign_folder, OURS, by="bob")
    journal.note(foreign_folder, OURS, "paused", by="bob")
    assert (target.stat().st_uid, target.stat().st_gid) == (0, 0)
    assert list(target.iterdir()) == [] if target.is_dir() else target.read_text() == "root's own"


def test_a_folder_that_is_a_link_belongs_to_whoever_could_plant_it(
    foreign_folder: Path, tmp_path: Path
) -> None:
    (foreign_folder / "bridge").symlink_to(tmp_path)
    assert files.owner_of(foreign_folder / "bridge") == Owner(OTHER_USER, OTHER_USER)
    with pytest.raises(StateError), Store(foreign_folder / "bridge").write():
        pass
    assert list(tmp_path.iterdir()) == []
    assert files.owner_of(tmp_path / "not" / "there") == Owner(0, 0)


def test_rights_are_those_of_the_owner_for_this_thread_alone(foreign_folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    seen = []
    before = rights()
    go = threading.Event()
    other = threading.Thread(target=lambda: (go.wait(600), seen.append(rights())))
    other.start()
    with acting_as_owner(foreign_folder):
        with acting_as_owner(foreign_folder):
            pass
        with pytest.raises(PermissionError):
            secret.read_text()
        assert not os.getgroups()
        go.set()
        other.join()
        (foreign_folder / "made").touch()
        child = subprocess.run(["cat", secret], capture_output=True, text=True, check=False)
    assert seen == [before] == [rights()]
    assert child.stdout == "x", "a child has root's rights again"
    assert owners(foreign_folder) == {(OTHER_USER, OTHER_USER)}
    with pytest.raises(ZeroDivisionError), acting_as_owner(foreign_folder):
        raise ZeroDivisionError
    assert rights() == before


def test_groups_of_root_open_nothing(foreign_folder: Path, tmp_path: Path) -> None:
    shared = foreign_folder.parent / "shared"
    shared.write_text("x")
    shared.chmod(0o660)
    script = """
import os, sys
from pathlib import Path
from agent.host.files import acting_as_owner
os.setgroups([0, 4])
with acting_as_owner(Path(sys.argv[1])):
    try:
        print(Path(sys.argv[2]).read_text())
    except PermissionError:
        print(os.getgroups())
print(os.getgroups())
"""
    command = [sys.executable, "-c", script, foreign_folder, shared]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[]", "[0, 4]"], done.stderr


def test_a_folder_of_a_dynamic_user_below_one_of_root_alone_is_reached(tmp_path: Path) -> None:
    """As /var/lib/private is, where systemd keeps the folder of the bridge."""
    private, real = tmp_path / "private", tmp_path / "private" / "bridge"
    real.mkdir(parents=True)
    os.chown(real, OTHER_USER, OTHER_USER)
    private.chmod(0o700)
    (tmp_path / "bridge").symlink_to(real)
    pauses.pause(tmp_path / "bridge", OURS, by="ann")
    assert "by ann" in pauses.pause_note(tmp_path / "bridge", OURS)
    assert owners(real) == {(OTHER_USER, OTHER_USER)}


def test_where_root_may_not_become_another_nothing_is_written(foreign_folder: Path) -> None:
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is missing")
    script = (
        "import sys; from pathlib import Path; from agent.state import pauses; "
        "from tests.agent.state.conftest import offering; pauses.pause(Path(sys.argv[1]), offering(), by='ann')"
    )
    words = [
        "setpriv",
        "--bounding-set=-setuid,-setgid",
        "--inh-caps=-setuid,-setgid",
        sys.executable,
        "-c",
        script,
    ]
    done = subprocess.run([*words, foreign_folder], capture_output=True, text=True, check=False)
    assert "run the command as user 12345" in done.stderr
    assert list(foreign_folder.iterdir()) == []


def test_the_write_lock_can_be_taken_by_the_owner_after_root(foreign_folder: Path) -> None:
    with WriteLock(foreign_folder, "slurmdbd"):
        pass
    assert {path.name for path in foreign_folder.rglob("*")} == {
        "locks",
        "writes-slurmdbd.lock",
        ".writes-slurmdbd.lock",
    }
    assert owners(foreign_folder) == {(OTHER_USER, OTHER_USER)}


def test_root_loads_no_file_that_another_user_could_swap(
    foreign_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file lies next to the lock between two calls of sacctmgr, else among temporary files."""
    lock = WriteLock(foreign_folder, "slurmdbd")
    with lock:
        pass
    builder = CommandBuilder(Programs(""))
    actions = [CreateAccount(account=f"a{n}", parent="root") for n in range(50)]
    own = WriteLock(foreign_folder.parent / "own", "slurmdbd")
    with own:
        pass
    costs = Costs(lambda: 0, HintsOfThisProcess[float]())
    assert Loader(Runner(), builder, own, Programs(""), costs)._worthwhile(actions, "c1")
    monkeypatch.setattr(tempfile, "tempdir", str(foreign_folder))
    assert not Loader(Runner(), builder, lock, Programs(""), costs)._worthwhile(actions, "c1")
