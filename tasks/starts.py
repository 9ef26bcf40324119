# SPDX-License-Identifier: MIT
"""How often a task was begun and not ended: one that ends each worker (killed for its memory, a crash of a library)
would come back for ever.

Only what the broker hands out again is counted, in its Redis.
"""

from __future__ import annotations

import json
import logging
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


def check(task: str, args: tuple[Any, ...], request: Any) -> None:
    """Count this start of a task. Raises EndsWorkers when it was begun too often."""
    delivery = request.delivery_info or {}
    if not delivery.get("redelivered") or not broker.uses_redis():
        return
    key = f"{COUNT}{request.id}"
    try:
        count = broker.client().pipeline().incr(key).expire(key, COUNT_TTL_S).execute()[0]
    except RedisError as error:
        log.debug("the starts of %s cannot be counted: %s", request.id, error)
        return
    if count <= STARTS_AT_MOST:
        return
    body = json.dumps({"task": task, "id": request.id, "args": args}).encode()
    reason = f"{task} was begun {STARTS_AT_MOST} times and ended its worker each time"
    kept = refusals.keep(str(delivery.get("routing_key")), body, reason)
    raise EndsWorkers(
        f"{reason}, so it is not begun again: look for the kernel's OOM killer or a crash at these times; the next "
        f"poll does the same work; {kept}"
    )
