# SPDX-License-Identifier: MIT
"""The simulated server's clock: real time plus an offset that tests and the control API move forward."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo


class SimClock:
    """The server's clock, which an experiment may set."""

    def __init__(self) -> None:
        # The server's own time zone, in which its billing months begin.
        self.zone: tzinfo = UTC
        self._offset = timedelta()
        self._frozen_at: datetime | None = None

    def now(self) -> datetime:
        return (self._frozen_at or datetime.now(UTC)) + self._offset

    def today(self) -> date:
        return self.now().date()

    def month_of(self, moment: datetime) -> date:
        """Return the first day of the billing month of a moment."""
        return moment.astimezone(self.zone).date().replace(day=1)

    def advance(self, seconds: float) -> None:
        self._offset += timedelta(seconds=seconds)

    def freeze(self, at: datetime) -> None:
        """Stand still at `at` (aware); only `advance` moves the clock from here on."""
        self._frozen_at = at
        self._offset = timedelta()


def wire_time(moment: datetime | None) -> str | None:
    """Return a moment as the server prints it: UTC, microseconds, a Z at the end."""
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def wire_date(day: date | None) -> str | None:
    return None if day is None else day.isoformat()
