# SPDX-License-Identifier: MIT
"""What events mean: each job of the bridge becomes a task on the queue of its offering's head node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kombu.exceptions import OperationalError
from redis import RedisError

from agent.config.model import Mode
from agent.core.events import Job, JobKind, QueueUnavailable
from agent.run import signs_of_life
from tasks import broker, current, membership, orders

SIGN = "site-bridge:"
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
        if not broker.uses_redis():
            return
        try:
            broker.client().set(
                SIGN + offering_uuid, ",".join(sorted(modes)), px=int(1000 * signs_of_life.VALID_S)
            )
        except RedisError as error:
            raise QueueUnavailable(f"no sign of life: {error}") from error


def signs(offering_uuids: Iterable[str]) -> dict[str, frozenset[Mode]]:
    """The modes for which a bridge listens now, by offering. Raises RedisError."""
    uuids = list(offering_uuids)
    if not uuids or not broker.uses_redis():
        return {}
    found = broker.client().mget([SIGN + uuid for uuid in uuids])
    return {uuid: _modes(value) for uuid, value in zip(uuids, found, strict=True)}


def _modes(value: bytes | None) -> frozenset[Mode]:
    told = (value or b"").decode().split(",")
    return frozenset(mode for mode in Mode if mode in told)


def _membership(job: Job) -> bool:
    return membership.enqueue_part(
        job.offering_uuid, resource_uuid=job.resource_uuid, project_uuid=job.project_uuid
    )


SENDERS: Mapping[JobKind, Callable[[Job], bool]] = {
    JobKind.ORDERS: lambda job: orders.enqueue_orders(job.offering_uuid),
    JobKind.MEMBERSHIP: _membership,
}
