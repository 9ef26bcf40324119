# SPDX-License-Identifier: MIT
"""Decides which actions of a batch come first, where accounts are below each other. Backends call it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from agent.core.actions import ClusterAction, CreateAccount, DeleteAccount, only

Located = TypeVar("Located", CreateAccount, DeleteAccount)


def levels(actions: Sequence[Located], parents: Mapping[str, str]) -> list[list[Located]]:
    """Return the actions by depth among themselves: those whose parent is not among them first."""

    def depth(account: str) -> int:
        above: list[str] = []
        while (parent := parents[account]) in parents and parent not in above:
            above.append(parent)
            account = parent
        return len(above)

    by_depth: dict[int, list[Located]] = {}
    for action in actions:
        by_depth.setdefault(depth(action.account), []).append(action)
    return [by_depth[level] for level in sorted(by_depth)]


def in_order(actions: Iterable[ClusterAction], parents: Mapping[str, str | None]) -> list[ClusterAction]:
    """Return the actions as a batch runs, each once: by phase, creations from the top down, deletions from below.

    `parents`: the accounts on the cluster, each with the one above it.
    """
    actions = list(dict.fromkeys(actions))
    made, gone = only(CreateAccount, actions), only(DeleteAccount, actions)
    down = levels(made, {action.account: action.parent for action in made})
    up = levels(gone, {action.account: parents.get(action.account) or action.parent for action in gone})[::-1]
    placed = [*(action for level in down for action in level), *(action for level in up for action in level)]
    return sorted(dict.fromkeys([*placed, *actions]), key=lambda action: action.phase)
