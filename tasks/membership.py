# SPDX-License-Identifier: MIT
"""Membership tasks: the periodic pass over an offering, the resources and projects that events named, and accounts to
be made again.

The projects and resources of several events are put together, and one task takes all of it: a burst is a few passes.
Where so much of it waits that a pass over everything costs less, or where one waits anyway, that covers it.

One pass of an offering is at work at a time, as of orders: one over everything and one over a part of it would both
plan the same change, and of what the former has read too early the latter would see nothing to correct.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import beat_schedule as table
from agent.config.model import Mode
from agent.core.account_names import uuid_hex
from agent.core.events import QueueUnavailable
from agent.core.retries import policy_for
from agent.core.scope import PassScope
from agent.run import gate, passes
from agent.run.membership.rebuild import run_forced
from agent.run.results import PassReport, Result
from agent.run.waldur_facts import ALWAYS_SINGLE_READS, is_whole_cheaper
from tasks import current, sites
from tasks.app import app
from tasks.base import SiteTask, enqueue
from tasks.limits import PASS_BUDGET_S
from tasks.queue import broker

log = logging.getLogger(__name__)

MODE = Mode.MEMBERSHIP_SYNC
# A pass over everything that takes longer yields to events that came in that time.
EVENTS_WAIT_S = 10.0
# What an event named, in a message and among the records of the queue: `project:UUID`.
PROJECT, RESOURCE = "project", "resource"


@app.task(name="membership_sync.poll", bind=True)
def poll(self: SiteTask, offering_uuid: str) -> object:
    """Reconcile all resources of the offering. The next task does what does not fit into a task's time, at once."""
    broker.queue().forget(table.polled(self.name, offering_uuid))
    with self.at_work(_key(offering_uuid), is_poll=True) as is_ours:
        if not is_ours:
            return "another pass is under way"
        report = _sync_all(offering_uuid)
    sites.show(offering_uuid, MODE, report)
    return self.finish(report)


@app.task(name="membership_sync.whole", bind=True)
def whole(self: SiteTask, offering_uuid: str) -> object:
    """Reconcile all resources of the offering, since an event asked for it."""
    key = _key(offering_uuid)
    with self.at_work(key) as is_ours:
        if not is_ours:
            return "another pass is under way and goes once more"
        report = _sync_all(offering_uuid)
    return self.finish(report, key)


@app.task(name="membership_sync.events", bind=True)
def events(self: SiteTask, offering_uuid: str, entries: Sequence[str]) -> object:
    """Reconcile the projects and resources that events named, in one pass, or leave them to one over everything. They
    are among the records of the queue; `entries` are those of a broker that keeps none.
    """
    key = _events_key(offering_uuid)
    with self.at_work(_key(offering_uuid), part=key) as is_ours:
        if not is_ours:
            return "another pass is under way and goes once more"
        changed = broker.queue().changed(offering_uuid) or dict.fromkeys(entries, "")
        report = _sync_changed(self, offering_uuid, changed)
    return self.finish(report, key) if isinstance(report, PassReport) else report


@app.task(name="membership_sync.rebuild", bind=True)
def rebuild(self: SiteTask, offering_uuid: str) -> object:
    """Make accounts of the offering again that the cluster has lost, for a sync that was forced in Waldur."""
    key = f"rebuild:{offering_uuid}"
    with self.at_work(key) as is_ours:
        if not is_ours:
            return "another task is at work on it and goes once more"
        report = run_forced(sites.site(offering_uuid, MODE), seconds=PASS_BUDGET_S)
    return self.finish(report, key)


def enqueue_rebuild(offering_uuid: str) -> bool:
    """Queue it for the head node of the offering; False when that waits already. Raises ConfigError when it is not
    ours.
    """
    return enqueue(rebuild, f"asked:rebuild:{offering_uuid}", (offering_uuid,), table.EVENT_PRIORITY)


def enqueue_part(offering_uuid: str, *, resource_uuid: str = "", project_uuid: str = "") -> bool:
    """Queue one resource, one project or everything for the head node of its offering; False when a task that covers it
    waits already. Raises ConfigError when it is not ours.
    """
    scope = PassScope.of(resource_uuid=resource_uuid, project_uuid=project_uuid)
    if scope.is_everything:
        return enqueue(whole, f"asked:{_key(offering_uuid)}", (offering_uuid,), table.EVENT_PRIORITY)
    queue, entries, recorded = broker.queue(), _entries(scope), []
    if broker.here().store.knows_queue:
        # First of all: a task that begins now either sees it, or has taken its record away before.
        count = queue.add_changed(offering_uuid, entries)
        entries, recorded = [], entries
        if count > ALWAYS_SINGLE_READS and queue.waits(_key(offering_uuid)):
            return False
    name = f"asked:{_events_key(offering_uuid)}"
    return enqueue(events, name, (offering_uuid, entries), table.EVENT_PRIORITY, about=recorded)


