# SPDX-License-Identifier: MIT
"""Check a directory after it was changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from agent.core.actions import Action
from agent.core.errors import NotApplied
from agent.core.plans import Outcome


def checked(done: Iterable[Outcome], left: Set[Action]) -> Iterator[Outcome]:
    """Yield the outcomes of changes; what would be planned again (`left`) has not happened: NotApplied."""
    for outcome in done:
        error = outcome.error
        if error is None and outcome.action in left:
            error = NotApplied(f"the directory does not show it: {outcome.action.line()}")
        yield Outcome(outcome.action, error)
