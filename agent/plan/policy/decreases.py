# SPDX-License-Identifier: MIT
"""Usage figures below those that Waldur has: somebody may have been billed for these, so a person looks first.

A decrease is known by its resource and month and by what gets less; while it waits, what is counted may grow. An
approval was given for the figures that were shown: what falls below them waits anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from agent.core.actions import Action
from agent.core.policy import PolicyRules, UsageDecreases
from agent.core.usage_actions import ReportUsage, ReportUserUsage

NAMED_AT_MOST = 5


@dataclass(frozen=True, slots=True)
class Decrease:
    """All that would be told of one resource in one month, and what of it gets less: `floor` has the new figures.
    `brief` is the sentence without why.
    """

    scope: str
    sentence: str
    brief: str
    less: tuple[str, ...]
    floor: Mapping[str, str]
    actions: tuple[Action, ...]


def held_decreases(actions: Iterable[Action], rules: PolicyRules) -> list[Decrease]:
    """A total that gets less keeps back whatever is told of its resource in that month; the figures belong together.
    Where users alone get less, the shares of that component wait, and the rest is told.
    """
    if rules.usage_decreases is UsageDecreases.ALLOW:
        return []
    reports: dict[tuple[str, str, str], list[ReportUsage | ReportUserUsage]] = {}
    for action in actions:
        if isinstance(action, ReportUsage | ReportUserUsage):
            reports.setdefault((action.account, action.month, action.resource), []).append(action)
    found = []
    for (account, month, resource), told in sorted(reports.items()):
        totals_fall = any(isinstance(action, ReportUsage) and any(action.lowered()) for action in told)
        several = [action for action in told if totals_fall or any(action.lowered())]
        less = [(name, held, amount) for action in several for name, held, amount in _less(action)]
        if not less:
            continue
        words = [f"{name} from {held} to {amount}" for name, held, amount in less]
        floor = {name: amount for name, _, amount in less}
        why = next((f"; {action.reason}" for action in several if action.reason), "")
        brief = f"usage of {account} in {month} would get less: {_some(words)}"
        scope, known_by = f"account {account}, {month}", (resource, *sorted(floor))
        found.append(Decrease(scope, brief + why, brief, known_by, floor, tuple(several)))
    return found


def is_below(figures: Mapping[str, str], approved: Mapping[str, str]) -> bool:
    """Whether any of these figures is less than what was approved, or was not among it."""
    return any(
        name not in approved or Decimal(amount) < Decimal(approved[name]) for name, amount in figures.items()
    )


def _less(action: ReportUsage | ReportUserUsage) -> Iterator[tuple[str, str, str]]:
    """The same, with the component of a user's share before the name."""
    what = f"{action.component} of " if isinstance(action, ReportUserUsage) else ""
    for name, held, amount in action.lowered():
        yield f"{what}{name}", held, amount


def _some(words: Sequence[str]) -> str:
    more = len(words) - NAMED_AT_MOST
    return ", ".join(words[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
