# SPDX-License-Identifier: MIT
"""Membership tasks: the periodic pass over an offering, one resource or project that an event told of, and accounts to
be made again.
"""

from __future__ import annotations

import beat_schedule as table
from agent.config.model import Mode
from agent.run import passes
from agent.run.membership.facts import PassScope
from agent.run.membership.rebuild import run_forced
from tasks import broker, coalescing, current
from tasks.app import app
from tasks.base import SiteTask
from tasks.limits import PASS_BUDGET_S

MODE = Mode.MEMBERSHIP_SYNC


@app.task(name="membership_sync.poll", bind=True)
def poll(self: SiteTask, offering_uuid: str) -> object:
    """Reconcile all resources of the offering. The next task does what does not fit into a task's time, at once."""
    broker.clear_marker(self.name, offering_uuid)
    with coalescing.single_flight(self, _subject(offering_uuid), is_poll=True) as locks:
        if locks is None:
            return "another pass is under way"
        report = passes.sync_members(current.site(offering_uuid, MODE), seconds=PASS_BUDGET_S)
    current.show(offering_uuid, MODE, report)
    return self.finish(report)


@app.task(name="membership_sync.part", bind=True)
def part(self: SiteTask, offering_uuid: str, resource_uuid: str = "", project_uuid: str = "") -> object:
    """Reconcile one resource, one project, or with neither everything. All is read again before anything is done: the
    message was a hint.
    """
    scope = PassScope(resource_uuid, project_uuid)
    subject = _subject(resource_uuid or project_uuid or offering_uuid)
    with coalescing.single_flight(self, subject) as locks:
        if locks is None:
            return "another task is at work on it and goes once more"
        site = current.site(offering_uuid, MODE)
        report = passes.sync_members(site, scope=scope, seconds=PASS_BUDGET_S)
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
    queue = table.queue_name(current.offering(offering_uuid).queue)
    return coalescing.send_once(
        f"rebuild:{offering_uuid}",
        lambda: rebuild.apply_async((offering_uuid,), queue=queue, priority=table.EVENT_PRIORITY),
    )


def enqueue_part(offering_uuid: str, *, resource_uuid: str = "", project_uuid: str = "") -> bool:
    """Queue one resource, one project or everything for the head node of its offering; False when that waits already.
    Raises ConfigError when it is not ours.
    """
    queue = table.queue_name(current.offering(offering_uuid).queue)
    arguments = (offering_uuid, resource_uuid, project_uuid)
    return coalescing.send_once(
        _subject(resource_uuid or project_uuid or offering_uuid),
        lambda: part.apply_async(arguments, queue=queue, priority=table.EVENT_PRIORITY),
    )


def _subject(uuid: str) -> str:
    return f"{MODE}:{uuid}"
