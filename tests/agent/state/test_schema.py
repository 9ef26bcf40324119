# SPDX-License-Identifier: MIT
"""The page about the state file lists every table and column that there is, and of no other."""

from __future__ import annotations

import re
from pathlib import Path

from agent.state import forget
from agent.state.hints import HINTS
from agent.state.schema import MIGRATIONS, statements
from agent.state.store import Store
from tests import REPOSITORY

PAGE = REPOSITORY / "docs" / "state.md"
ROW = re.compile(r"^\| `(\w+)` \| (`\w+`(?:, `\w+`)*) \| ", re.MULTILINE)


def real_tables(folder: Path) -> dict[str, list[str]]:
    with Store(folder).read() as db:
        names = [row["name"] for row in db.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: [row["name"] for row in db.rows(f"PRAGMA table_info({name})")]
            for name in names
            if not name.startswith("sqlite_")
        }


def test_the_page_has_the_tables_and_columns_that_there_are(tmp_path: Path) -> None:
    listed = {name: re.findall(r"\w+", columns) for name, columns in ROW.findall(PAGE.read_text())}
    assert listed == real_tables(tmp_path)


def test_what_can_be_forgotten_is_there(tmp_path: Path) -> None:
    real = real_tables(tmp_path)
    for what, places in forget.FORGETTABLE.items():
        assert all(place in HINTS or "offering" in real[str(place)] for place in places), what
        assert forget.forget(tmp_path, what, "o") == 0


def test_a_script_is_made_of_whole_statements() -> None:
    for script in MIGRATIONS:
        assert all(
            statement.upper().startswith(("CREATE", "INSERT", "ALTER", "DROP"))
            for statement in statements(script)
        )
