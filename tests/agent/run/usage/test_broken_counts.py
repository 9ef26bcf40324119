# SPDX-License-Identifier: MIT
"""A backend of somebody else's that counts what is no whole number: its answer is none, and nothing is reported."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from agent.core.errors import BackendError
from agent.core.usage import AccountUsage, Usage, UsageQuery
from agent.run.usage import check, view
from backends.testing.memory import slurm_settings
from tests.agent.run.usage.jobs import JobBackend
from tests.agent.run.usage.world import HOUR, World


class Broken(JobBackend):
    """`changes` of what `a_1` has used, or of the whole answer."""

    amount: Any = 0
    of_user: Any = None
    scale: Any = 60

    def usage(self, query: UsageQuery) -> Usage:
        one = AccountUsage(
            {"cpu": self.amount}, {"ann": {"cpu": self.of_user}} if self.of_user is not None else {}
        )
        counted = super().usage(query)
        return replace(counted, accounts={**counted.accounts, "a_1": one}, records=1, scale=self.scale)


@pytest.fixture
def broken(world: World) -> World:
    world.backend = Broken(slurm_settings())
    world.make(*world.accounts)
    world.restart()
    world.ran("a_2", "bob", 1)
    return world


ANSWERS = {
    "a float": ({"amount": 5400.0}, "counted cpu=5400.0 of account a_1"),
    "no number": ({"amount": math.nan}, "counted cpu=nan of account a_1"),
    "infinity": ({"amount": math.inf}, "counted cpu=inf of account a_1"),
    "text": ({"amount": "5400"}, "counted cpu='5400' of account a_1"),
    "nothing": ({"amount": None}, "counted cpu=None of account a_1"),
    "a flag": ({"amount": True}, "counted cpu=True of account a_1"),
    "less than nothing": ({"amount": -1}, "counted cpu=-1 of account a_1"),
    "of a user": ({"of_user": 0.5}, "counted cpu=0.5 of ann in account a_1"),
    "a scale of nothing": ({"scale": 0}, "counted in parts of 1/0"),
    "a broken scale": ({"scale": 1.5}, "counted in parts of 1/1.5"),
}


@pytest.mark.parametrize(("answer", "sentence"), ANSWERS.values(), ids=ANSWERS)
def test_nothing_of_such_an_answer_is_reported(broken: World, answer: dict[str, Any], sentence: str) -> None:
    for name, value in answer.items():
        setattr(broken.backend, name, value)
    report = broken.report()
    assert isinstance(report.error, BackendError) and not report.error.retryable
    assert sentence in str(report.error)
    assert str(broken.now)[:7] in str(report.error), "the month"
    assert broken.in_waldur() == {}


def test_whole_numbers_of_any_size_are_reported(broken: World) -> None:
    broken.backend.amount = 5 * HOUR  # type: ignore[attr-defined]
    assert broken.report().error is None
    assert broken.in_waldur()["a_1"]["cpu"] == "5.00"


@pytest.mark.parametrize(
    "look", [lambda site: view.view(site, 1), lambda site: check.check(site)], ids=["usage", "usage-check"]
)
def test_pages_and_checks_say_the_same(broken: World, look: Any) -> None:
    broken.backend.amount = 0.5  # type: ignore[attr-defined]
    with pytest.raises(BackendError, match=r"counted cpu=0\.5 of account a_1"):
        look(broken.site)
