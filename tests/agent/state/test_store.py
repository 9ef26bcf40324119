# SPDX-License-Identifier: MIT
"""The store: one transaction for several memories, several processes at once, versions, and text of any kind."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agent.core.errors import StateError, StateUnwritable
from agent.state import pauses, schema, store
from agent.state.held_plans import HeldPlans, HeldRow
from agent.state.store import Store
from tests.agent.state.conftest import offering

OURS = offering()

WRITER = """
import sys
from pathlib import Path
from agent.state.store import Store
store = Store(Path(sys.argv[1]), busy_s=600.0)
for n in range(25):
    with store.write() as db:
        count = db.row("SELECT count(*) FROM charges")[0]
        db.run("INSERT INTO charges VALUES (?, 'c', 'o', 'm', ?, 'x', ?, '', '')", str(count), sys.argv[2], str(n))
"""

MAKER = """
import sys
from pathlib import Path
from agent.state.store import Store
with Store(Path(sys.argv[1]), busy_s=600.0).write() as db:
    db.run("INSERT INTO pauses VALUES (?, '', '', '', '')", sys.argv[2])
"""


def test_all_of_a_transaction_is_written_or_nothing(tmp_path: Path) -> None:
    with Store(tmp_path).write() as db:
        pauses.pause(db, OURS, by="ann")
        HeldPlans(db, OURS, "report").hold(HeldRow("p1", "s", "r", "c", {"k": "line"}))
        HeldPlans(db, OURS, "report").approvals.approve(
            "p1", expires=store.moment_from("2099-01-01T00:00:00Z"), by="ann"
        )
        assert "by ann" in pauses.pause_note(db, OURS), "it is seen in the transaction itself"
        assert pauses.pause_note(tmp_path, OURS) == "", "and nowhere else before its end"
    with contextlib.suppress(ZeroDivisionError), Store(tmp_path).write() as db:
        pauses.resume(db, OURS)
        raise ZeroDivisionError
    assert "by ann" in pauses.pause_note(tmp_path, OURS)
    assert HeldPlans(tmp_path, OURS, "report").approvals.open()


def test_a_look_writes_nothing_and_errors_are_ours(tmp_path: Path) -> None:
    pauses.pause(tmp_path, OURS, by="ann")
    with pytest.raises(StateError), Store(tmp_path).read() as db:
        pauses.resume(db, OURS)
    with pytest.raises(StateError), Store(tmp_path).write() as db:
        db.run("INSERT INTO no_such_table VALUES (1)")


def test_it_is_for_no_other_user(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "state"
    with Store(folder).write() as db:
        pauses.pause(db, OURS, by="ann")
        modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert modes == {0o600} and len(list(folder.iterdir())) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)} == {0o700}


def test_several_processes_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, str(n)]) for n in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    with Store(tmp_path).read() as db:
        counted = sorted(int(row["at"]) for row in db.rows("SELECT at FROM charges"))
    assert counted == list(range(100)), "each saw all that were before"


def test_several_processes_make_it_at_once(tmp_path: Path) -> None:
    makers = [subprocess.Popen([sys.executable, "-c", MAKER, tmp_path / "state", str(n)]) for n in range(6)]
    assert [maker.wait() for maker in makers] == [0] * 6
    with Store(tmp_path / "state").read() as db:
        assert len(db.rows("SELECT * FROM pauses")) == 6
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["state.sqlite3"]


def test_a_child_of_an_open_store_uses_its_own(tmp_path: Path) -> None:
    kept = Store(tmp_path)
    pauses.pause(kept, OURS, by="ann")
    child = os.fork()
    if child == 0:
        pauses.pause(kept, OURS, by="the child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert "by the child" in pauses.pause_note(kept, OURS)


def opened(folder: Path) -> int:
    """How often this process has the file open."""
    return [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()].count(
        str(folder / "state.sqlite3")
    )


def test_a_thread_keeps_one_connection_open_and_gives_it_back(tmp_path: Path) -> None:
    pauses.pause(tmp_path, OURS, by="ann")
    with store.kept_open(tmp_path):
        assert opened(tmp_path) == 0, "not before it is needed"
        assert "by ann" in pauses.pause_note(tmp_path, OURS)
        pauses.resume(tmp_path, OURS)
        assert opened(tmp_path) == 1
        with Store(tmp_path).write() as db:
            pauses.pause(db, OURS, by="bob")
            assert pauses.pause_note(tmp_path, OURS) == "", "a transaction of its own: this one has not ended"
        with store.kept_open(tmp_path):
            assert "by bob" in pauses.pause_note(tmp_path, OURS)
        with contextlib.suppress(ZeroDivisionError), Store(tmp_path).write() as db:
            pauses.resume(db, OURS)
            raise ZeroDivisionError
        assert opened(tmp_path) == 0, "an error is the end of a connection"
        assert "by bob" in pauses.pause_note(tmp_path, OURS), "and of all that was written before it"
        with Store(tmp_path).read() as db, pytest.raises(StateError):
            db.run("DELETE FROM pauses")
    assert opened(tmp_path) == 0


def test_a_child_that_is_forked_within_a_pass_inherits_no_connection(tmp_path: Path) -> None:
    """SQLite knows its locks by file: neither side of a fork may use or close what the other has open."""
    with store.kept_open(tmp_path):
        pauses.pause(tmp_path, OURS, by="ann")
        assert opened(tmp_path) == 1
        child = os.fork()
        if child == 0:
            inherited = opened(tmp_path)
            pauses.pause(tmp_path, OURS, by="the child")
            os._exit(inherited)
        assert os.waitpid(child, 0)[1] == 0
        assert "by the child" in pauses.pause_note(tmp_path, OURS)
        assert opened(tmp_path) == 1
    assert opened(tmp_path) == 0


def test_a_file_that_was_replaced_is_seen_where_a_connection_is_kept(tmp_path: Path) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    pauses.pause(folder, OURS, by="ann")
    pauses.pause(other, OURS, by="bob")
    with store.kept_open(folder):
        assert "by ann" in pauses.pause_note(folder, OURS)
        shutil.rmtree(folder)
        assert pauses.pause_note(folder, OURS) == ""
        shutil.copytree(other, folder)
        assert "by bob" in pauses.pause_note(folder, OURS)
        writing = Store(folder).write()
        pauses.resume(writing.__enter__(), OURS)
        shutil.rmtree(folder)
        with pytest.raises(StateUnwritable):
            writing.__exit__(None, None, None)
        assert not folder.exists()


def test_a_newer_agent_is_noticed_where_a_connection_is_kept(tmp_path: Path) -> None:
    pauses.pause(tmp_path, OURS, by="ann")
    with store.kept_open(tmp_path):
        assert "by ann" in pauses.pause_note(tmp_path, OURS)
        with contextlib.closing(sqlite3.connect(tmp_path / "state.sqlite3")) as newer:
            newer.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
        assert "a newer agent has written it" in pauses.pause_note(tmp_path, OURS)


# Versions ---------------------------------------------------------------------------------------------


def empty_file(folder: Path) -> Path:
    """A database of version 0, as an agent before the first version would have it."""
    path = folder / "state.sqlite3"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 0")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    return path


def tables(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(path)
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"))
    connection.close()
    return found


def test_an_older_file_gets_our_tables_once(tmp_path: Path) -> None:
    path = empty_file(tmp_path)
    assert path.stat().st_size and not tables(path)
    assert pauses.pause_note(tmp_path, OURS) == "", "a look is enough"
    assert set(tables(path)) >= {"held_plans", "approvals", "charges"}
    makers = [subprocess.Popen([sys.executable, "-c", MAKER, tmp_path, str(n)]) for n in range(3)]
    assert [maker.wait() for maker in makers] == [0] * 3


def test_a_migration_adds_to_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses.pause(tmp_path, OURS, by="ann")
    second = "CREATE TABLE more (x TEXT);\nALTER TABLE pauses ADD COLUMN further TEXT NOT NULL DEFAULT ''"
    monkeypatch.setattr(store, "MIGRATIONS", (*schema.MIGRATIONS, second))
    monkeypatch.setattr(store, "VERSION", schema.VERSION + 1)
    assert "by ann" in pauses.pause_note(tmp_path, OURS)
    assert "more" in tables(tmp_path / "state.sqlite3")


def test_a_migration_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses.pause(tmp_path, OURS, by="ann")
    before = tables(tmp_path / "state.sqlite3")
    with monkeypatch.context() as patch:
        patch.setattr(
            store, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE more (x TEXT); CREATE TABLE more (x)")
        )
        patch.setattr(store, "VERSION", schema.VERSION + 1)
        with pytest.raises(StateError):
            pauses.resume(tmp_path, OURS)
    assert tables(tmp_path / "state.sqlite3") == before
    assert "by ann" in pauses.pause_note(tmp_path, OURS)


# Texts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["ä", "\udce4", "a\x00b", "\u2028\u0085", "\U0001f9ea", "'; DROP TABLE pauses"]
)
def test_text_of_any_kind_is_stored(tmp_path: Path, text: str) -> None:
    pauses.pause(tmp_path, OURS, by="ann", reason=text)
    note = pauses.pause_note(tmp_path, OURS)
    assert text.encode("utf-8", "backslashreplace").decode() in note
    held = HeldPlans(tmp_path, OURS, "report")
    held.hold(HeldRow("p", text, text, text, {text: text}, {text: text}))
    (plan,) = held.waiting()
    assert (plan.lines, plan.keys, plan.figures) == ({text: text}, {text}, {text: text})


def test_what_is_no_folder_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateUnwritable, match="cannot be used"):
        pauses.pause(tmp_path / "file" / "state", OURS, by="ann")
    assert pauses.pause_note(tmp_path / "file" / "state", OURS) == ""
