# SPDX-License-Identifier: MIT
"""Membership tasks: the periodic pass over an offering, the resources and projects that events told of, and accounts to
be made again.

What events tell of projects and resources goes into a backlog, and one task takes all of it: a burst is a few passes.
Where so much of it waits that a pass over everything costs less, or where one waits anyway, that covers it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from redis import RedisError

import beat_schedule as table
from agent.config.model import Mode
from agent.core.events import QueueUnavailable
from agent.run import gate, passes
from agent.run.membership.rebuild import run_forced
from agent.run.results import PassReport, Result
from agent.run.scope import PassScope
from agent.run.waldur_facts import FEW, is_whole_cheaper
from tasks import backlog, broker, coalescing, current
from tasks.app import app
from tasks.base import SiteTask, policy_for
from tasks.limits import PASS_BUDGET_S

log = logging.getLogger(__name__)

MODE = Mode.MEMBERSHIP_SYNC
# A pass over everything that takes longer makes way for what events tell meanwhile.
EVENTS_WAIT_S = 10.0


@app.task(name="membership_sync.poll", bind=True)
def poll(self: SiteTask, offering_uuid: str) -> object:
    """Reconcile all resources of the offering. The next task does what does not fit into a task's time, at once."""
    broker.clear_marker(self.name, offering_uuid)
    with coalescing.single_flight(self, _subject(offering_uuid), is_poll=True) as locks:
        if locks is None:
            return "another pass is under way"
        report = _sync_all(offering_uuid)
    current.show(offering_uuid, MODE, report)
    return self.finish(report)


@app.task(name="membership_sync.part", bind=True)
def part(self: SiteTask, offering_uuid: str, resource_uuid: str = "", project_uuid: str = "") -> object:
    """Reconcile one resource, one project, or with neither everything. All is read again before anything is done: the
    message was a hint.
    """
    scope = PassScope.of(resource_uuid=resource_uuid, project_uuid=project_uuid)
    subject = _subject(str(scope) or offering_uuid)
    with coalescing.single_flight(self, subject) as locks:
        if locks is None:
            return "another task is at work on it and goes once more"
        report = _sync_all(offering_uuid) if scope.is_everything else _sync(offering_uuid, scope)
    return coalescing.finish(self, subject, report)


@app.task(name="membership_sync.events", bind=True)
def events(self: SiteTask, offering_uuid: str) -> object:
    """Reconcile the projects and resources that events told of, in one pass, or leave them to one over everything."""
    subject = _events_subject(offering_uuid)
    with coalescing.single_flight(self, subject) as locks:
        if locks is None:
            return "another pass is under way and goes once more"
        try:
            told = backlog.waiting(offering_uuid)
        except RedisError as error:
            self.come_back(QueueUnavailable(f"Redis does not tell what events told of: {error}"))
        if told is None:
            return "a pass has covered it already"
        is_whole_due = coalescing.is_due(_subject(offering_uuid))
        if is_whole_cheaper(current.site(offering_uuid, MODE), told.scope, is_whole_due=is_whole_due):
            enqueue_part(offering_uuid)
            return f"{told.scope} are left to a pass over everything"
        report = _sync(offering_uuid, told.scope)
        _settle(self, offering_uuid, told, report)
        if report.held and gate.are_held_apart(current.site(offering_uuid, MODE), MODE):
            # Makes one plan of them, to be read and approved once.
            enqueue_part(offering_uuid)
    return coalescing.finish(self, subject, report)


@app.task(name="membership_sync.rebuild", bind=True)
def rebuild(self: SiteTask, offering_uuid: str) -> object:
    """Make accounts of the offering again that the cluster has lost, for a sync that was forced in Waldur."""
    subject = f"rebuild:{offering_uuid}"
    with coalescing.single_flight(self, subject) as locks:
        if locks is None:
            return "another task is at work on it and goes once more"
        report = run_forced(current.site(offering_uuid, MODE), seconds=PASS_BUDGET_S)
    return coalescing.finish(self, subject, report)


def enqueue_rebuild(offering_uuid: str) -> bool:
    """Queue it for the head node of the offering; False when that waits already. Raises ConfigError when it is not
    ours.
    """
    return _send_once(rebuild, f"rebuild:{offering_uuid}", (offering_uuid,))


def enqueue_part(offering_uuid: str, *, resource_uuid: str = "", project_uuid: str = "") -> bool:
    """Queue one resource, one project or everything for the head node of its offering; False when a task that covers it
    waits already. Raises ConfigError when it is not ours.
    """
    scope = PassScope.of(resource_uuid=resource_uuid, project_uuid=project_uuid)
    if scope.is_everything or not backlog.is_kept():
        arguments = (offering_uuid, resource_uuid, project_uuid)
        return _send_once(part, _subject(str(scope) or offering_uuid), arguments)
    # First of all: a task that begins now either sees it, or has taken its marker away before.
    number = backlog.add(offering_uuid, scope)
    if number > FEW and coalescing.is_due(_subject(offering_uuid)):
        return False
    return _send_once(events, _events_subject(offering_uuid), (offering_uuid,))


def _send_once(task: SiteTask, subject: str, arguments: tuple[str, ...]) -> bool:
    queue = table.queue_name(current.offering(arguments[0]).queue)
    return coalescing.send_once(
        subject,
        lambda: task.apply_async(arguments, queue=queue, priority=broker.priority(table.EVENT_PRIORITY)),
    )


def _sync_all(offering_uuid: str) -> PassReport:
    """Run a pass over everything, which covers what events told of before it. It makes way for orders, and once it has
    taken long for what events tell meanwhile.
    """
    number, began_s = backlog.last_number(offering_uuid), time.monotonic()

    def is_told_of_more() -> bool:
        return time.monotonic() - began_s > EVENTS_WAIT_S and backlog.last_number(offering_uuid) > number

    report = _sync(offering_uuid, PassScope(), is_told_of_more)
    if report.error is None or not report.error.retryable:
        backlog.remove(offering_uuid, number)
    return report


def _sync(offering_uuid: str, scope: PassScope, makes_way: Callable[[], bool] = lambda: False) -> PassReport:
    queue = table.queue_name(current.offering(offering_uuid).queue)
    return passes.sync_members(
        current.site(offering_uuid, MODE),
        scope=scope,
        seconds=PASS_BUDGET_S,
        makes_way=lambda: broker.urgent_waits(queue, table.EVENT_PRIORITY) or makes_way(),
    )


def _settle(task: SiteTask, offering_uuid: str, told: backlog.Told, report: PassReport) -> None:
    """Take what a pass has done out of the backlog. What may work later stays in it, until the task's last attempt:
    all of it where the pass ended early, else the resources and projects that failed.
    """
    error = report.retryable_error
    if report.error is not None and error is not None:
        return
    if error is not None and task.request.retries + 1 < policy_for(error).attempts:
        failed = {each.resource_uuid for each in report.resources if each.result is Result.RETRY}
        projects = told.scope.projects & failed
        again = told.scope if report.later else PassScope(frozenset(failed - projects), projects)
        try:
            backlog.add(offering_uuid, again)
        except RedisError as problem:
            log.debug("all of %s goes once more: %s", told.scope, problem)
            return
    backlog.remove(offering_uuid, told.number)


def _subject(uuid: str) -> str:
    return f"{MODE}:{uuid}"


def _events_subject(offering_uuid: str) -> str:
    return f"{MODE}:events:{offering_uuid}"
