# SPDX-License-Identifier: MIT
"""What events mean: each job of the bridge becomes a task on the queue of its offering's head node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kombu.exceptions import OperationalError
from redis import RedisError

import beat_schedule as table
from agent.config.model import Mode
from agent.core.errors import ClusterBusy, SiteAgentError
from agent.core.events import Job, JobKind, QueueUnavailable
from agent.run import api_keys
from agent.run.imports import mode as imports
from agent.run.periodic import mode as periodic_limits
from tasks import broker, coalescing, current, event_coverage, membership, orders
from tasks.app import app
from tasks.base import SiteTask, policy_for
from tasks.locks import held

log = logging.getLogger(__name__)

MODE_OF: Mapping[JobKind, Mode] = {
    JobKind.ORDERS: Mode.ORDER_PROCESS,
    JobKind.MEMBERSHIP: Mode.MEMBERSHIP_SYNC,
}


class TaskQueue:
    """The bridge's outbox."""

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
            return SENDERS[job.kind](job)
        except (OperationalError, RedisError, OSError) as error:
            raise QueueUnavailable(f"the queue takes no tasks: {error}") from error

    def send_heartbeat(self, offering_uuid: str, modes: Iterable[Mode]) -> None:
        """Tell beat which modes of an offering need no short polls for now. Where Redis has lost what it held (it came
        back empty, or from an old file), acknowledged messages are lost with it, and everything is looked at once.
        Raises QueueUnavailable.
        """
        count = event_coverage.renew(offering_uuid, modes)
        if 0 < count <= self._heartbeats.get(offering_uuid, 0):
            for kind in MODE_OF:
                self.send(Job(kind, offering_uuid))
            log.warning(
                "Redis has lost what it held, queued tasks as well: everything of offering %s is looked at once",
                offering_uuid,
            )
        self._heartbeats[offering_uuid] = count


@app.task(name="events.import_resources", bind=True)
def import_resources(self: SiteTask, offering_uuid: str, request_uuid: str) -> str:
    """Offer for import what stands on the cluster without a resource in Waldur."""
    with _alone(self, f"import:{offering_uuid}"):
        return imports.run(current.site(offering_uuid, Mode.ORDER_PROCESS), request_uuid)


@app.task(name="events.periodic_limits", bind=True)
def set_periodic_limits(self: SiteTask, offering_uuid: str, document: dict[str, Any]) -> list[str]:
    """Set what a policy computed; it is told what came of it, when there is no further attempt as well."""
    offering = current.offering(offering_uuid)
    try:
        with _locked(f"periodic_limits:{document.get('resource_uuid')}"):
            return periodic_limits.run(current.site(offering_uuid, Mode.ORDER_PROCESS), document)
    except SiteAgentError as error:
        if not error.retryable or _is_last_attempt(self, error):
            periodic_limits.report_failure(offering, current.settings().state_dir, document, error)
        if error.retryable:
            self.come_back(error)
        raise


@app.task(name="events.rotate_key", bind=True)
def rotate_key(self: SiteTask, offering_uuid: str, key_uuid: str) -> str:
    """No backend here makes keys: Waldur is told, so that nobody waits for one."""
    with _alone(self, f"key:{key_uuid}"):
        return api_keys.refuse(current.site(offering_uuid, Mode.ORDER_PROCESS), key_uuid)


def _is_last_attempt(task: SiteTask, error: SiteAgentError) -> bool:
    return bool(task.request.retries + 1 >= policy_for(error).attempts)


@contextmanager
def _locked(subject: str) -> Iterator[None]:
    """Raises ClusterBusy."""
    with held(broker.locks()) as locks:
        if not locks.take(subject):
            raise ClusterBusy(f"{subject} is being worked on by another task")
        yield


@contextmanager
def _alone(task: SiteTask, subject: str) -> Iterator[None]:
    """The body under a lock; it comes back where the lock is taken, or an error may pass."""
    try:
        with _locked(subject):
            yield
    except SiteAgentError as error:
        if error.retryable:
            task.come_back(error)
        raise


def _membership(job: Job) -> bool:
    return membership.enqueue_part(
        job.offering_uuid, resource_uuid=job.resource_uuid, project_uuid=job.project_uuid
    )


def _import(job: Job) -> bool:
    return _sent_once(import_resources, (job.offering_uuid, job.request_uuid), f"import:{job.request_uuid}")


def _key_rotation(job: Job) -> bool:
    return _sent_once(rotate_key, (job.offering_uuid, job.request_uuid), f"key:{job.request_uuid}")


def _periodic_limits(job: Job) -> bool:
    """The message itself is the task's argument; the same one again is not queued again."""
    document = dict(job.document)
    subject = f"periodic_limits:{periodic_limits.digest(document)}"
    return _sent_once(set_periodic_limits, (job.offering_uuid, document), subject)


def _sent_once(task: SiteTask, arguments: tuple[Any, ...], subject: str) -> bool:
    queue = table.queue_name(current.offering(arguments[0]).queue)
    return coalescing.send_once(
        subject, lambda: task.apply_async(arguments, queue=queue, priority=table.EVENT_PRIORITY)
    )


SENDERS: Mapping[JobKind, Callable[[Job], bool]] = {
    JobKind.ORDERS: lambda job: orders.enqueue_orders(job.offering_uuid),
    JobKind.MEMBERSHIP: _membership,
    JobKind.IMPORT: _import,
    JobKind.PERIODIC_LIMITS: _periodic_limits,
    JobKind.KEY_ROTATION: _key_rotation,
}