def _sync_all(offering_uuid: str) -> PassReport:
    """Run a pass over everything, which covers what events named before it. It yields to orders, and once it has taken
    long to events that came in that time.
    """
    queue, began_s = broker.queue(), time.monotonic()

    def changed() -> Mapping[str, str]:
        try:
            return queue.changed(offering_uuid)
        except QueueUnavailable as error:
            log.debug("what events named of offering %s is not known: %s", offering_uuid, error)
            return {}

    def has_more_changed() -> bool:
        return time.monotonic() - began_s > EVENTS_WAIT_S and bool(changed().items() - seen.items())

    # The message of earlier events may have become this pass: what is named from here on needs one of its own.
    queue.forget(f"asked:{_events_key(offering_uuid)}")
    seen = changed()
    report = _sync(offering_uuid, PassScope(), has_more_changed)
    if report.error is None or not report.error.retryable:
        queue.cover(offering_uuid, seen)
    return report


def _sync_changed(task: SiteTask, offering_uuid: str, changed: Mapping[str, str]) -> PassReport | str:
    """Run a pass over what events named; or return why there is none."""
    if not changed:
        return "a pass has covered it already"
    site, scope = sites.site(offering_uuid, MODE), _scope(changed)
    is_whole_due = broker.queue().is_due(_key(offering_uuid), whole.name)
    if is_whole_cheaper(site, scope, is_whole_due=is_whole_due):
        enqueue_part(offering_uuid)
        return f"{scope} are left to a pass over everything"
    report = _sync(offering_uuid, scope)
    if broker.here().store.knows_queue:
        _cover(task, offering_uuid, changed, report)
    if report.held and gate.are_held_apart(site, MODE):
        # Makes one plan of them, to be read and approved once.
        enqueue_part(offering_uuid)
    return report


def _sync(offering_uuid: str, scope: PassScope, must_yield: Callable[[], bool] = lambda: False) -> PassReport:
    queue = table.queue_name(current.offering(offering_uuid).queue)
    return passes.sync_members(
        sites.site(offering_uuid, MODE),
        scope=scope,
        seconds=PASS_BUDGET_S,
        must_yield=lambda: broker.here().urgent_waits(queue, table.EVENT_PRIORITY) or must_yield(),
    )


def _cover(task: SiteTask, offering_uuid: str, changed: Mapping[str, str], report: PassReport) -> None:
    """Remove what a pass has done from what events named. What may work later stays, until the task's last attempt:
    all of it where the pass ended early, else the resources and projects that failed.
    """
    queue, error = broker.queue(), report.retryable_error
    if report.error is not None and error is not None:
        return
    if error is not None and task.request.retries + 1 < policy_for(error).attempts:
        failed = {each.resource_uuid for each in report.resources if each.result is Result.RETRY}
        scope = _scope(changed)
        projects = scope.projects & failed
        again = scope if report.later else PassScope(frozenset(failed - projects), projects)
        try:
            queue.add_changed(offering_uuid, _entries(again))
        except QueueUnavailable as problem:
            log.debug("all of %s goes once more: %s", scope, problem)
            return
    queue.cover(offering_uuid, changed)


def _entries(scope: PassScope) -> list[str]:
    kinds = ((PROJECT, scope.projects), (RESOURCE, scope.resources))
    return [f"{kind}:{uuid}" for kind, uuids in kinds for uuid in sorted(uuids)]


def _scope(entries: Iterable[str]) -> PassScope:
    """Return the scope of entries, without those that no process of the agent has made."""
    found: dict[str, set[str]] = {PROJECT: set(), RESOURCE: set()}
    for entry in entries:
        kind, _, uuid = entry.partition(":")
        try:
            found[kind].add(uuid_hex(uuid))
        except (KeyError, ValueError):
            log.warning("%.80r is neither a project nor a resource that an event named", entry)
    return PassScope(resources=frozenset(found[RESOURCE]), projects=frozenset(found[PROJECT]))


def _key(offering_uuid: str) -> str:
    return f"{MODE}:{offering_uuid}"


def _events_key(offering_uuid: str) -> str:
    """Return the key by which events are queued and come back; their work is that of `_key`."""
    return f"{MODE}:events:{offering_uuid}"
