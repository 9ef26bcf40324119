# SPDX-License-Identifier: MIT
"""The last usage of a resource that ends around the end of a month."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from agent.run.results import Result
from agent.run.usage import last as last_usage
from tests.agent.run.orders.endings import LAST_SECOND, Endings, endings, make
from tests.agent.run.usage.conftest import AGES, MODERN, make_world
from tests.agent.run.usage.world import THIS

__all__ = ["endings", "make", "make_world"]


@pytest.mark.parametrize("age", MODERN)
def test_a_month_that_ended_in_between_is_reported_with_its_date(
    make: Callable[..., Endings], age: str
) -> None:
    endings = make(age, user="staff")
    world = endings.world
    world.ran("a_1", "ann", 8)
    world.now = LAST_SECOND + timedelta(hours=20)
    world.ran("a_1", "ann", 2, month=THIS.next)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert world.in_waldur()["a_1"]["cpu"] == "9.00"
    assert world.in_waldur(THIS.next)["a_1"]["cpu"] == "2.00"
    assert endings.unreported() == []


@pytest.mark.parametrize("age", AGES)
def test_a_month_that_waldur_takes_no_more_is_written_down(make: Callable[..., Endings], age: str) -> None:
    """In 2024 no month but the present one; since 8.0 from a provider's token what is billed by limits only."""
    endings = make(age)
    world = endings.world
    world.demote("agent")
    world.ran("a_1", "ann", 8)
    world.now = LAST_SECOND + timedelta(hours=20)
    world.ran("a_1", "ann", 2, month=THIS.next)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert world.in_waldur()["a_1"]["cpu"] == "1.00"
    assert world.in_waldur(THIS.next)["a_1"]["cpu"] == "2.00"
    (line,) = endings.unreported()
    assert line.startswith("usage of a_1 in 2026-11 is not in Waldur: cpu 1.00 -> 9.00")
    assert any("cpu 1.00 -> 9.00" in each["action"]["text"] for each in endings.tries())


def test_a_month_that_a_report_has_counted_to_its_end_is_not_counted_again(
    make: Callable[..., Endings], monkeypatch: pytest.MonkeyPatch
) -> None:
    endings = make("8.0", user="staff")
    world = endings.world
    world.now = LAST_SECOND + timedelta(days=2)
    world.busy(THIS.next)
    assert not world.report().failed
    monkeypatch.setattr(last_usage.passes, "last", lambda *_: [{"last_good": world.now.isoformat()}])
    world.backend.queries.clear()
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert [query.month for query in world.backend.queries] == [THIS.next]


@pytest.mark.parametrize("age", AGES)
def test_in_the_last_second_of_a_month(make: Callable[..., Endings], age: str) -> None:
    """A server without dates may have begun the next one: what it gets now may be filed there."""
    endings = make(age, user="staff")
    world = endings.world
    world.ran("a_1", "ann", 8)
    world.now = LAST_SECOND
    endings.end("a_1")
    found = endings.process()
    if age == "2024":
        (order,) = found.orders
        assert order.result is Result.RETRY and "another month than 2026-11" in order.message
        assert world.rows(THIS.next) == []
        world.now = LAST_SECOND + timedelta(minutes=10)
        found = endings.process()
    assert found.counted() == {"done": 1}, found.as_json()
    assert world.rows(THIS.next) == []
    assert (world.in_waldur()["a_1"]["cpu"] == "9.00") is (age != "2024")
    assert len(endings.unreported()) == (age == "2024")


@pytest.mark.parametrize("age", MODERN)
def test_before_the_date_of_a_new_month_has_come(make: Callable[..., Endings], age: str) -> None:
    """The moment by which its usage is filed is noon of the first: till then it goes without a date."""
    endings = make(age, user="staff")
    world = endings.world
    world.now = LAST_SECOND + timedelta(hours=3)
    world.ran("a_1", "ann", 2, month=THIS.next)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert world.in_waldur(THIS.next)["a_1"]["cpu"] == "2.00"
