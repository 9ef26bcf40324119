# SPDX-License-Identifier: MIT
"""Usage figures below those that Waldur has: somebody may have been billed for these, so a person looks first.

A decrease is known by its resource and month and by what gets less; while it waits, what is counted may grow. An
approval was given for the figures that were shown: what falls below them waits anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from agent.core.actions import Action, only
from agent.core.policy import PolicyRules, UsageDecreases
from agent.core.usage_actions import UsageAction
from agent.plan.policy.budgets import some


@dataclass(frozen=True, slots=True)
class Decrease:
    """All that would be told of one resource in one month, and what of it gets less: `figures` has the new figures.
    `brief` is the sentence without why.
    """

    scope: str
    sentence: str
    brief: str
    less: tuple[str, ...]
    figures: Mapping[str, str]
    actions: tuple[Action, ...]


def held_decreases(actions: Iterable[Action], rules: PolicyRules) -> list[Decrease]:
    """Return the decreases to hold. A total that gets less keeps back all that is told of its resource in that month;
    the figures belong together. Where users alone get less, the shares of that component wait, and the rest is told.
    """
    if rules.usage_decreases is UsageDecreases.ALLOW:
        return []
    reports: dict[tuple[str, str, str], list[UsageAction]] = {}
    for action in only(UsageAction, actions):
        reports.setdefault((action.account, action.month, action.resource), []).append(action)
    found = []
    for (account, month, resource), told in sorted(reports.items()):
        totals_fall = any(action.is_total and any(action.decreases()) for action in told)
        several = [action for action in told if totals_fall or any(action.decreases())]
        less = [figure for action in several for figure in action.decreases()]
        if not less:
            continue
        words = [f"{name} from {was} to {amount}" for name, was, amount in less]
        figures = {name: amount for name, _, amount in less}
        reason = next(filter(None, (action.reason for action in several)), "")
        brief = f"usage of {account} in {month} would get less: {some(words)}"
        scope, known_by = f"account {account}, {month}", (resource, *sorted(figures))
        sentence = "; ".join(filter(None, (brief, reason)))
        found.append(Decrease(scope, sentence, brief, known_by, figures, tuple(several)))
    return found


def is_below(figures: Mapping[str, str], approved: Mapping[str, str]) -> bool:
    """Return whether any of these figures is less than what was approved, or was not among it."""
    return any(
        name not in approved or Decimal(amount) < Decimal(approved[name]) for name, amount in figures.items()
    )
