# SPDX-License-Identifier: MIT
"""The latest lines of the journal: those that `read` has, from the other end, a page at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.state import journal
from agent.state.journal import Query

COUNT = 60


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Three files, the oldest with a cut line, and one that is no JSON."""
    folder = tmp_path / "journal"
    folder.mkdir()
    for file in range(3):
        lines = [
            json.dumps(
                {
                    "time": f"2026-11-{20 - file:02}T00:{number:02}:00Z",
                    "offering": f"o{number % 2}",
                    "ids": {"account": f"a_{number % 5}", "user": f"user{number % 7}"},
                    "action": {"text": f"Add Müller {number % 3}"},
                },
                ensure_ascii=False,
            )
            for number in range(COUNT)
        ]
        name = f"journal.{file}.jsonl" if file else "journal.jsonl"
        (folder / name).write_text("\n".join([*lines, "no json"]) + ("\n" if file else '\n{"time": "cut'))
    return tmp_path


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (Query(), ()),
        (Query(account="a_1"), ()),
        (Query(user="user6", offerings=frozenset({"o1"})), ()),
        (Query(), ("ADD", "müller")),
        (Query(), ("müller 2", "user3")),
        (Query(account="a_9"), ()),
        (Query(), ("nothing of it",)),
    ],
)
def test_they_are_those_of_read_from_the_other_end(state: Path, query: Query, words: tuple[str, ...]) -> None:
    def has_all(line: object) -> bool:
        text = json.dumps(line, ensure_ascii=False).lower()
        return all(word.lower() in text for word in words)

    expected = [line for line in journal.read(state, query) if has_all(line)][::-1]
    found, has_more = journal.latest(state, query, words, skipped=0, count=1000)
    assert (found, has_more) == (expected, False)
    pages, first = [], 0
    while True:
        page, has_more = journal.latest(state, query, words, skipped=first, count=7)
        pages += page
        first += 7
        if not has_more:
            break
    assert pages == expected


def test_a_search_ends_after_so_many_bytes(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LOOKED_AT_MOST", 100)
    found, has_more = journal.latest(state, Query(), (), skipped=0, count=1000)
    assert (len(found), has_more) == (COUNT, True)


def test_there_is_no_journal(tmp_path: Path) -> None:
    assert journal.latest(tmp_path, Query(), (), skipped=0, count=5) == ([], False)
