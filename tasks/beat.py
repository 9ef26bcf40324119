# SPDX-License-Identifier: MIT
"""Beat's scheduler: in memory, so nothing on disk can be corrupt; every entry is due at start, spread over seconds.

A marker in Redis keeps a pass that still waits in the queue from being queued again: after an outage there
is one task per offering and mode, not a hundred. Two beats at once do no harm for the same reason.

While a bridge's heartbeat says that events cover a mode of an offering, its polls are left out, but for one in each
reconciliation period.
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
from agent.host import service_manager
from agent.host.heartbeat import Heartbeat, Part
from agent.host.service_manager import ALIVE, READY
from agent.observability import sentry
from agent.run.event_coverage import HEARTBEAT_S, Polls, modes_by_events
from tasks import broker, current, event_coverage
from tasks.locks import mark_queued

log = logging.getLogger(__name__)

START_SPREAD_S = 5.0
CLOCKS_APART_S = 30.0
# Between two signs of life to Sentry, where the site has monitors there.
CHECK_IN_MINUTES = 5
MODE_OF = {task: mode for mode, task in table.TASK_OF.items()}


class SiteScheduler(Scheduler):
    _clocks_told = False
    _heartbeat_s = _check_in_s = float("-inf")
    _is_ready = False

    def setup_schedule(self) -> None:
        self.merge_inplace(self.app.conf.beat_schedule)
        for position, entry in enumerate(self.schedule.values()):
            first_s = START_SPREAD_S * position / max(1, len(self.schedule))
            period = entry.schedule.run_every
            entry.last_run_at = entry.default_now() - period + timedelta(seconds=first_s)

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """Send what is due, and leave signs of life, once the broker has answered: in Redis for `status`, in a file for
        `healthz`, and to systemd.
        """
        if not self._is_ready:
            self._ensure_connected()
        now_s = time.monotonic()
        if now_s - self._heartbeat_s >= HEARTBEAT_S:
            self._heartbeat_s = now_s
            try:
                event_coverage.note_beat()
            except RedisError as error:
                log.debug("no heartbeat: %s", error)
        wait_s = super().tick(*args, **kwargs)
        self._sign_of_life.renew()
        if now_s - self._check_in_s >= 60 * CHECK_IN_MINUTES:
            self._check_in_s = now_s
            sentry.check_in("waldur-site-beat", is_well=True, every_minutes=CHECK_IN_MINUTES)
        if self._is_ready:
            service_manager.notify(ALIVE)
        else:
            service_manager.notify(READY, status=f"starts the passes of {len(self.schedule)} entries")
            self._is_ready = True
        return wait_s

    def close(self) -> None:
        """End in order."""
        super().close()
        self._sign_of_life.end()

    @cached_property
    def _sign_of_life(self) -> Heartbeat:
        settings = current.settings()
        return Heartbeat(settings.state_dir, Part.BEAT, own_file=settings.heartbeat_path)

    def _ensure_connected(self) -> Any:
        """Wait for the broker, for as long as it takes."""
        return broker.wait_for(self.connection)

    def install_default_entries(self, data: Any) -> None:
        """Add none: Celery's own entry cleans up results, and there are none."""

    def apply_async(
        self, entry: ScheduleEntry, producer: Any = None, advance: bool = True, **options: Any
    ) -> Any:
        """Queue an entry's task, unless events cover it or one waits already. Raises SchedulingError."""
        (offering_uuid,) = entry.args
        poll = self._poll_of(entry)
        is_covered = poll is not None and poll[1] in _covered_modes(offering_uuid)
        if poll is not None:
            now_s = time.monotonic()
            if news := self._polls.news(entry.name, is_covered, now_s):
                log.warning("offering %s, %s: %s", poll[0].name, poll[1], news)
            if not self._polls.is_due(entry.name, is_covered, now_s):
                return None
        if not self._mark(entry, offering_uuid):
            log.debug("%s of %s waits in the queue already", entry.task, offering_uuid)
            return None
        # The next one of a covered mode comes a full period later: it does not expire with the short one.
        lives_s = self._polls.full_period_s if is_covered else entry.options["expires"]
        entry = copy.copy(entry)
        # By Redis's clock, and so for workers of all hosts.
        entry.options = {**entry.options, "expires": lives_s + self._clock_offset_s()}
        try:
            sent = super().apply_async(entry, producer=producer, advance=advance, **options)
        except SchedulingError:  # whatever the broker raised: beat's own class wraps all of it
            broker.clear_marker(entry.task, offering_uuid)
            raise
        self._polls.note_started(entry.name, time.monotonic())
        return sent

    def _poll_of(self, entry: ScheduleEntry) -> tuple[Offering, Mode] | None:
        """Return the offering and mode of a poll that events may replace."""
        mode = MODE_OF.get(entry.task)
        offering = current.settings().offering(entry.args[0])
        if mode is None or offering is None or mode not in modes_by_events(offering):
            return None
        return offering, mode

    @cached_property
    def _polls(self) -> Polls:
        return Polls(60 * current.settings().periods.reconciliation_minutes, time.monotonic())

    def _clock_offset_s(self) -> float:
        offset_s = broker.clock_offset_s()
        is_far = abs(offset_s) > CLOCKS_APART_S
        if is_far and not self._clocks_told:
            log.warning(
                "this host's clock and Redis's are %.0f s apart: does NTP run on both?", abs(offset_s)
            )
        self._clocks_told = is_far
        return offset_s

    def _mark(self, entry: ScheduleEntry, offering_uuid: str) -> bool:
        if not broker.uses_redis():
            return True
        period_s = entry.schedule.run_every.total_seconds()
        try:
            return mark_queued(broker.client(), entry.task, offering_uuid, period_s)
        except RedisError as error:
            log.warning("duplicates of %s cannot be recognised: %s", entry.task, error)
            return True


def _covered_modes(offering_uuid: str) -> frozenset[Mode]:
    """Return the modes that events cover; none where Redis does not answer."""
    try:
        return event_coverage.covered_modes(offering_uuid)
    except RedisError as error:
        log.debug("no heartbeats can be read: %s", error)
        return frozenset()
