# SPDX-License-Identifier: MIT
"""Several requests at once, over a bounded pool: one failure does not keep the others from being sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from agent.core.errors import WaldurError
from agent.http.connections import POOL_SIZE

Key = TypeVar("Key")
Answer = TypeVar("Answer")


def each(keys: Iterable[Key], ask: Callable[[Key], Answer]) -> Mapping[Key, Answer | WaldurError]:
    """Call `ask` for every key, several at a time; what failed is in the result as the error itself."""

    def attempt(key: Key) -> Answer | WaldurError:
        try:
            return ask(key)
        except WaldurError as error:
            return error

    # Threads begin with an empty context; their lines in the log are about the same as ours.
    distinct = list(dict.fromkeys(keys))
    if len(distinct) < 2:
        return {key: attempt(key) for key in distinct}
    with ThreadPoolExecutor(max_workers=POOL_SIZE) as pool:
        contexts = [copy_context() for _ in distinct]
        answers = pool.map(lambda context, key: context.run(attempt, key), contexts, distinct)
        return dict(zip(distinct, answers, strict=True))
