# SPDX-License-Identifier: MIT
"""Beat's scheduler: in memory, so nothing on disk can be corrupt; every entry is due at start, spread over seconds.

The work queue keeps a pass that still waits in the queue from being queued again: after an outage there
is one task per offering and mode, not a hundred. Two beats at once do no harm for the same reason.

While a bridge's heartbeat says that events cover a mode of an offering, its polls are skipped, but for one in each
reconciliation period.
"""

from __future__ import annotations

import copy
import logging
import time
from datetime import timedelta
from functools import cached_property
from typing import Any

from celery.beat import ScheduleEntry, Scheduler

import beat_schedule as table
from agent.config.model import Mode, Offering
from agent.core.events import QueueUnavailable
from agent.core.said import Said
from agent.host import collector, service_manager
from agent.host.heartbeat import Heartbeat, Part
from agent.host.service_manager import ALIVE, READY
from agent.observability import sentry
from agent.run.service.event_coverage import HEARTBEAT_S, Polls, modes_by_events
from tasks import current
from tasks.queue import broker, heartbeats, sending

log = logging.getLogger(__name__)

START_SPREAD_S = 5.0
# So much of its period counts a poll as waiting: it ends a little before its message, which may expire unread.
MARKER_SHARE = 0.9
CLOCKS_APART_S = 30.0
# Between two check-ins to Sentry, where the site has monitors there.
CHECK_IN_MINUTES = 5
MODE_OF = {task: mode for mode, task in table.TASK_OF.items()}


class SiteScheduler(Scheduler):
    _noted_s = _check_in_s = float("-inf")
    _is_ready = False

    def setup_schedule(self) -> None:
        collector.begin()
        self.merge_inplace(self.app.conf.beat_schedule)
        for position, entry in enumerate(self.schedule.values()):
            first_s = START_SPREAD_S * position / max(1, len(self.schedule))
            period = entry.schedule.run_every
            entry.last_run_at = entry.default_now() - period + timedelta(seconds=first_s)

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """Send what is due, and write heartbeats, once the broker has answered: in Redis for `status`, in a file for
        `healthz`, and to systemd.
        """
        if not self._is_ready:
            self._ensure_connected()
        now_s = time.monotonic()
        if now_s - self._noted_s >= HEARTBEAT_S:
            self._noted_s = now_s
            try:
                heartbeats.note_beat(broker.here().store)
            except QueueUnavailable as error:
                log.debug("no heartbeat: %s", error)
        wait_s = super().tick(*args, **kwargs)
        self._heartbeat.renew()
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
        self._heartbeat.end()

    @cached_property
    def connection(self) -> Any:
        return sending.connection(self.app)

    @cached_property
    def _said(self) -> Said:
        return Said()

    @cached_property
    def _heartbeat(self) -> Heartbeat:
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
        # The next one of a covered mode comes a full period later: it does not expire with the short one.
        lives_s = self._polls.full_period_s if is_covered else entry.options["expires"]
        name, period_s = table.polled(entry.task, offering_uuid), entry.schedule.run_every.total_seconds()
        entry = copy.copy(entry)
        # By Redis's clock, and so for workers of all hosts.
        entry.options = {**entry.options, "expires": lives_s + self._clock_offset_s()}
        sent: list[Any] = []

        def publish() -> None:
            sent.append(super(SiteScheduler, self).apply_async(entry, producer, advance, **options))

        try:
            if not broker.queue().ask(name, publish, MARKER_SHARE * period_s):
                log.debug("%s of %s waits in the queue already", entry.task, offering_uuid)
                return None
        except QueueUnavailable as error:
            log.warning("duplicates of %s cannot be recognised: %s", entry.task, error)
            publish()
        self._polls.note_started(entry.name, time.monotonic())
        return sent[0]

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
        offset_s = broker.here().clock_offset_s()
        apart = ["apart"] if abs(offset_s) > CLOCKS_APART_S else []
        if self._said.news("clocks", *apart):
            log.warning(
                "this host's clock and Redis's are %.0f s apart: does NTP run on both?", abs(offset_s)
            )
        return offset_s


def _covered_modes(offering_uuid: str) -> frozenset[Mode]:
    """Return the modes that events cover; none where the store does not answer."""
    try:
        return heartbeats.covered_modes(broker.here().store, offering_uuid)
    except QueueUnavailable as error:
        log.debug("no heartbeats can be read: %s", error)
        return frozenset()
