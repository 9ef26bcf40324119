# SPDX-License-Identifier: MIT
"""Times on the command line: durations (`30m`, `24h`, `2d`), moments (a date, or so long ago), and ages for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from agent.core.periods import span

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
WRITTEN = re.compile(r"(\d{1,6})([smhdw])")


class Duration(click.ParamType[timedelta]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        written = WRITTEN.fullmatch(str(value).strip().lower())
        if not written or not int(written[1]):
            self.fail(f"{value!r} is no duration; write 30m, 24h or 2d", param, ctx)
        try:
            return timedelta(**{UNITS[written[2]]: int(written[1])})
        except OverflowError:
            self.fail(f"{value!r} is too long", param, ctx)


class Moment(click.ParamType[datetime]):
    """A date, a date with time (UTC where it names no zone), or how long ago."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        if WRITTEN.fullmatch(text.lower()):
            return datetime.now(UTC) - DURATION.convert(text, param, ctx)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{value!r} is no time; write 2026-11-21, 2026-11-21T03:00 or 2h (ago)", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


DURATION = Duration()
MOMENT = Moment()


def age(since: datetime) -> str:
    """Return how long ago a time is: `2 d 5 h`."""
    return span(datetime.now(UTC) - since)


def until(moment: datetime) -> str:
    """Return how far off a time is: `in 40 s`, `in 1 h 5 min`; `now` where it has come."""
    seconds = round((moment - datetime.now(UTC)).total_seconds())
    if seconds <= 0:
        return "now"
    if seconds < 120:
        return f"in {seconds} s"
    return f"in {span(timedelta(seconds=seconds))}"
