# SPDX-License-Identifier: MIT
"""Figures that would get less: held until an operator says that they are right, and counted when they are sent."""

from __future__ import annotations

import pytest

from agent.run.backfill.results import Ending, Mark
from agent.state import journal
from tests.agent.run.backfill.world import JAN, History, texts


@pytest.fixture
def purged(history: History) -> History:
    """Waldur has 20 hours of a_1 and 4 of a_2; of a_1 the cluster has 15 left, of a_2 it has one more."""
    job = history.ran("a_1", "u", 20, month=JAN)
    history.ran("a_2", "v", 4, month=JAN)
    history.load()
    history.alter(job, counts={"cpu": 15 * 3600})
    history.ran("a_2", "v", 1, month=JAN)
    return history


def test_a_decrease_is_held_and_named_while_others_are_reported(purged: History) -> None:
    outcome = purged.load()
    assert purged.in_waldur(JAN) == {"a_1": {"cpu": "20.00"}, "a_2": {"cpu": "5.00"}}
    assert purged.shares("a_1", month=JAN) == {"u": "20.00"}
    assert (outcome.ending, outcome.submitted, outcome.lowered) == (Ending.HELD, 1, 0)
    sentence = "usage of a_1 in 2024-01 would get less: cpu from 20.00 to 15.00, cpu of u from 20.00 to 15.00"
    assert outcome.held == (sentence,)
    assert texts(outcome, Mark.WARNING, Mark.DONE) == [
        f"held: {sentence}. Waldur keeps what it has; --allow-decreases sends the smaller figures",
        "Completed processing 2024-01 (4 resources), 1 held",
    ]


def test_what_is_held_is_held_again_and_not_called_complete(purged: History) -> None:
    purged.load()
    purged.waldur.requests.reset()
    again = purged.load()
    assert (purged.sent(), again.ending) == ([], Ending.HELD)
    assert "Waldur has all usage of 2024-01 already" not in texts(again)


def test_a_total_that_gets_less_keeps_back_all_figures_of_its_resource(history: History) -> None:
    """One user has less, another one has more, though not by as much: the figures belong together."""
    job = history.ran("a_1", "u", 4, month=JAN)
    history.ran("a_1", "v", 4, month=JAN)
    history.load()
    history.alter(job, counts={"cpu": 1 * 3600})
    history.ran("a_1", "v", 2, month=JAN, mem=4 * 1024 * 3600)
    outcome = history.load()
    assert len(outcome.held) == 1
    assert history.in_waldur(JAN)["a_1"] == {"cpu": "8.00"}
    assert history.shares("a_1", month=JAN) == {"u": "4.00", "v": "4.00"}


def test_users_who_get_less_keep_no_total_back(history: History) -> None:
    """The total grew: the shares of that component wait."""
    job = history.ran("a_1", "u", 4, month=JAN)
    history.ran("a_1", "v", 4, month=JAN)
    history.load()
    history.alter(job, counts={"cpu": 3 * 3600})
    history.ran("a_1", "v", 6, month=JAN)
    outcome = history.load()
    assert outcome.held == ("usage of a_1 in 2024-01 would get less: cpu of u from 4.00 to 3.00",)
    assert (outcome.ending, outcome.submitted) == (Ending.HELD, 1)
    assert history.in_waldur(JAN)["a_1"] == {"cpu": "13.00"}
    assert history.shares("a_1", month=JAN) == {"u": "4.00", "v": "4.00"}


@pytest.mark.parametrize("options", ["allow_decreases", "reconcile_stale"])
def test_a_decrease_is_sent_and_shown_on_request(purged: History, options: str) -> None:
    outcome = purged.loaded(**{options: True})
    assert purged.in_waldur(JAN) == {"a_1": {"cpu": "15.00"}, "a_2": {"cpu": "5.00"}}
    causes = {line["cause"] for line in journal.read(purged.state_dir)}
    assert causes == {"historical-usage"}
    assert (outcome.ending, outcome.held, outcome.lowered) == (Ending.DONE, (), 2)
    assert texts(outcome, Mark.WARNING) == [
        "a_1 in 2024-01: cpu lowered from 20.00 to 15.00",
        "a_1 in 2024-01: cpu of u lowered from 20.00 to 15.00",
    ]


def test_a_dry_run_says_what_would_be_held(purged: History) -> None:
    purged.waldur.requests.reset()
    outcome = purged.load(dry_run=True)
    assert (purged.sent(), outcome.ending) == ([], Ending.HELD)
    assert texts(outcome, Mark.SENT) == [
        "[DRY-RUN] Would submit usage for resource a_2: {'cpu': 5.00}",
        "[DRY-RUN] Would submit usage of users for resource a_2, cpu: {'v': 5.00}",
    ]


def test_a_dry_run_says_what_would_be_lowered(purged: History) -> None:
    outcome = purged.load(dry_run=True, allow_decreases=True)
    assert purged.in_waldur(JAN)["a_1"] == {"cpu": "20.00"}
    assert texts(outcome, Mark.WARNING) == [
        "a_1 in 2024-01: cpu would be lowered from 20.00 to 15.00",
        "a_1 in 2024-01: cpu of u would be lowered from 20.00 to 15.00",
    ]
    assert outcome.lowered == 2
