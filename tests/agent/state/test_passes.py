# SPDX-License-Identifier: MIT
"""The last passes: those that found nothing to do take the place of each other, and of no other one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.state import passes

OFFERING, MODE = "0" * 32, "membership_sync"
IDLE: dict[str, Any] = {"result": "ok"}
EVENTFUL: dict[str, dict[str, Any]] = {
    "it failed": {"result": "error"},
    "something failed": {**IDLE, "failures": ["a_one: no answer"]},
    "orders were processed": {**IDLE, "results": {"done": 1}},
    "something was changed": {**IDLE, "actions": {"add member": 1}},
    "something is held": {**IDLE, "held": ["p1"]},
}


def ended(folder: Path, *entries: dict[str, Any]) -> list[dict[str, Any]]:
    for number, entry in enumerate(entries):
        assert passes.add(folder, OFFERING, MODE, {**entry, "ended": number})
    return passes.last(folder, OFFERING, MODE)


def test_of_passes_without_anything_to_do_the_newest_is_known(tmp_path: Path) -> None:
    assert ended(tmp_path, IDLE, IDLE, IDLE) == [{**IDLE, "ended": 2}]


@pytest.mark.parametrize("what", EVENTFUL)
def test_a_pass_that_did_something_stays_beside_those_that_did_not(tmp_path: Path, what: str) -> None:
    known = ended(tmp_path, IDLE, EVENTFUL[what], IDLE, IDLE)
    assert [entry["ended"] for entry in known] == [3, 1, 0]


def test_so_many_are_known(tmp_path: Path) -> None:
    known = ended(tmp_path, *[EVENTFUL["it failed"]] * (passes.KEPT + 3))
    assert [entry["ended"] for entry in known] == list(range(passes.KEPT + 2, 2, -1))
