# SPDX-License-Identifier: MIT
"""Turn each job of the bridge into a task on the queue of its offering's head node."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any

from kombu.exceptions import OperationalError
from redis import RedisError

import beat_schedule as table
from agent.config.model import Mode
from agent.core.errors import ClusterBusy, SiteAgentError
from agent.core.events import Job, JobKind, QueueUnavailable
from agent.core.retries import policy_for
from agent.run.imports import mode as imports
from agent.run.keys import api_keys
from agent.run.periodic import mode as periodic_limits
from agent.run.periodic import parking
from tasks import current, membership, orders, sites
from tasks.app import app
from tasks.base import SiteTask, enqueue
from tasks.queue import broker, heartbeats

log = logging.getLogger(__name__)

MODE_OF: Mapping[JobKind, Mode] = {
    JobKind.ORDERS: Mode.ORDER_PROCESS,
    JobKind.MEMBERSHIP: Mode.MEMBERSHIP_SYNC,
    JobKind.REBUILD: Mode.MEMBERSHIP_SYNC,
}
# What is done again when messages may be lost.
FULL_PASS = (JobKind.ORDERS, JobKind.MEMBERSHIP)


class TaskQueue:
    """The outbox of the bridge."""

    def __init__(self) -> None:
        # How many heartbeats Redis had counted, by offering.
        self._heartbeats: dict[str, int] = {}

    def send(self, job: Job) -> bool:
        """Queue the job; False when one like it waits already, or the offering has no backend for it. Raises
        QueueUnavailable, and ConfigError when the offering is not ours.
        """
        mode, offering = MODE_OF.get(job.kind), current.offering(job.offering_uuid)
        if mode is not None and (not offering.backend_of(mode) or mode in offering.stopped):
            return False
        try:
            return _enqueue(job)
        except (OperationalError, RedisError, OSError) as error:
            raise QueueUnavailable(f"the queue takes no tasks: {error}") from error

    def send_heartbeat(self, offering_uuid: str, modes: Iterable[Mode]) -> None:
        """Report to beat which modes of an offering need no short polls for now. Raises QueueUnavailable.

        Where Redis has lost data (it came back empty, or from an old file), acknowledged messages are lost with it,
        and all modes are queued once.
        """
        count = heartbeats.send_heartbeat(broker.here().store, offering_uuid, modes)
        if 0 < count <= self._heartbeats.get(offering_uuid, 0):
            for kind in FULL_PASS:
                self.send(Job(kind, offering_uuid))
            log.warning(
                "Redis has lost data, queued tasks as well: all orders and members of offering %s are read again",
                offering_uuid,
            )
        self._heartbeats[offering_uuid] = count


def queue_full_passes(offering_uuid: str, modes: Set[Mode]) -> None:
    """Queue a full pass of each of these modes, of orders and members. Raises QueueUnavailable."""
    for kind in FULL_PASS:
        if MODE_OF[kind] in modes:
            TaskQueue().send(Job(kind, offering_uuid))


@app.task(name="events.import_resources", bind=True)
def import_resources(self: SiteTask, offering_uuid: str, request_uuid: str) -> str:
    """Offer the cluster's accounts without a resource in Waldur for import."""
    with _alone(self, f"import:{offering_uuid}"):
        return imports.run(sites.site(offering_uuid, Mode.ORDER_PROCESS), request_uuid)


@app.task(name="events.periodic_limits", bind=True)
def set_periodic_limits(self: SiteTask, offering_uuid: str, document: dict[str, Any]) -> list[str]:
    """Set the limits that a policy computed, and report the result to Waldur; a failure at the last attempt. In a pause
    they are kept for the next pass over orders.
    """
    offering = current.offering(offering_uuid)
    try:
        with _locked(f"periodic_limits:{document.get('resource_uuid')}"):
            return periodic_limits.run(sites.site(offering_uuid, Mode.ORDER_PROCESS), document)
    except SiteAgentError as error:
        is_last = self.request.retries + 1 >= policy_for(error).attempts
        if is_last or not error.retryable:
            periodic_limits.report_failure(offering, current.settings().state_dir, document, error)
        if error.retryable:
            self.come_back(error)
        raise


@app.task(name="events.rotate_key", bind=True)
def rotate_key(self: SiteTask, offering_uuid: str, key_uuid: str) -> str:
    """Answer what Waldur wants of a key, for no backend makes any."""
    with _alone(self, f"key:{key_uuid}"):
        return api_keys.answer(sites.site(offering_uuid, Mode.ORDER_PROCESS), key_uuid)


@contextmanager
def _locked(subject: str) -> Iterator[None]:
    """Hold the key of a subject for the body. Raises ClusterBusy."""
    with broker.queue().at_work(subject) as is_ours:
        if not is_ours:
            raise ClusterBusy(f"{subject} is being worked on by another task")
        yield


@contextmanager
def _alone(task: SiteTask, subject: str) -> Iterator[None]:
    """Run the body under a lock; retry the task where the lock is taken or an error may pass."""
    try:
        with _locked(subject):
            yield
    except SiteAgentError as error:
        if error.retryable:
            task.come_back(error)
        raise


def _enqueue(job: Job) -> bool:
    """Queue a job; False when one like it waits already. Raises QueueUnavailable and what kombu raises."""
    offering_uuid, argument, priority = job.offering_uuid, job.request_uuid, table.EVENT_PRIORITY
    match job.kind:
        case JobKind.ORDERS:
            return orders.enqueue_orders(offering_uuid)
        case JobKind.MEMBERSHIP:
            return membership.enqueue_part(
                offering_uuid, resource_uuid=job.resource_uuid, project_uuid=job.project_uuid
            )
        case JobKind.REBUILD:
            return membership.enqueue_rebuild(offering_uuid)
        case JobKind.IMPORT:
            return enqueue(import_resources, f"asked:import:{argument}", (offering_uuid, argument), priority)
        case JobKind.KEY_ROTATION:
            return enqueue(rotate_key, f"asked:key:{argument}", (offering_uuid, argument), priority)
        case JobKind.PERIODIC_LIMITS:
            # The message itself is the task's argument; the same one again is not queued again.
            document = dict(job.document)
            name = f"asked:periodic_limits:{parking.digest(document)}"
            return enqueue(set_periodic_limits, name, (offering_uuid, document), priority)
