# SPDX-License-Identifier: MIT
"""Hints: they come back as they were written, one that is damaged costs itself only, an older file keeps them."""

from __future__ import annotations

import logging
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.core.homes import HomeRecord
from agent.core.project_directories import DirectoryRecord
from agent.state.hints import (
    COMMAND_COSTS,
    DRIFTS,
    FAILED_RESOURCES,
    HINTS,
    HISTORY_MONTHS,
    HOMES,
    LIVE_JOBS,
    LOOKS,
    PASS_COUNTS,
    PASSES,
    PROJECT_DIRECTORIES,
    REFUSED_MONTHS,
    REPORTED_MEMBERS,
    REPORTED_SERVICES,
    SEEN_ALLOCATIONS,
    SEEN_OFFERINGS,
    SEEN_PEOPLE,
    SKIPPED,
    TREE_COLUMNS,
    USAGES,
    Drift,
    Hints,
    ReportedService,
    Skipped,
)
from agent.state.schema import BASE, statements
from agent.state.store import Store, moment_text
from tests import REPOSITORY
from tests.agent.state.obstacles import block

NOW = datetime.now(UTC).replace(microsecond=0)
MODE, URL = "order_process", "https://waldur.example"
# What version 10 wrote, and as which hints it is found.
ROWS = f"""
INSERT INTO passes VALUES (1, 'o', '{MODE}', 'x', 1, '{{"ended": "first", "result": "ok"}}');
INSERT INTO passes VALUES (2, 'o', '{MODE}', 'x', 0, '{{"ended": "last", "orders": [{{"order": "ä"}}]}}');
INSERT INTO passes VALUES (3, 'o', 'report', 'x', 0, '{{"ended": "other"}}');
INSERT INTO pass_counts VALUES ('o', '{MODE}', 'passes', 'all', 'ok', 3.0);
INSERT INTO pass_counts VALUES ('o', '{MODE}', 'seconds', '', '', 1.25);
INSERT INTO left_out VALUES ('o', '{MODE}', '2026-05-01T00:00:00Z', 1, 'x', '["remove ann"]');
INSERT INTO left_out VALUES ('o', 'report', '2026-05-01T00:00:00Z', 0, 'x', '[]');
INSERT INTO drifts VALUES ('o', '{MODE}', '2026-05-01T00:00:00Z', '', '{{"remove member": 1}}');
INSERT INTO shown_services VALUES
  ('o', '{MODE}', '{URL}', '33', '44', '["v1"]', '{moment_text(NOW)}', '');
INSERT INTO seen_offerings VALUES ('o', '{URL}', '{moment_text(NOW)}');
INSERT INTO told_members VALUES ('o', 'r', '1', 'ann OK');
INSERT INTO told_members VALUES ('o', 'r', '2', 'bob "?"');
INSERT INTO homes VALUES ('o', 'ann', 'h', '["xfs"]', 2, '');
INSERT INTO project_directories VALUES ('o', 'a', '1 TB', 'said');
INSERT INTO refused_months VALUES ('o', '2026-05 with limits', '{NOW.isoformat()}');
INSERT INTO live_jobs VALUES ('o', '2026-05', 'a', '1', 5);
INSERT INTO live_jobs VALUES ('o', '2026-05', 'a', '2', 6);
INSERT INTO live_jobs VALUES ('o', '2026-05', 'b', '3', 7);
INSERT INTO live_jobs VALUES ('o', '2026-06', 'b', '3', 8);
INSERT INTO failed_resources VALUES ('o', 'r');
INSERT INTO history_runs VALUES ('run', 'o', '{{}}', '{moment_text(NOW)}');
INSERT INTO history_months VALUES ('run', '2026-05', '{{"month": "2026-05"}}');
INSERT INTO command_costs VALUES ('demo', 'accounts', 2.5, '{moment_text(NOW)}');
INSERT INTO pauses VALUES ('o', 'ann', '', '')
"""
FOUND: dict[Hints[Any], tuple[str, dict[str, Any]]] = {
    PASSES: (
        "o",
        {
            MODE: [{"ended": "last", "orders": [{"order": "ä"}]}, {"ended": "first", "result": "ok"}],
            "report": [{"ended": "other"}],
        },
    ),
    PASS_COUNTS: ("o", {MODE: [("passes", "all", "ok", 3.0), ("seconds", "", "", 1.25)]}),
    SKIPPED: ("o", {MODE: Skipped("2026-05-01T00:00:00Z", 1, ("remove ann",), "x")}),
    DRIFTS: ("o", {MODE: Drift("2026-05-01T00:00:00Z", "", {"remove member": 1})}),
    REPORTED_SERVICES: ("o", {f"{MODE} {URL}": ReportedService("33", "44", '["v1"]', NOW)}),
    SEEN_OFFERINGS: ("o", {URL: True}),
    REPORTED_MEMBERS: ("o", {"r": {"1": "ann OK", "2": 'bob "?"'}}),
    HOMES: ("o", {"ann": HomeRecord("h", '["xfs"]', 2)}),
    PROJECT_DIRECTORIES: ("o", {"a": DirectoryRecord("1 TB", "said")}),
    REFUSED_MONTHS: ("o", {"2026-05 with limits": NOW}),
    LIVE_JOBS: ("o", {"2026-05": {"a": {"1": 5, "2": 6}, "b": {"3": 7}}, "2026-06": {"b": {"3": 8}}}),
    FAILED_RESOURCES: ("o", {"r": True}),
    HISTORY_MONTHS: ("run", {"2026-05": {"month": "2026-05"}}),
    COMMAND_COSTS: ("demo", {"accounts": 2.5}),
}
# Tables whose hints have another name.
RENAMED = {
    "history_runs": "history_months",
    "left_out": "skipped",
    "shown_services": "reported_services",
    "told_members": "reported_members",
}
GONE = {re.split(r"\W+", statement)[2] for statement in statements(ROWS)} - {"pauses"}


