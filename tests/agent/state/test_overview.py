# SPDX-License-Identifier: MIT
"""Allocations and people that passes saw: found by their names only, sorted, paged, and a damaged row costs itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.overview import SeenAllocation, SeenPerson, search_text
from agent.state import overview
from agent.state.hints import LOOKS, SEEN_ALLOCATIONS, SEEN_PEOPLE
from agent.state.store import Store, writing

OFFERINGS = ("o", "p")


def allocation(name: str, *members: str, state: str = "OK", missing: tuple[str, ...] = ()) -> SeenAllocation:
    search = search_text(name, *members, *missing)
    return SeenAllocation(search, name, f"a_{name}", state=state, members=members, missing=missing)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    SEEN_ALLOCATIONS.put(
        tmp_path,
        "o",
        {
            "1": allocation("Élan Vital", "ann", "bob"),
            "2": allocation('a "quoted", "name"', "members", missing=("ann",)),
            "3": allocation("a\\b", "annabel", state="Updating"),
        },
    )
    SEEN_ALLOCATIONS.put(tmp_path, "p", {"4": allocation("Other", "ann")})
    return tmp_path


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", "1234"),
        ("ÉLAN", "1"),
        ("bob vital", "1"),
        ("ann", "1234"),
        ('"quoted",', "2"),
        ("a\\b", "3"),
        ("members", "2"),
        ("updating", ""),
        ("a_other", ""),
        ("' OR 1", ""),
        ("%", ""),
        ("sea", ""),
        ("search", ""),
        ("{", ""),
    ],
)
def test_found_by_all_words_in_names_and_nowhere_else(state: Path, text: str, keys: str) -> None:
    found = overview.find(state, SEEN_ALLOCATIONS, OFFERINGS, text)
    assert "".join(each.key for each in found.rows) == keys
    assert found.total == len(keys)


def test_pages_and_those_not_in_step(state: Path) -> None:
    pages = [overview.find(state, SEEN_ALLOCATIONS, OFFERINGS, first=n, count=1) for n in range(5)]
    assert ["".join(each.key for each in page.rows) for page in pages] == ["1", "2", "3", "4", ""]
    assert {page.total for page in pages} == {4}
    assert overview.find(state, SEEN_ALLOCATIONS, ("p",)).total == 1
    found = overview.find(state, SEEN_ALLOCATIONS, OFFERINGS, are_only_troubled=True)
    assert [each.key for each in found.rows] == ["2"]


def test_of_one_member_and_by_name(state: Path) -> None:
    assert [each.key for each in overview.of_member(state, "o", "ann", 10)] == ["1", "2"]
    assert overview.of_member(state, "o", 'ann"', 10) == []
    SEEN_PEOPLE.put(state, "o", {"ann": SeenPerson(" ann ", "u1", "ann"), "u2": SeenPerson(" ", "u2", "")})
    assert overview.people(state, "o", ["ann", "bob"])["ann"].value.uuid == "u1"


def test_a_damaged_row_and_an_old_one_are_nothing(state: Path) -> None:
    with writing(state) as db:
        db.run("UPDATE hints SET value = '{' WHERE key = '1'")
        db.run("INSERT INTO hints VALUES ('looks', 'o', 'plan:x', '{}', '2026-01-01T00:00:00.000Z')")
    assert [each.key for each in overview.find(state, SEEN_ALLOCATIONS, OFFERINGS).rows] == ["2", "3", "4"]
    assert overview.one(state, SEEN_ALLOCATIONS, "o", "1") is None
    assert overview.one(state, LOOKS, "o", "plan:x") is None


def written(state: Path) -> dict[str, str]:
    with Store(state).read() as db:
        return {row["key"]: row["written_at"] for row in db.rows("SELECT * FROM hints WHERE scope = 'o'")}


def test_only_what_differs_is_written(state: Path) -> None:
    before = written(state)
    same, changed = allocation("Élan Vital", "ann", "bob"), allocation("a\\b", "zoe")
    SEEN_ALLOCATIONS.replace(state, "o", {"1": same, "3": changed}, are_all=False)
    after = written(state)
    assert after.keys() == before.keys()
    assert [key for key in "123" if after[key] != before[key]] == ["3"]
    SEEN_ALLOCATIONS.replace(state, "o", {"1": same}, are_all=True)
    assert [each.key for each in overview.find(state, SEEN_ALLOCATIONS, OFFERINGS).rows] == ["1", "4"]
