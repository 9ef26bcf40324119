# SPDX-License-Identifier: MIT
"""The scheduler: in memory, so nothing on disk can be corrupt; every entry is due at start, spread over seconds.

A marker in Redis keeps a pass that still waits in the queue from being queued again: after an outage there
is one task per offering and mode, not a hundred. Two beats at once do no harm for the same reason.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from redis import RedisError

from tasks import broker
from tasks.locks import mark_queued, unmark_queued

log = logging.getLogger(__name__)

START_SPREAD_S = 5.0


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
        if not self._mark(entry, offering_uuid):
            log.debug("%s of %s waits in the queue already", entry.task, offering_uuid)
            return None
        try:
            return super().apply_async(entry, producer=producer, advance=advance, **options)
        except SchedulingError:  # whatever the broker raised: beat's own class wraps all of it
            self._unmark(entry, offering_uuid)
            raise

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