def write_old(folder: Path) -> Path:
    """Make a file of version 10, with the rows of its tables; return its path."""
    path = folder / "state.sqlite3"
    with closing(sqlite3.connect(path)) as old:
        for script in (BASE, ROWS):
            for statement in statements(script):
                old.execute(statement)
        old.execute("PRAGMA user_version = 10")
        old.commit()
    return path


def test_all_rows_of_an_older_file_are_found_as_hints(tmp_path: Path) -> None:
    write_old(tmp_path)
    assert {kind: kind.all(tmp_path, scope) for kind, (scope, _) in FOUND.items()} == {
        kind: values for kind, (_, values) in FOUND.items()
    }
    assert set(FOUND) == set(HINTS) - {TREE_COLUMNS, SEEN_ALLOCATIONS, SEEN_PEOPLE, LOOKS, USAGES}, (
        "of those that version 10 had"
    )
    with Store(tmp_path).read() as db:
        tables = {row["name"] for row in db.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert len(db.rows("SELECT * FROM hints")) == sum(len(values) for _, values in FOUND.values())
        assert len(db.rows("SELECT * FROM pauses")) == 1
    assert GONE and not tables & GONE


@pytest.mark.parametrize("value", ["X'00ff'", "'{'", "'['", "CAST(X'61ff' AS TEXT)", "9e999", "''"])
def test_damaged_rows_of_an_older_file_cost_nothing_else(tmp_path: Path, value: str) -> None:
    """Every column of each of its tables, one after the other: the file is brought up to date, and read."""
    path = write_old(tmp_path)
    whole = path.read_bytes()
    with closing(sqlite3.connect(path)) as old:
        columns = {(table, row[1]) for table in GONE for row in old.execute(f"PRAGMA table_info({table})")}
    for table, column in sorted(columns - {("passes", "number")}):
        for suffix in ("-wal", "-shm"):
            path.with_name(f"state.sqlite3{suffix}").unlink(missing_ok=True)
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as old:
            old.execute(f"UPDATE OR IGNORE {table} SET {column} = {value}")
            old.commit()
        with Store(tmp_path).read() as db:
            found = {kind: kind.all(db, scope) for kind, (scope, _) in FOUND.items()}
        concerned = RENAMED.get(table, table)
        others = {kind: values for kind, (_, values) in FOUND.items() if kind.kind != concerned}
        assert {kind: found[kind] for kind in others} == others, (table, column)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("value", b'{"looked": "a\xff"}'),
        ("value", b'{"looked": "a"'),
        ("value", b'{"looked": "a", "since": "", "kinds": {"x": "1"}}'),
        ("value", b'{"looked": "a", "since": ""}'),
        ("value", b"[1]"),
        ("value", b"[" * 100_000),
        ("key", b"\xff"),
        ("written_at", b"yesterday"),
        ("written_at", b"\xff"),
    ],
)
def test_a_damaged_hint_costs_itself_only(
    tmp_path: Path, column: str, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    drifts = {"one": Drift("a"), "two": Drift("b")}
    DRIFTS.put(tmp_path, "o", drifts)
    with closing(sqlite3.connect(Store(tmp_path).path)) as db:
        db.execute(f"UPDATE hints SET {column} = CAST(? AS TEXT) WHERE key = 'one'", (value,))
        db.commit()
    assert DRIFTS.all(tmp_path, "o") == {"two": Drift("b")}
    assert DRIFTS.all(tmp_path, "o") == {"two": Drift("b")}
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "the last drift report: 1 hints are damaged, and forgotten"
    ]
    assert DRIFTS.put(tmp_path, "o", {"one": Drift("a")})
    assert DRIFTS.all(tmp_path, "o") == drifts


