# SPDX-License-Identifier: MIT
"""A month of history as a task. Its message names the offering, the month and what is wanted; the staff token is read
from the `staff_token_file` of the node that does the work, and stays there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import beat_schedule as table
from agent.core.errors import ClusterBusy, PassUnfinished, SiteAgentError
from agent.core.periods import Month
from agent.run.backfill import month as history
from agent.run.backfill import staff as history_site
from agent.run.backfill.month import Wish
from agent.run.backfill.results import Ending, Mark, MonthOutcome
from agent.run.backfill.staff import words
from tasks import broker, current
from tasks.app import app
from tasks.base import SiteTask
from tasks.limits import PASS_BUDGET_S
from tasks.locks import held
from tasks.month_status import Board, Entry, State

log = logging.getLogger(__name__)

LOUD = {Mark.WARNING: logging.WARNING, Mark.ERROR: logging.ERROR}


class MonthBusy(ClusterBusy):
    """Another task loads the month."""


class HistoryTask(SiteTask):
    """Tells the loader, whatever way the task ends. A copy that finds the month in another's hands says nothing: the
    other one does.
    """

    def on_retry(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        if isinstance(exc, MonthBusy):
            return
        board, month, entry = _place(args)
        if entry is None or entry.state is not State.ENDED:
            board.note(month, Entry(State.WAITING, _said(exc), entry.outcome if entry else None))

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        if isinstance(exc, MonthBusy):
            return
        board, month, entry = _place(args)
        outcome = (entry.outcome if entry else None) or MonthOutcome(month, Ending.FAILED)
        if entry is None or entry.state is not State.ENDED:
            board.note(month, Entry(State.ENDED, outcome=outcome.failed(_said(exc))))


@app.task(name="history.month", bind=True, base=HistoryTask)
def month(
    self: HistoryTask, offering_uuid: str, month_name: str, run_id: str, wish: Mapping[str, Any]
) -> str:
    """One month, told once: a copy of the message that comes later finds it done."""
    with held(broker.locks()) as locks:
        is_ours = locks.take(f"history:{offering_uuid}:{month_name}")
        # Read under the lock, in which the end is written too: a copy that waited for it finds the end.
        board, _, known = _place((offering_uuid, month_name, run_id))
        if known is not None and known.is_done:
            return "done already"
        if not is_ours:
            self.come_back(MonthBusy(f"{month_name} is being loaded by another task"))
        earlier = known.outcome if known else None
        running = str(self.request.hostname or "")
        board.note(month_name, Entry(State.RUNNING, running, earlier))
        outcome = _load(offering_uuid, Month.parse(month_name), history.wish_from(wish))
        whole = outcome.after(earlier)
        _log(offering_uuid, outcome)
        if outcome.error is None:
            board.note(month_name, Entry(State.ENDED, outcome=whole))
            return str(outcome.ending)
        board.note(month_name, Entry(State.RUNNING, running, whole))
    if isinstance(outcome.error, PassUnfinished):
        # As a new task: an outage that comes later has all its attempts still.
        send(offering_uuid, Month.parse(month_name), run_id, history.wish_from(wish))
        return "makes way"
    self.come_back(outcome.error)
    return "unreachable"


def send(offering_uuid: str, which: Month, run_id: str, wish: Wish) -> None:
    """Queue a month for the head node of its offering. Raises ConfigError when it is not ours."""
    month.apply_async(
        (offering_uuid, str(which), run_id, wish.as_json()),
        queue=table.queue_name(current.offering(offering_uuid).queue),
        priority=table.HISTORY_PRIORITY,
    )


def _load(offering_uuid: str, which: Month, wish: Wish) -> MonthOutcome:
    offering = current.offering(offering_uuid)
    queue = table.queue_name(offering.queue)
    until_s = time.monotonic() + PASS_BUDGET_S
    site = history_site.connect(current.settings(), offering, history_site.token_in_file(offering))
    try:
        history_site.check(site, is_staff_needed=wish.staff_check)
        return history.load_month(
            site,
            which,
            wish,
            interrupted=lambda: (
                time.monotonic() > until_s or broker.urgent_waits(queue, table.HISTORY_PRIORITY)
            ),
        )
    except SiteAgentError as error:
        if not error.retryable:
            raise
        return MonthOutcome(str(which), Ending.AGAIN, error=error)
    finally:
        site.client.close()


def _place(args: Any) -> tuple[Board, str, Entry | None]:
    _, month_name, run_id = args[:3]
    board = Board(broker.client(), run_id)
    return board, month_name, board.known(month_name)


def _said(error: Exception) -> str:
    return words(error) if isinstance(error, SiteAgentError) else f"{type(error).__name__}: {error}"


def _log(offering_uuid: str, outcome: MonthOutcome) -> None:
    name = current.offering(offering_uuid).name
    for line in outcome.lines:
        log.log(LOUD.get(line.mark, logging.DEBUG), "history of offering %s: %s", name, line.text)
    log.info(
        "history of offering %s: %s %s, %d resources, %d of them changed, %d held, %d figures lowered, %d requests, "
        "%d cluster commands, %.1f s",
        name,
        outcome.month,
        outcome.ending,
        outcome.resources,
        outcome.told,
        len(outcome.held),
        outcome.lowered,
        outcome.requests,
        outcome.commands,
        outcome.seconds,
    )
