# SPDX-License-Identifier: MIT
"""What events mean: each job of the bridge becomes a task on the queue of its offering's head node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kombu.exceptions import OperationalError
from redis import RedisError

from agent.config.model import Mode
from agent.core.events import Job, JobKind, QueueUnavailable
from tasks import current, membership, orders, signs

MODE_OF: Mapping[JobKind, Mode] = {
    JobKind.ORDERS: Mode.ORDER_PROCESS,
    JobKind.MEMBERSHIP: Mode.MEMBERSHIP_SYNC,
}


class TaskQueue:
    """The bridge's outbox."""

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

    def renew(self, offering_uuid: str, modes: Iterable[Mode]) -> None:
        """Tell beat which modes of an offering need no short polls for now. Raises QueueUnavailable."""
        signs.renew(offering_uuid, modes)


def _membership(job: Job) -> bool:
    return membership.enqueue_part(
        job.offering_uuid, resource_uuid=job.resource_uuid, project_uuid=job.project_uuid
    )


SENDERS: Mapping[JobKind, Callable[[Job], bool]] = {
    JobKind.ORDERS: lambda job: orders.enqueue_orders(job.offering_uuid),
    JobKind.MEMBERSHIP: _membership,
}
