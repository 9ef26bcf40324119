# SPDX-License-Identifier: MIT
"""Which months are loaded for two dates, and which dates are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from agent.core.errors import PlanRefused
from agent.plan.usage import history

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def span(first: str, last: str, now: datetime = NOW) -> history.Span:
    return history.span(
        history.parse_date(first, "--start-date"), history.parse_date(last, "--end-date"), now
    )


@pytest.mark.parametrize(
    ("first", "last", "months"),
    [
        ("2024-01-31", "2024-02-01", ["2024-01", "2024-02"]),
        ("2024-01-15", "2024-01-15", ["2024-01"]),
        ("2023-12-31", "2024-01-01", ["2023-12", "2024-01"]),
        ("2026-11-01", "2026-11-30", ["2026-11"]),
    ],
)
def test_every_month_that_is_touched_is_loaded_whole(first: str, last: str, months: list[str]) -> None:
    found = span(first, last)
    assert [str(month) for month in found.months] == months
    assert found.note == ""


@pytest.mark.parametrize(
    ("first", "last", "sentence"),
    [
        ("2024-03-31", "2024-01-01", "--end-date 2024-01-01 comes before --start-date 2024-03-31"),
        ("1984-01-01", "2024-01-01", "from 1984-01-01 to 2024-01-01 it is 14610 days, and at most 1825"),
        ("2021-01-01", "2026-01-01", "it is 1826 days"),
        ("2027-01-01", "2027-02-01", "2027-01 has not begun: there is no usage of it to load"),
        ("0001-01-01", "0001-12-31", "before the year 1970"),
        ("9999-01-01", "9999-12-31", "9999-01 has not begun"),
        ("2024-13-01", "2024-12-01", "--start-date '2024-13-01' is no date: write it as 2024-01-31"),
        ("2024-02-30", "2024-12-01", "--start-date '2024-02-30' is no date"),
        ("2024-01-01", "31.12.2024", "--end-date '31.12.2024' is no date"),
        ("2024-01-01", "20241231", "--end-date '20241231' is no date"),
        ("2024-01-01", "\u0662\u0660\u0662\u0664-01-01", "is no date"),
        ("", "2024-01-01", "--start-date '' is no date"),
    ],
)
def test_days_that_cannot_be_loaded_are_refused(first: str, last: str, sentence: str) -> None:
    with pytest.raises(PlanRefused) as refused:
        span(first, last)
    assert sentence in str(refused.value)


def test_five_years_are_loaded_at_once() -> None:
    assert len(span("2021-01-01", "2025-12-31").months) == 60


def test_months_that_have_not_begun_are_skipped_and_named() -> None:
    found = span("2026-10-01", "2027-01-31")
    assert [str(month) for month in found.months] == ["2026-10", "2026-11"]
    assert found.note == "2026-12 and the months after it have not begun: what is loaded ends with 2026-11"


@pytest.mark.parametrize(
    ("zone", "now", "last"),
    [
        ("Asia/Tokyo", datetime(2026, 11, 30, 16, tzinfo=UTC), "2026-11"),
        ("Asia/Tokyo", datetime(2026, 12, 1, 11, 50, tzinfo=UTC), "2026-11"),
        ("America/New_York", datetime(2026, 12, 1, 3, tzinfo=UTC), "2026-11"),
        ("America/New_York", datetime(2026, 12, 1, 12, 10, tzinfo=UTC), "2026-12"),
    ],
)
def test_the_present_month_is_the_site_s_and_waldur_s(zone: str, now: datetime, last: str) -> None:
    """Waldur refuses moments in its future, and files the month by noon in UTC of its first day."""
    found = history.span(date(2026, 10, 1), date(2026, 12, 31), now.astimezone(ZoneInfo(zone)))
    assert str(found.months[-1]) == last
