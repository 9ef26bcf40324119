# SPDX-License-Identifier: MIT
"""The sites that this worker serves: checked when it starts, connected once, reported to Waldur after each pass.

A worker checks the backends of the queues that it serves. An outage of slurmdbd is a warning: the tasks retry.
Commands that only ask the broker use `tasks.current` and not this module: they need no client of Waldur.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from celery import signals

import beat_schedule as table
from agent.config.model import Mode, Offering, Problem, Severity
from agent.core.errors import BackendError, SiteAgentError
from agent.host import collector
from agent.observability import sentry
from agent.run.results import PassReport
from agent.run.service import configuration, event_coverage, presence
from agent.run.site import Site, connect, unusable
from agent.waldur.identities import Program
from tasks import current
from tasks.queue import broker
from tasks.start_up import refuse

log = logging.getLogger(__name__)


@signals.celeryd_after_setup.connect
def _check_worker(sender: str, instance: Any, **_: Any) -> None:
    program()
    queues = set(instance.app.amqp.queues.consume_from)
    served = [o for o in current.settings().offerings if table.queue_name(o.queue) in queues]
    if not current.settings().has_timezone and any(Mode.REPORT in current.modes_of(o) for o in served):
        log.info("timezone %s", configuration.NO_TIMEZONE)
    pairs = [(o, mode) for mode in table.TASK_OF for o in served if mode in current.modes_of(o)]
    problems = [problem for offering, mode in pairs for problem in unusable([offering], mode)]
    wanted = {(offering.path, mode) for offering, mode in pairs if offering.backend_of(mode)}
    stopped = {(problem.path, mode) for problem in problems for mode in problem.stopped_modes}
    # No other host takes the tasks of an embedded queue: an offering that cannot be served there stops no other one.
    are_alone = len(served) == 1 or not broker.here().is_alone
    if fatal := _fatal(problems, is_idle=bool(wanted) and wanted == stopped, are_alone=are_alone):
        refuse(f"worker {sender} does not start: {'; '.join(fatal)}")
    for offering, mode in pairs:
        if (offering.path, mode) in wanted - stopped:
            _log_health(offering, mode)


@signals.celeryd_after_setup.connect
def _begin_to_collect(**_: Any) -> None:
    """All is imported, and the processes of the pool are not forked yet. Also where the check above has failed."""
    collector.begin()


def _fatal(problems: Sequence[Problem], *, is_idle: bool, are_alone: bool) -> list[str]:
    """Log the problems, and return those that keep a worker from starting: all where it would have nothing to do, else
    the errors, where nothing else would be stopped by them.
    """
    for problem in problems:
        log.log(logging.WARNING if problem.severity is Severity.WARNING else logging.ERROR, "%s", problem)
    return [p.message for p in problems if is_idle or (are_alone and p.severity is Severity.ERROR)]


def _log_health(offering: Offering, mode: Mode) -> None:
    """Log the problems of a mode's cluster. None of them ends the worker."""
    try:
        health = connect(current.settings(), offering, mode).backend.check()
    except BackendError as error:
        log.warning("offering %s: its cluster cannot be checked now: %s", offering.name, error)
    except SiteAgentError as error:
        log.error("offering %s: %s", offering.name, error)
    else:
        for text in health.problems:
            log.error("offering %s: %s", offering.name, text)
        for text in health.warnings:
            log.warning("offering %s: %s", offering.name, text)


@cache
def site(offering_uuid: str, mode: Mode) -> Site:
    """Return the site of an offering; its connections last as long as the process. Raises ConfigError."""
    return connect(current.settings(), current.offering(offering_uuid), mode)


@cache
def program() -> Program:
    """Return what runs here. A worker asks for it before it forks: all its processes started when it did."""
    return Program.here(current.settings().source)


def show(offering_uuid: str, mode: Mode, report: PassReport) -> None:
    """Report to Waldur that this mode of an offering lives, after a pass that reached it, and to Sentry's monitor how
    the pass ended. What fails is logged.
    """
    sentry.check_in(
        f"{mode}-{offering_uuid}",
        is_well=not report.failed,
        every_minutes=_minutes_between_polls(offering_uuid, mode),
        seconds=report.effort.seconds,
    )
    if report.error is not None:
        return
    try:
        presence.report(site(offering_uuid, mode), mode, program(), datetime.now(UTC))
    except SiteAgentError as error:
        log.warning("that %s of offering %s runs is not reported to Waldur: %s", mode, offering_uuid, error)


def _minutes_between_polls(offering_uuid: str, mode: Mode) -> float:
    """Return how long two polls are apart at most: with events there is one in each reconciliation period."""
    periods = current.settings().periods
    by_events = mode in event_coverage.modes_by_events(current.offering(offering_uuid))
    return max(periods.minutes_of(mode), periods.reconciliation_minutes if by_events else 0)
