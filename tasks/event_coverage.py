# SPDX-License-Identifier: MIT
"""The bridges' signs of life in the broker's Redis: which modes of an offering need no short polls for now.

They are counted there: a count that does not grow says that Redis has forgotten what it held, tasks as well. With
another broker there are none, and all polls run.
"""

from __future__ import annotations

from collections.abc import Iterable

from redis import RedisError

from agent.config.model import Mode
from agent.core.events import QueueUnavailable
from agent.run import event_coverage
from tasks import broker

SIGN, COUNT = "site-bridge:", "site-bridge-signs:"
COUNT_KEPT_S = 86_400


def renew(offering_uuid: str, modes: Iterable[Mode]) -> int:
    """Tell beat; how many signs Redis remembers, of all bridges of the offering, and 0 with another broker. Raises
    QueueUnavailable.
    """
    if not broker.uses_redis():
        return 0
    told, key = ",".join(sorted(modes)), COUNT + offering_uuid
    try:
        pipeline = broker.client().pipeline()
        pipeline.incr(key).expire(key, COUNT_KEPT_S)
        pipeline.set(SIGN + offering_uuid, told, px=int(1000 * event_coverage.VALID_S))
        return int(pipeline.execute()[0])
    except RedisError as error:
        raise QueueUnavailable(f"no sign of life: {error}") from error


def of(offering_uuid: str) -> frozenset[Mode]:
    """The modes for which a bridge listens now. Raises RedisError."""
    if not broker.uses_redis():
        return frozenset()
    told = (broker.client().get(SIGN + offering_uuid) or b"").decode().split(",")
    return frozenset(mode for mode in Mode if mode in told)
