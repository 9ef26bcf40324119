# SPDX-License-Identifier: MIT
"""Which actions one command or request can name together. Both ways to SLURM ask here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import TypeVar

from agent.core.actions import RemoveMember

Item = TypeVar("Item")
Key = TypeVar("Key")

# One argument is kept below the kernel's 128 KiB: 500 names of 255 characters.
NAMES_AT_ONCE = 500


def products(leavers: Sequence[RemoveMember]) -> list[list[RemoveMember]]:
    """Return groups that are a whole product of users and accounts: the users who leave the same accounts, or the
    accounts that the same users leave, whichever are fewer.
    """
    by_users = _products(leavers, lambda a: a.user, lambda a: a.account)
    by_accounts = _products(leavers, lambda a: a.account, lambda a: a.user)
    return min(by_users, by_accounts, key=len)


def removals(
    leavers: Sequence[RemoveMember], users_of: Callable[[str], Set[str]]
) -> list[list[RemoveMember]]:
    """Return the fewest groups for commands that name all users and all accounts of a group, and so end every pair of
    these that is there. `users_of`: who is in an account now. Who stays in one of the accounts, or leaves more of them
    than a command names, is named only together with those who leave the same ones.
    """
    leaving = grouped(leavers, lambda a: a.user)
    left = {user: {action.account for action in group} for user, group in leaving.items()}
    apart = {user for user, accounts in left.items() if len(accounts) > NAMES_AT_ONCE}
    for account in {action.account for action in leavers}:
        apart.update(user for user in users_of(account) & left.keys() if account not in left[user])
    found: list[list[RemoveMember]] = []
    for user in sorted(left.keys() - apart, key=lambda user: (min(left[user]), user)):
        together = [*(found[-1] if found else ()), *leaving[user]]
        if (
            found
            and max(len({a.user for a in together}), len({a.account for a in together})) <= NAMES_AT_ONCE
        ):
            found[-1] = together
        else:
            found.append(leaving[user])
    found += products([action for action in leavers if action.user in apart])
    return min(products(leavers), found, key=len)


def _products(
    leavers: Sequence[RemoveMember], one: Callable[[RemoveMember], str], many: Callable[[RemoveMember], str]
) -> list[list[RemoveMember]]:
    """Return groups in which all that `one` names leaves the same `many`."""
    sets = {name: frozenset(map(many, group)) for name, group in grouped(leavers, one).items()}
    groups = grouped(leavers, lambda a: sets[one(a)])
    return [
        [a for a in group if one(a) in ones and many(a) in manies]
        for group in groups.values()
        for ones in portioned([sorted({one(a) for a in group})])
        for manies in portioned([sorted({many(a) for a in group})])
    ]


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    groups: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def portioned(groups: Iterable[Sequence[Item]], size: int = NAMES_AT_ONCE) -> Iterator[Sequence[Item]]:
    for group in groups:
        for start in range(0, len(group), size):
            yield group[start : start + size]
