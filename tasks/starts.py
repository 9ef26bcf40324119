# SPDX-License-Identifier: MIT
"""How often a task was begun and not ended: one that ends each worker (killed for its memory, a crash of a library)
would come back for ever.

Counted in the broker's Redis from the start of a task to its end, whatever the broker says of a message: one that it
hands out again may have waited in a worker that was killed, and was not begun there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import RedisError

from agent.core.errors import SiteAgentError
from tasks import broker, refusals
from tasks.limits import STARTS_AT_MOST

log = logging.getLogger(__name__)

COUNT = "site-starts:"
COUNT_TTL_S = 86_400


class EndsWorkers(SiteAgentError):
    """A task that no worker has lived to end."""


@contextmanager
def counted(task: str, args: tuple[Any, ...], request: Any) -> Iterator[None]:
    """Count this start of a task until the body ends, well or with an error. Raises EndsWorkers when it was begun
    STARTS_AT_MOST times before and never ended. What was not handed out by a broker is not counted.
    """
    if not request.delivery_info or request.is_eager or not broker.uses_redis():
        yield
        return
    key = f"{COUNT}{request.id}"
    _refuse_hopeless(key, task, args, request)
    try:
        yield
    finally:
        try:
            broker.client().delete(key)
        except RedisError as error:
            log.debug("the starts of %s are forgotten in a day: %s", request.id, error)


def _refuse_hopeless(key: str, task: str, args: tuple[Any, ...], request: Any) -> None:
    try:
        count = broker.client().pipeline().incr(key).expire(key, COUNT_TTL_S).execute()[0]
    except RedisError as error:
        log.debug("the starts of %s cannot be counted: %s", request.id, error)
        return
    if count <= STARTS_AT_MOST:
        return
    body = json.dumps({"task": task, "id": request.id, "args": args}).encode()
    reason = f"{task} was begun {STARTS_AT_MOST} times and ended its worker each time"
    kept = refusals.keep(str((request.delivery_info or {}).get("routing_key")), body, reason)
    raise EndsWorkers(
        f"{reason}, so it is not begun again: look for the kernel's OOM killer or a crash at these times; the next "
        f"poll does the same work; {kept}"
    )
