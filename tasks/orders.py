# SPDX-License-Identifier: MIT
"""Order tasks: the periodic pass over an offering, and the orders that events named."""

from __future__ import annotations

from contextlib import ExitStack

import beat_schedule as table
from agent.config.model import Mode
from agent.run import passes
from agent.run.results import PassReport
from agent.run.service.event_coverage import modes_by_events
from tasks import current, membership, sites
from tasks.app import app
from tasks.base import SiteTask, enqueue
from tasks.queue import broker

MODE = Mode.ORDER_PROCESS


@app.task(name="order_process.poll", bind=True)
def poll(self: SiteTask, offering_uuid: str) -> object:
    """Process all orders of the offering that wait for the agent, as one batch."""
    broker.queue().forget(table.polled(self.name, offering_uuid))
    with self.at_work(_key(offering_uuid), is_poll=True) as is_ours:
        if not is_ours:
            return "another pass is under way"
        report = _process(offering_uuid)
    sites.show(offering_uuid, MODE, report)
    return self.finish(report)


@app.task(name="order_process.events", bind=True)
def events(self: SiteTask, offering_uuid: str) -> object:
    """Process all orders that wait, since events named some: a burst of events is one batch, as in a poll."""
    with self.at_work(_key(offering_uuid)) as is_ours:
        if not is_ours:
            return "another pass is under way and goes once more"
        report = _process(offering_uuid)
    return self.finish(report, _key(offering_uuid))


def enqueue_orders(offering_uuid: str) -> bool:
    """Queue a pass over the orders of an offering for its head node; False when one waits already. Raises ConfigError
    when the offering is not ours.
    """
    return enqueue(events, f"asked:{_key(offering_uuid)}", (offering_uuid,), table.PRIORITY_OF[MODE])


def _process(offering_uuid: str) -> PassReport:
    with ExitStack() as held:
        report = passes.process_orders(
            sites.site(offering_uuid, MODE),
            lock=lambda key: held.enter_context(broker.queue().at_work(key)),
        )
    add_members(offering_uuid, report)
    return report


def add_members(offering_uuid: str, report: PassReport) -> None:
    """Queue a membership pass for what orders made without its people: Waldur names these only once it is OK. Where
    events replace polls, for all that orders made: no event says who joined in that time.
    """
    if not report.resources_made or not current.offering(offering_uuid).backend_of(Mode.MEMBERSHIP_SYNC):
        return
    is_by_events = Mode.MEMBERSHIP_SYNC in modes_by_events(current.offering(offering_uuid))
    for resource_uuid in report.resources_made if is_by_events else report.members_due:
        membership.enqueue_part(offering_uuid, resource_uuid=resource_uuid)


def _key(offering_uuid: str) -> str:
    return f"{MODE}:{offering_uuid}"
