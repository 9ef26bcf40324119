# SPDX-License-Identifier: MIT
"""Billing months: which there are, when they begin in a zone, and by which date Waldur knows them. Lengths of time in
words.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple, Self

HALF_A_DAY = timedelta(hours=12)
# How far the clocks of two machines may be apart.
SKEW = timedelta(minutes=5)

_TEXT = re.compile(r"([0-9]{4})-([0-9]{2})")


def span(length: timedelta) -> str:
    """Return how long a time is, in its two biggest units: `2 d 5 h`."""
    minutes = max(0, int(length.total_seconds() // 60))
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


class _YearAndMonth(NamedTuple):
    year: int
    month: int


class Month(_YearAndMonth):
    """A calendar month. Raises ValueError where there is no such month. A tuple, since it is the key of all figures."""

    __slots__ = ()

    def __new__(cls, year: int, month: int) -> Self:
        date(year, month, 1)
        return super().__new__(cls, year, month)

    @classmethod
    def of(cls, day: date) -> Month:
        """Return the month of a day, or of a moment in its own zone."""
        return cls(day.year, day.month)

    @classmethod
    def parse(cls, text: str) -> Month:
        """Return the month that `2024-03` names. Raises ValueError."""
        found = _TEXT.fullmatch(text)
        if not found:
            raise ValueError(f"{text!r} is no month: write it as 2024-03")
        return cls(int(found[1]), int(found[2]))

    @property
    def first_day(self) -> date:
        return date(self.year, self.month, 1)

    @property
    def next(self) -> Month:
        return Month(self.year + self.month // 12, self.month % 12 + 1)

    @property
    def previous(self) -> Month:
        return Month(self.year - (self.month == 1), 12 if self.month == 1 else self.month - 1)

    def start(self, zone: tzinfo) -> datetime:
        """Return the first midnight of the month in a zone."""
        return datetime(self.year, self.month, 1, tzinfo=zone)

    def __str__(self) -> str:
        return f"{self.year:04}-{self.month:02}"


def last_months(current: Month, count: int) -> tuple[Month, ...]:
    """Return `count` months up to and with `current`, oldest first."""
    months = [current]
    while len(months) < count:
        months.append(months[-1].previous)
    return tuple(reversed(months))


def months_between(first: date, last: date) -> tuple[Month, ...]:
    """Return every month that the days from `first` to `last` touch, oldest first; none where `last` comes before."""
    months = []
    month = Month.of(first)
    while month.first_day <= last:
        months.append(month)
        month = month.next
    return tuple(months)


def attribution(month: Month, zone: tzinfo) -> datetime:
    """Return the moment by which Waldur files usage under a month: the first, at noon in UTC.

    Waldur takes the month of this moment in the zone of its own server (waldur-mastermind 8.0), which is
    unknown here. At noon in UTC it is the same day everywhere on earth but for a few islands; at 00:00 in UTC a server
    in America would file it under the month before, whose bill it would overwrite.
    """
    return (month.start(UTC) + HALF_A_DAY).astimezone(zone)


def surely_in(month: Month, zone: tzinfo, now: datetime) -> bool:
    """Return whether it is this month now in a zone, also by a clock that is a little off."""
    return all(Month.of(moment.astimezone(zone)) == month for moment in (now - SKEW, now, now + SKEW))
