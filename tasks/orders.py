# SPDX-License-Identifier: MIT
"""Order tasks: the periodic pass over an offering, the orders that events told of, and one order."""

from __future__ import annotations

import beat_schedule as table
from agent.config.model import Mode
from agent.core.errors import ClusterBusy
from agent.run import passes
from agent.run.event_coverage import modes_by_events
from agent.run.results import PassReport
from tasks import broker, coalescing, current, membership
from tasks.app import app
from tasks.base import SiteTask
from tasks.locks import held

MODE = Mode.ORDER_PROCESS


@app.task(name="order_process.poll", bind=True)
def poll(self: SiteTask, offering_uuid: str) -> object:
    """Process all orders of the offering that wait for the agent, as one batch."""
    broker.clear_marker(self.name, offering_uuid)
    with coalescing.single_flight(self, _subject(offering_uuid), is_poll=True) as locks:
        if locks is None:
            return "another pass is under way"
        report = passes.process_orders(current.site(offering_uuid, MODE), lock=locks.take)
    add_members(offering_uuid, report)
    current.show(offering_uuid, MODE, report)
    return self.finish(report)


@app.task(name="order_process.events", bind=True)
def events(self: SiteTask, offering_uuid: str) -> object:
    """Process all orders that wait, since events told of some: a burst of events is one batch, as in a poll."""
    with coalescing.single_flight(self, _subject(offering_uuid)) as locks:
        if locks is None:
            return "another pass is under way and goes once more"
        report = passes.process_orders(current.site(offering_uuid, MODE), lock=locks.take)
    add_members(offering_uuid, report)
    return coalescing.finish(self, _subject(offering_uuid), report)


def enqueue_orders(offering_uuid: str) -> bool:
    """Queue a pass over the orders of an offering for its head node; False when one waits already. Raises ConfigError
    when the offering is not ours.
    """
    queue = table.queue_name(current.offering(offering_uuid).queue)
    return coalescing.send_once(
        _subject(offering_uuid),
        lambda: events.apply_async(
            (offering_uuid,), queue=queue, priority=broker.priority(table.PRIORITY_OF[MODE])
        ),
    )


@app.task(name="order_process.order", bind=True)
def order(self: SiteTask, offering_uuid: str, order_uuid: str) -> object:
    """Process one order, read again before anything is done: the message was a hint."""
    with held(broker.locks()) as locks:
        if not locks.take(f"order:{order_uuid}"):
            self.come_back(ClusterBusy(f"order {order_uuid} is being worked on by another task"))
        report = passes.process_orders(current.site(offering_uuid, MODE), order_uuid=order_uuid)
    add_members(offering_uuid, report)
    return self.finish(report)


def enqueue_order(offering_uuid: str, order_uuid: str) -> None:
    """Queue one order for the head node of its offering. Raises ConfigError when the offering is not ours."""
    queue = table.queue_name(current.offering(offering_uuid).queue)
    order.apply_async(
        (offering_uuid, order_uuid), queue=queue, priority=broker.priority(table.PRIORITY_OF[MODE])
    )


def add_members(offering_uuid: str, report: PassReport) -> None:
    """Queue a membership pass for what orders made without its people: Waldur names these only once it is OK. Where
    events replace polls, for all that orders made: no event tells who joined while it was.
    """
    if not report.resources_made or not current.offering(offering_uuid).backend_of(Mode.MEMBERSHIP_SYNC):
        return
    is_told = Mode.MEMBERSHIP_SYNC in modes_by_events(current.offering(offering_uuid))
    for resource_uuid in report.resources_made if is_told else report.members_due:
        membership.enqueue_part(offering_uuid, resource_uuid=resource_uuid)


def _subject(offering_uuid: str) -> str:
    return f"{MODE}:{offering_uuid}"
