# SPDX-License-Identifier: MIT
"""The status of each month of a run: written by workers, read by the loader, one Redis hash for each run.

The hash expires. Without it only the news is lost: a month whose end nobody has heard of is sent again, and submits
nothing that Waldur has already.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from redis import RedisError

from agent.core.bounded_json import read_json
from agent.run.backfill.results import Ending, MonthOutcome

log = logging.getLogger(__name__)

PREFIX = "site-backfill:"
TTL_S = 7 * 24 * 3600


class MonthState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class MonthStatus:
    """One month. `detail`: the worker that runs it, or why it waits. `outcome`: what was done of it so far."""

    state: MonthState
    detail: str = ""
    outcome: MonthOutcome | None = None

    @property
    def is_done(self) -> bool:
        return self.has_ended and self.outcome is not None and self.outcome.ending is Ending.DONE

    @property
    def has_ended(self) -> bool:
        return self.state is MonthState.ENDED

    def dump(self) -> str:
        outcome = self.outcome.as_json() if self.outcome else None
        return json.dumps(
            {"state": self.state, "detail": self.detail, "outcome": outcome}, ensure_ascii=False
        )

    @classmethod
    def parse(cls, text: bytes | str) -> MonthStatus:
        """Read what `dump` wrote. Raises ValueError, KeyError, TypeError or AttributeError for anything else."""
        document = read_json(text)
        outcome = document.get("outcome")
        return cls(
            MonthState(document["state"]),
            str(document.get("detail", "")),
            MonthOutcome.from_json(outcome) if outcome else None,
        )


class RunStatus:
    """The statuses of one run. `client` is any redis-py client."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._key = PREFIX + run_id

    def read(self, months: Iterable[str]) -> dict[str, MonthStatus]:
        """Return the statuses of these months; without those that are not written or damaged. Raises RedisError."""
        names = list(months)
        texts = self._client.hmget(self._key, names) if names else []
        found = {}
        for name, text in zip(names, texts, strict=True):
            if text is None:
                continue
            try:
                found[name] = MonthStatus.parse(text)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        return found

    def write(self, statuses: Mapping[str, MonthStatus]) -> None:
        """Write these statuses. Raises RedisError."""
        if statuses:
            pipe = self._client.pipeline()
            pipe.hset(self._key, mapping={name: status.dump() for name, status in statuses.items()})
            pipe.expire(self._key, TTL_S)
            pipe.execute()

    def try_write(self, month: str, status: MonthStatus) -> None:
        """Write a status from a worker: an outage of the broker stops no month."""
        try:
            self.write({month: status})
        except RedisError as error:
            log.warning("the loader cannot be told of %s (%s): %s", month, status.state, error)

    def try_read(self, month: str) -> MonthStatus | None:
        """Return a status for a worker; None as well where Redis does not answer."""
        try:
            return self.read([month]).get(month)
        except RedisError as error:
            log.debug("the status of %s cannot be read: %s", month, error)
            return None
