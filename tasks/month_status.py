# SPDX-License-Identifier: MIT
"""Where workers write what became of the months of a run, and its loader reads it: one Redis hash for each run.

It ends by itself. Without it nothing is lost but the news: a month whose end nobody has heard of is sent again, and
tells Waldur nothing that is there already.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from redis import RedisError

from agent.run.backfill.results import Ending, MonthOutcome, outcome_from

log = logging.getLogger(__name__)

PREFIX = "site-history:"
LIFE_S = 7 * 24 * 3600


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Entry:
    """One month. `words`: the worker that runs it, or why it waits. `outcome`: what was done of it so far."""

    state: State
    words: str = ""
    outcome: MonthOutcome | None = None

    @property
    def is_done(self) -> bool:
        return self.state is State.ENDED and self.outcome is not None and self.outcome.ending is Ending.DONE

    def dump(self) -> str:
        outcome = self.outcome.as_json() if self.outcome else None
        return json.dumps({"state": self.state, "words": self.words, "outcome": outcome}, ensure_ascii=False)


class Board:
    """The hash of one run. `client` is any redis-py client."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._key = PREFIX + run_id

    def read(self, months: Iterable[str]) -> dict[str, Entry]:
        """Entries of these months, without those that nobody has written. Raises RedisError."""
        names = list(months)
        texts = self._client.hmget(self._key, names) if names else []
        found = {}
        for name, text in zip(names, texts, strict=True):
            entry = _entry(text)
            if entry is not None:
                found[name] = entry
        return found

    def write(self, entries: Mapping[str, Entry]) -> None:
        """Raises RedisError."""
        if entries:
            pipe = self._client.pipeline()
            pipe.hset(self._key, mapping={name: entry.dump() for name, entry in entries.items()})
            pipe.expire(self._key, LIFE_S)
            pipe.execute()

    def note(self, month: str, entry: Entry) -> None:
        """As `write`, from a worker: an outage of the broker stops no month."""
        try:
            self.write({month: entry})
        except RedisError as error:
            log.warning("the loader does not hear of %s (%s): %s", month, entry.state, error)

    def known(self, month: str) -> Entry | None:
        """As `read`, from a worker."""
        try:
            return self.read([month]).get(month)
        except RedisError as error:
            log.debug("what is known of %s cannot be read: %s", month, error)
            return None


def _entry(text: bytes | str | None) -> Entry | None:
    """What is damaged counts as not written."""
    if text is None:
        return None
    try:
        document = json.loads(text)
        outcome = document.get("outcome")
        return Entry(
            State(document["state"]),
            str(document.get("words", "")),
            outcome_from(outcome) if outcome else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
