# SPDX-License-Identifier: MIT
"""The bridges' signs of life in the broker's Redis: which modes of an offering need no short polls for now.

With another broker there are none, and all polls run.
"""

from __future__ import annotations

from collections.abc import Iterable

from redis import RedisError

from agent.config.model import Mode
from agent.core.events import QueueUnavailable
from agent.run import signs_of_life
from tasks import broker

SIGN = "site-bridge:"


def renew(offering_uuid: str, modes: Iterable[Mode]) -> None:
    """Tell beat. Raises QueueUnavailable."""
    if not broker.uses_redis():
        return
    told = ",".join(sorted(modes))
    try:
        broker.client().set(SIGN + offering_uuid, told, px=int(1000 * signs_of_life.VALID_S))
    except RedisError as error:
        raise QueueUnavailable(f"no sign of life: {error}") from error


def of(offering_uuid: str) -> frozenset[Mode]:
    """The modes for which a bridge listens now. Raises RedisError."""
    if not broker.uses_redis():
        return frozenset()
    told = (broker.client().get(SIGN + offering_uuid) or b"").decode().split(",")
    return frozenset(mode for mode in Mode if mode in told)
