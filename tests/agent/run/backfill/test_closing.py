# SPDX-License-Identifier: MIT
"""The last lines of a run and its exit code, where something of it is not as it should be."""

from __future__ import annotations

import pytest

from rig.history import YEAR
from tests.agent.cli.conftest import Command
from tests.agent.run.backfill.operator import Operator

LOAD = ("historical-usage", "--local")
MARCH = ("-s", "2024-03-05", "-e", "2024-03-31")


@pytest.fixture(autouse=True)
def _an_empty_answer_is_asked_for_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.slurm.usage.EMPTY_PAUSE_S", 0, raising=False)


def test_months_of_which_the_cluster_knows_nothing_are_listed_and_asked_for_again(
    operator: Operator, with_token: str, command: Command
) -> None:
    """The cluster begins to count in March, or so it says."""
    words = ("-c", with_token, "-s", "2024-01-01", "-e", "2024-03-31")
    for month in YEAR[:2]:
        operator.lay_down(month, [])
    said = command(*LOAD, *words)
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[-4] == "warning: No usage data for 2 of 3 months: 2024-01 to 2024-02"
    assert "--resume asks for them again" in lines[-3] and "keeps records of that age" in lines[-3]
    assert lines[-2] == "Historical usage loading completed successfully!"
    assert sum(line.startswith("No usage data found for 2024-0") for line in lines) == 2
    operator.lay_down(YEAR[1])
    before = len(operator.counted())
    again = command(*LOAD, *words, "--resume")
    assert again.code == 0
    assert operator.is_loaded(YEAR[1])
    assert "2024-03" not in operator.counted()[before:]
    assert "warning: No usage data for 1 of 3 months: 2024-01" in again.out


def test_a_run_of_which_the_cluster_knows_nothing_at_all_is_no_success(
    operator: Operator, with_token: str, command: Command
) -> None:
    operator.lay_down(YEAR[2], [])
    said = command(*LOAD, "-c", with_token, *MARCH, "--json")
    (month,) = said.document()["months"]
    assert (said.code, said.document()["unknown"], month["result"]) == (0, 1, "unknown")
    assert "completed successfully" not in said.err


def test_held_decreases_are_listed_and_sent_on_request(
    operator: Operator, with_token: str, command: Command
) -> None:
    words = ("-c", with_token, "-s", "2024-01-01", "-e", "2024-03-31", "--skip-user-usage")
    for row in (command(*LOAD, *words), operator.waldur.store.usages)[1]:
        if row.billing_period == YEAR[1].first_day and row.component_type == "cpu":
            row.usage += 100
    said = command(*LOAD, *words)
    first, second = operator.names
    lines = said.out.splitlines()
    assert said.code == 1
    assert lines[-4:-2] == [
        "warning: 1 of 3 months have usage that is held, for figures would get less:",
        f"  2024-02: usage of {first} in 2024-02 would get less: cpu from 102.00 to 2.00; usage of {second} in "
        "2024-02 would get less: cpu from 104.00 to 4.00",
    ]
    assert lines[-2].endswith("the same command with --resume --allow-decreases")
    assert "completed successfully" not in said.out
    before = len(operator.counted())
    sent = command(*LOAD, *words, "--resume", "--allow-decreases")
    assert sent.code == 0
    assert operator.counted()[before:] == ["2024-02"]
    assert operator.is_loaded(YEAR[1])
    assert "warning: 2 figures were lowered: 2 in 2024-02" in sent.out.splitlines()
