# SPDX-License-Identifier: MIT
"""Bytes of a real state file that a disk or a person has changed: whoever reads it says that the file is damaged and
what to do, or reads what still has a meaning; never a traceback.
"""

from __future__ import annotations

import logging
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.core.errors import StateUnreadable
from agent.state import pauses
from agent.state.periodic_policies import PolicyStateLost
from agent.state.store import Store
from tests.agent.state.filled import OURS, READERS, fill, filled
from tests.scale import FULL

SEED = 20_260
CASES = 300 if FULL else 20
WRITERS: dict[str, Callable[[Path], object]] = {"resume": lambda folder: pauses.resume(folder, OURS)}


def test_every_table_is_read(tmp_path: Path) -> None:
    fill(tmp_path)
    with sqlite3.connect(Store(tmp_path).path) as db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        empty = [name for name in tables if not db.execute(f"SELECT 1 FROM {name}").fetchone()]
    # One is read with every write.
    assert {name for name in tables if not name.startswith("sqlite_")} == {*READERS, "store"}
    assert not empty


def said_by_all(folder: Path, content: bytes) -> list[str]:
    """Let everybody read the file; return what they raise. Each has the damaged bytes before it."""
    said = []
    for name, reader in {**READERS, **WRITERS}.items():
        for suffix in ("", "-wal", "-shm"):
            Store(folder).path.with_name(f"state.sqlite3{suffix}").unlink(missing_ok=True)
        Store(folder).path.write_bytes(content)
        try:
            reader(folder)
        except (StateUnreadable, PolicyStateLost) as error:
            said.append(f"{name}: {error}")
    return said


def text_offsets(content: bytes) -> list[int]:
    """Return where letters, digits and brackets are: the damage that SQLite itself never sees."""
    return [at for at, byte in enumerate(content) if 32 <= byte < 127]


@pytest.mark.parametrize("value", [0xFF, None], ids=["no-utf8", "any"])
def test_only_our_own_error_comes(
    tmp_path: Path, value: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    whole = filled()
    caplog.set_level(logging.CRITICAL)
    chance = random.Random(SEED)
    offsets = text_offsets(whole)
    said: list[str] = []
    for _ in range(CASES):
        damaged = bytearray(whole)
        places = chance.sample(offsets, 20) if value else [chance.randrange(len(whole)) for _ in range(20)]
        for at in places:
            damaged[at] = value if value else chance.randrange(256)
        said += said_by_all(tmp_path, bytes(damaged))
    assert said
    assert not [text for text in said if "move it aside" not in text]


def test_text_that_is_not_utf_8_is_damage(tmp_path: Path) -> None:
    whole = filled()
    said = said_by_all(tmp_path, whole.replace(b"ann", b"a\xffn"))
    assert [
        text for text in said if text.startswith(("held_plans", "approvals", "joined", "charges", "resume"))
    ]
    assert not [text for text in said if "is damaged" not in text], said
    Store(tmp_path).path.write_bytes(whole.replace(b"ann", b"a\xffn"))
    assert "is damaged" in pauses.pause_note(tmp_path, OURS)
