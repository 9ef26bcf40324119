# SPDX-License-Identifier: MIT
"""Accounts that stand below each other: which of a batch come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from agent.core.actions import CreateAccount, DeleteAccount

Located = TypeVar("Located", CreateAccount, DeleteAccount)


def levels(actions: Sequence[Located], parents: Mapping[str, str]) -> list[list[Located]]:
    """Actions by depth among themselves: those whose parent is not among them first."""

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