@pytest.mark.parametrize("value", ["NaN", "Infinity", "true", '"1"', "null", "[]", "9" * 400])
def test_a_factor_is_a_number(tmp_path: Path, value: str) -> None:
    COMMAND_COSTS.put(tmp_path, "demo", {"accounts": 1.0})
    with Store(tmp_path).write() as db:
        db.run("UPDATE hints SET value = ?", value)
    assert COMMAND_COSTS.get(tmp_path, "demo", "accounts") is None


def test_hints_are_kept_apart_changed_and_dropped(tmp_path: Path) -> None:
    ann, bob = HomeRecord("/home/ann"), HomeRecord("/home/bob", logged="\udcff")
    assert HOMES.all(tmp_path, "o") == {}
    assert HOMES.put(tmp_path, "o", {"ann": ann}) and HOMES.put(tmp_path, "p", {"ann": bob})
    assert HOMES.change(tmp_path, "o", {"ann": ann}, {"bob": bob})
    assert HOMES.all(tmp_path, "o") == {"bob": bob}
    assert HOMES.get(tmp_path, "p", "ann") == bob and HOMES.get(tmp_path, "p", "bob") is None
    assert PROJECT_DIRECTORIES.all(tmp_path, "o") == {}
    assert (HOMES.drop(tmp_path, "o"), HOMES.drop(tmp_path, "o")) == (1, 0)
    assert HOMES.all(tmp_path, "p") == {"ann": bob}


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    assert HOMES.put(tmp_path, "o", {}) and HOMES.change(
        tmp_path, "o", {"a": HomeRecord()}, {"a": HomeRecord()}
    )
    assert not Store(tmp_path).path.exists()


@pytest.mark.parametrize("ago", [timedelta(days=1), timedelta(days=-1)])
def test_an_old_hint_and_one_that_is_to_come_are_ignored(tmp_path: Path, ago: timedelta) -> None:
    assert COMMAND_COSTS.put(tmp_path, "demo", {"accounts": 2.0})
    assert COMMAND_COSTS.get(tmp_path, "demo", "accounts") == 2.0
    with Store(tmp_path).write() as db:
        db.run("UPDATE hints SET written_at = ?", moment_text(datetime.now(UTC) - ago))
    assert COMMAND_COSTS.get(tmp_path, "demo", "accounts") is None


def test_old_hints_go_with_the_next_that_is_written(tmp_path: Path) -> None:
    COMMAND_COSTS.put(tmp_path, "demo", {"accounts": 2.0})
    HOMES.put(tmp_path, "o", {"ann": HomeRecord("/home/ann")})
    with Store(tmp_path).write() as db:
        db.run("UPDATE hints SET written_at = ?", moment_text(datetime.now(UTC) - timedelta(days=9)))
    COMMAND_COSTS.put(tmp_path, "other", {"users": 1.0})
    with Store(tmp_path).read() as db:
        assert {row["key"] for row in db.rows("SELECT key FROM hints")} == {"users", "ann"}


def test_what_cannot_be_read_or_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    block(tmp_path)
    assert not HOMES.put(tmp_path, "o", {"ann": HomeRecord()})
    assert "what was done about homes cannot be written down" in caplog.text
    Store(tmp_path / "other").path.parent.mkdir()
    Store(tmp_path / "other").path.write_bytes(b"damaged" * 999)
    assert HOMES.all(tmp_path / "other", "o") is None
    assert "what was done about homes cannot be read" in caplog.text


def test_the_page_lists_each_kind() -> None:
    page = (REPOSITORY / "docs" / "state.md").read_text()
    part = page[page.index("## Hints") : page.index("## Tables")]
    listed = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|([^|]*)\| [^|]+ \|$", part, re.MULTILINE)
    assert [(kind, age.strip()) for kind, age in listed] == [
        (each.kind, in_words(each.age)) for each in HINTS
    ]


def in_words(age: timedelta | None) -> str:
    if age is None:
        return ""
    hours = age // timedelta(hours=1)
    number, unit = (hours // 24, "day") if hours % 24 == 0 else (hours, "hour")
    return f"{number} {unit}{'s' if number > 1 else ''}"
