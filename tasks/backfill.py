# SPDX-License-Identifier: MIT
"""A past month as a task. Its message names the offering, the month and the options; the staff token is read from the
`staff_token_file` of the node that does the work, and is never sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import beat_schedule as table
from agent.core.errors import ClusterBusy, PassUnfinished, SiteAgentError
from agent.core.periods import Month
from agent.run.backfill import staff
from agent.run.backfill.month import LoadOptions, load_month
from agent.run.backfill.results import Ending, Mark, MonthOutcome
from tasks import current
from tasks.app import app
from tasks.arguments import ArgumentsRefused
from tasks.base import SiteTask
from tasks.limits import PASS_BUDGET_S
from tasks.queue import broker
from tasks.queue.month_status import MonthState, MonthStatus, RunStatus

log = logging.getLogger(__name__)

LOG_LEVELS = {Mark.WARNING: logging.WARNING, Mark.ERROR: logging.ERROR}


class MonthBusy(ClusterBusy):
    """Another task loads the month."""


class BackfillTask(SiteTask):
    """Writes the status of its month, however the task ends. A copy whose month another task has writes nothing."""

    def on_retry(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        if isinstance(exc, MonthBusy):
            return
        run, month, status = _status(args)
        if status is None or not status.has_ended:
            waits = MonthStatus(MonthState.WAITING, _error_text(exc), status.outcome if status else None)
            run.try_write(month, waits)

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        if isinstance(exc, MonthBusy | ArgumentsRefused):
            return
        run, month, status = _status(args)
        outcome = (status.outcome if status else None) or MonthOutcome(month, Ending.FAILED)
        if status is None or not status.has_ended:
            run.try_write(month, MonthStatus(MonthState.ENDED, outcome=outcome.failed(_error_text(exc))))


@app.task(name="backfill.month", bind=True, base=BackfillTask)
def month(
    self: BackfillTask, offering_uuid: str, month_name: str, run_id: str, options: Mapping[str, Any]
) -> str:
    """Load one month. A copy of the message that comes later finds it done."""
    with broker.queue().at_work(f"backfill:{offering_uuid}:{month_name}") as is_ours:
        # Read under the lock, in which the end is written too: a copy that waited for it finds the end.
        run, _, known = _status((offering_uuid, month_name, run_id))
        if known is not None and known.is_done:
            return "done already"
        if not is_ours:
            self.come_back(MonthBusy(f"{month_name} is being loaded by another task"))
        worker = str(self.request.hostname or "")
        outcome = _load_and_write(run, known, worker, (offering_uuid, month_name, options))
    if outcome.error is None:
        return str(outcome.ending)
    if isinstance(outcome.error, PassUnfinished):
        # As a new task: an outage that comes later has all its attempts still.
        enqueue_month(offering_uuid, Month.parse(month_name), run_id, LoadOptions.from_json(options))
        return "yields"
    self.come_back(outcome.error)
    return "unreachable"


def enqueue_month(offering_uuid: str, which: Month, run_id: str, options: LoadOptions) -> None:
    """Queue a month for the head node of its offering. Raises ConfigError when it is not ours."""
    month.apply_async(
        (offering_uuid, str(which), run_id, options.as_json()),
        queue=table.queue_name(current.offering(offering_uuid).queue),
        priority=broker.here().priority(table.BACKFILL_PRIORITY),
    )


def _load_and_write(
    run: RunStatus, known: MonthStatus | None, worker: str, what: tuple[str, str, Mapping[str, Any]]
) -> MonthOutcome:
    """Load a month, `what` being its offering, its name and the options, and write its status before and after."""
    offering_uuid, month_name, options = what
    earlier = known.outcome if known else None
    run.try_write(month_name, MonthStatus(MonthState.RUNNING, worker, earlier))
    outcome = _load(offering_uuid, Month.parse(month_name), LoadOptions.from_json(options))
    whole = outcome.after(earlier)
    ended = MonthStatus(MonthState.ENDED, outcome=whole)
    run.try_write(month_name, MonthStatus(MonthState.RUNNING, worker, whole) if outcome.error else ended)
    return outcome


def _load(offering_uuid: str, which: Month, options: LoadOptions) -> MonthOutcome:
    """Load a month until the time is up or something more urgent waits, and log its outcome. Raises SiteAgentError."""
    offering = current.offering(offering_uuid)
    queue = table.queue_name(offering.queue)
    until_s = time.monotonic() + PASS_BUDGET_S

    def interrupted() -> bool:
        return time.monotonic() > until_s or broker.here().urgent_waits(queue, table.BACKFILL_PRIORITY)

    site = staff.connect(current.settings(), offering, staff.token_in_file(offering))
    try:
        staff.check(site, is_staff_needed=options.staff_check)
        outcome = load_month(site, which, options, interrupted=interrupted)
    except SiteAgentError as error:
        if not error.retryable:
            raise
        outcome = MonthOutcome(str(which), Ending.AGAIN, error=error)
    finally:
        site.client.close()
    for line in outcome.lines:
        log.log(
            LOG_LEVELS.get(line.mark, logging.DEBUG), "usage of offering %s: %s", offering.name, line.text
        )
    log.info(
        "usage of offering %s: %s %s, %d resources, %d of them changed, %d held, %d figures lowered, %d requests, "
        "%d cluster commands, %.1f s",
        offering.name,
        outcome.month,
        outcome.ending,
        outcome.resources,
        outcome.submitted,
        len(outcome.held),
        outcome.lowered,
        outcome.requests,
        outcome.commands,
        outcome.seconds,
    )
    return outcome


def _status(args: Any) -> tuple[RunStatus, str, MonthStatus | None]:
    """Return the statuses of a task's run, its month and that month's status, from the task's arguments."""
    _, month_name, run_id = args[:3]
    run = RunStatus(broker.here().store, run_id)
    return run, month_name, run.try_read(month_name)


def _error_text(error: Exception) -> str:
    if isinstance(error, SiteAgentError):
        return staff.error_text(error)
    return f"{type(error).__name__}: {error}"
