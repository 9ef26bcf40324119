# SPDX-License-Identifier: MIT
"""Billing months: where they begin and end, and by which moment Waldur files what was used."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.periods import (
    SKEW,
    Month,
    attribution,
    last_months,
    months_between,
    surely_in,
)

MONTHS = st.builds(Month, st.integers(3, 9998), st.integers(1, 12))
RECENT = st.builds(Month, st.integers(2015, 2035), st.integers(1, 12))
ZONES = st.sampled_from([
    "UTC", "Europe/Tallinn", "Asia/Tokyo", "America/Chicago", "America/New_York", "Pacific/Kiritimati",
    "Etc/GMT+12", "Pacific/Auckland", "Asia/Kathmandu", "America/Asuncion", "Africa/Cairo", "America/Havana",
]).map(ZoneInfo)  # fmt: skip
# Every zone that there is on earth.
OFFSETS = [timezone(timedelta(minutes=15 * quarters)) for quarters in range(-12 * 4, 14 * 4 + 1)]


@pytest.mark.parametrize(
    ("text", "month"),
    [("2024-03", Month(2024, 3)), ("0001-01", Month(1, 1)), ("9999-12", Month(9999, 12))],
)
def test_a_month_is_written_one_way(text: str, month: Month) -> None:
    assert Month.parse(text) == month
    assert str(month) == text


@pytest.mark.parametrize(
    "text", ["2024-13", "2024-0", "2024-00", "24-03", "2024-3", "2024-03-01", "", "2024/03", "٢٠٢٤-03"]
)
def test_what_is_no_month_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"month|year"):
        Month.parse(text)


@given(month=MONTHS)
def test_the_next_month_has_this_one_before_it(month: Month) -> None:
    assert month.next.previous == month
    assert month < month.next
    assert (month.next.first_day - month.first_day).days in range(28, 32)
    assert Month.of(month.next.first_day - timedelta(days=1)) == month


@given(month=MONTHS, count=st.integers(1, 12))
def test_the_last_months_end_with_the_present_one(month: Month, count: int) -> None:
    found = last_months(month, count)
    assert (len(found), found[-1]) == (count, month)
    assert all(one.next == other for one, other in pairwise(found))


@pytest.mark.parametrize(
    ("first", "last", "months"),
    [
        (date(2024, 1, 31), date(2024, 2, 1), "2024-01 2024-02"),
        (date(2024, 2, 1), date(2024, 2, 29), "2024-02"),
        (date(2023, 11, 5), date(2024, 2, 5), "2023-11 2023-12 2024-01 2024-02"),
        (date(2024, 2, 2), date(2024, 2, 1), "2024-02"),
        (date(2024, 2, 1), date(2024, 1, 31), ""),
        (date(2024, 5, 1), date(2023, 5, 1), ""),
    ],
)
def test_months_that_days_touch(first: date, last: date, months: str) -> None:
    assert " ".join(map(str, months_between(first, last))) == months


@pytest.mark.parametrize(
    ("month", "zone", "starts"),
    [
        (Month(2026, 3), "UTC", "2026-03-01T00:00:00+00:00"),
        # The clocks change within these months.
        (Month(2026, 3), "Europe/Tallinn", "2026-02-28T22:00:00+00:00"),
        (Month(2026, 4), "Europe/Tallinn", "2026-03-31T21:00:00+00:00"),
        (Month(2026, 11), "America/Chicago", "2026-11-01T05:00:00+00:00"),
        (Month(2026, 12), "America/Chicago", "2026-12-01T06:00:00+00:00"),
        (Month(2026, 12), "Asia/Tokyo", "2026-11-30T15:00:00+00:00"),
        # Midnight was skipped (Paraguay), and came twice (Cuba): the first instant of the day counts.
        (Month(2023, 10), "America/Asuncion", "2023-10-01T04:00:00+00:00"),
        (Month(2015, 11), "America/Havana", "2015-11-01T04:00:00+00:00"),
    ],
)
def test_a_month_begins_with_its_first_instant_in_the_zone(month: Month, zone: str, starts: str) -> None:
    assert month.start(ZoneInfo(zone)).astimezone(UTC).isoformat() == starts


@given(month=RECENT, zone=ZONES)
def test_waldur_files_a_month_under_itself_wherever_it_stands(month: Month, zone: ZoneInfo) -> None:
    moment = attribution(month, zone)
    assert {Month.of(moment.astimezone(offset)) for offset in OFFSETS} == {month}
    assert moment.tzinfo is zone
    assert moment.astimezone(UTC).date() == month.first_day


@given(month=RECENT, zone=ZONES, moment=st.datetimes(datetime(2015, 1, 1), datetime(2035, 12, 1)))
def test_near_its_border_no_month_is_sure(month: Month, zone: ZoneInfo, moment: datetime) -> None:
    border = month.start(zone).astimezone(UTC)
    assert not surely_in(month, zone, border + SKEW - timedelta(seconds=1))
    assert not surely_in(month.previous, zone, border - SKEW)
    assert surely_in(month, zone, border + SKEW)
    now = moment.replace(tzinfo=UTC)
    assert surely_in(Month.of(now.astimezone(zone)), zone, now) or _is_near_a_border(now, zone)


def _is_near_a_border(now: datetime, zone: ZoneInfo) -> bool:
    return Month.of((now - SKEW).astimezone(zone)) != Month.of((now + SKEW).astimezone(zone))
