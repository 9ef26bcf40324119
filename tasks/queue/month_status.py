# SPDX-License-Identifier: MIT
"""The status of each month of a run: written by workers, read by the loader, among the records of the queue.

It expires. Without it only the status is lost: a month whose end is unknown is sent again, and submits nothing that
Waldur has already.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from agent.core.events import QueueUnavailable
from agent.run.backfill.results import Ending, MonthOutcome
from tasks.queue.stores import Record, Step, Store, as_it_is

log = logging.getLogger(__name__)

TTL_S = 7 * 24 * 3600.0


class MonthState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class MonthStatus:
    """One month."""

    state: MonthState
    # The worker that runs it, or why it waits.
    detail: str = ""
    # What was done of it so far.
    outcome: MonthOutcome | None = None

    @property
    def is_done(self) -> bool:
        return self.has_ended and self.outcome is not None and self.outcome.ending is Ending.DONE

    @property
    def has_ended(self) -> bool:
        return self.state is MonthState.ENDED

    def as_record(self) -> Record:
        outcome = self.outcome.as_json() if self.outcome else None
        return {"state": self.state, "detail": self.detail, "outcome": outcome}

    @classmethod
    def of(cls, record: Record) -> MonthStatus:
        """Read what `as_record` made. Raises ValueError, KeyError, TypeError or AttributeError for anything else."""
        outcome = record.get("outcome")
        return cls(
            MonthState(record["state"]),
            str(record.get("detail", "")),
            MonthOutcome.from_json(outcome) if outcome else None,
        )


class RunStatus:
    """The statuses of one run."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id

    def read(self, months: Iterable[str]) -> dict[str, MonthStatus]:
        """Return the statuses of these months; without those that are not written or damaged. Raises
        QueueUnavailable.
        """
        found = {}
        for month in months:
            record = self._store.update(self._name(month), as_it_is)
            try:
                if record is not None:
                    found[month] = MonthStatus.of(record)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        return found

    def write(self, month: str, status: MonthStatus) -> None:
        """Write a status. Raises QueueUnavailable."""
        self._store.update(self._name(month), lambda _: Step(status.as_record(), None, TTL_S))

    def _name(self, month: str) -> str:
        return f"backfill:{self._run_id}:{month}"

    def try_write(self, month: str, status: MonthStatus) -> None:
        """Write a status from a worker: an outage of the broker stops no month."""
        try:
            self.write(month, status)
        except QueueUnavailable as error:
            log.warning(
                "the status of %s (%s) cannot be written for the loader: %s", month, status.state, error
            )

    def try_read(self, month: str) -> MonthStatus | None:
        """Return a status for a worker; None as well where the store does not answer."""
        try:
            return self.read([month]).get(month)
        except QueueUnavailable as error:
            log.debug("the status of %s cannot be read: %s", month, error)
            return None
