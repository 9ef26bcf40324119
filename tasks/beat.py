# SPDX-License-Identifier: MIT
"""The scheduler: in memory, so nothing on disk can be corrupt; every entry is due at start, spread over seconds.

A marker in Redis keeps a pass that still waits in the queue from being queued again: after an outage there
is one task per offering and mode, not a hundred. Two beats at once do no harm for the same reason.

While a bridge says that it listens to an offering's events, the polls of what they tell are left out, but for one in
each reconciliation period.
"""

from __future__ import annotations

import copy
import logging
import time
from datetime import timedelta
from functools import cached_property
from typing import Any

from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from redis import RedisError

import beat_schedule as table
from agent.config.model import Mode, Offering
from agent.run.event_coverage import Polls, modes_by_events
from tasks import broker, current, event_coverage
from tasks.locks import mark_queued, unmark_queued

log = logging.getLogger(__name__)

START_SPREAD_S = 5.0
MODE_OF = {task: mode for mode, task in table.TASK_OF.items()}


class SiteScheduler(Scheduler):
    def setup_schedule(self) -> None:
        self.merge_inplace(self.app.conf.beat_schedule)
        for position, entry in enumerate(self.schedule.values()):
            first_s = START_SPREAD_S * position / max(1, len(self.schedule))
            period = entry.schedule.run_every
            entry.last_run_at = entry.default_now() - period + timedelta(seconds=first_s)

    def install_default_entries(self, data: Any) -> None:
        """No clean-up of results: we keep none."""

    def apply_async(
        self, entry: ScheduleEntry, producer: Any = None, advance: bool = True, **options: Any
    ) -> Any:
        (offering_uuid,) = entry.args
        if not self._is_due(entry, offering_uuid):
            return None
        if not self._mark(entry, offering_uuid):
            log.debug("%s of %s waits in the queue already", entry.task, offering_uuid)
            return None
        try:
            sent = super().apply_async(self._lasting(entry), producer=producer, advance=advance, **options)
        except SchedulingError:  # whatever the broker raised: beat's own class wraps all of it
            self._unmark(entry, offering_uuid)
            raise
        self._polls.note_started(entry.name, time.monotonic())
        return sent

    def _is_due(self, entry: ScheduleEntry, offering_uuid: str) -> bool:
        """False for a poll of what a bridge tells of already."""
        found = self._poll_of(entry)
        if found is None:
            return True
        offering, mode = found
        now_s, listened_to = time.monotonic(), _signs(offering_uuid)
        news = self._polls.news(entry.name, mode in listened_to, now_s)
        if news:
            log.warning("offering %s, %s: %s", offering.name, mode, news)
        return self._polls.is_due(entry.name, mode in listened_to, now_s)

    def _lasting(self, entry: ScheduleEntry) -> ScheduleEntry:
        """A pass that has no other soon after it does not end with its period."""
        found = self._poll_of(entry)
        if found is None or found[1] not in _signs(found[0].uuid):
            return entry
        lasting = copy.copy(entry)
        lasting.options = {**entry.options, "expires": self._polls.full_period_s}
        return lasting

    def _poll_of(self, entry: ScheduleEntry) -> tuple[Offering, Mode] | None:
        """The offering and mode of a poll that events may replace."""
        mode = MODE_OF.get(entry.task)
        offering = current.settings().offering(entry.args[0])
        if mode is None or offering is None or mode not in modes_by_events(offering):
            return None
        return offering, mode

    @cached_property
    def _polls(self) -> Polls:
        return Polls(60 * current.settings().periods.reconciliation_minutes, time.monotonic())

    def _mark(self, entry: ScheduleEntry, offering_uuid: str) -> bool:
        if not broker.uses_redis():
            return True
        try:
            return mark_queued(
                broker.client(), entry.task, offering_uuid, entry.schedule.run_every.total_seconds()
            )
        except RedisError as error:
            log.warning("no marker for %s: %s", entry.task, error)
            return True

    def _unmark(self, entry: ScheduleEntry, offering_uuid: str) -> None:
        try:
            unmark_queued(broker.client(), entry.task, offering_uuid)
        except RedisError as error:
            log.debug("marker of %s stays until it expires: %s", entry.task, error)


def _signs(offering_uuid: str) -> frozenset[Mode]:
    """Without Redis nobody is known to listen."""
    try:
        return event_coverage.of(offering_uuid)
    except RedisError as error:
        log.debug("no signs of life: %s", error)
        return frozenset()
