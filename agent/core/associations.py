# SPDX-License-Identifier: MIT
"""Who is in which account of a cluster: one association, and the set of all of them in little room."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any


@dataclass(frozen=True, slots=True)
class Association:
    """One user in one account, on one partition or (empty) on all."""

    account: str
    user: str
    partition: str = ""


class Associations(Set[Association]):
    """A set of associations, kept as the sorted users of each account, in a fifth of the room of so many objects."""

    __slots__ = ("_users",)

    def __init__(self, rows: Iterable[Association] = ()) -> None:
        users: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            users[row.partition][row.account].append(row.user)
        self._users = _sorted(users)

    @classmethod
    def of_users(cls, users: Mapping[str, Mapping[str, Iterable[str]]]) -> Associations:
        """Return the associations of these users, by partition and then by account."""
        made = cls()
        made._users = _sorted(users)
        return made

    def __contains__(self, row: object) -> bool:
        if not isinstance(row, Association):
            return False
        users = self._users.get(row.partition, {}).get(row.account, ())
        place = bisect_left(users, row.user)
        return users[place : place + 1] == (row.user,)

    def __iter__(self) -> Iterator[Association]:
        for partition, accounts in self._users.items():
            for account, users in accounts.items():
                for user in users:
                    yield Association(account, user, partition)

    def __len__(self) -> int:
        return sum(len(users) for accounts in self._users.values() for users in accounts.values())

    def __or__(self, others: Iterable[Any]) -> Associations:
        joined = Associations(others)
        more = joined._users
        # What stays as it is is shared.
        joined._users = {partition: dict(accounts) for partition, accounts in self._users.items()}
        for partition, accounts in more.items():
            mine = joined._users.setdefault(partition, {})
            for account, users in accounts.items():
                mine[account] = tuple(sorted({*mine.get(account, ()), *users}))
        return joined

    def with_accounts(self, others: Associations, accounts: Set[str]) -> Associations:
        """Return these with what the others have of some accounts."""
        made = Associations()
        for partition in dict.fromkeys([*self._users, *others._users]):
            mine, more = self._users.get(partition, {}), others._users.get(partition, {})
            kept = {account: users for account, users in mine.items() if account not in accounts}
            made._users[partition] = kept | {
                account: users for account, users in more.items() if account in accounts
            }
        return made

    def users_of(self, account: str) -> frozenset[str]:
        return frozenset[str]().union(*(accounts.get(account, ()) for accounts in self._users.values()))

    def rows_of(self, account: str, user: str) -> frozenset[Association]:
        """Return the associations of a user in an account."""
        rows = (Association(account, user, partition) for partition in self._users)
        return frozenset(row for row in rows if row in self)

    def members(self) -> Iterator[tuple[str, str]]:
        """Yield each account with each of its users once, on however many partitions."""
        for account in dict.fromkeys(chain.from_iterable(self._users.values())):
            for user in self.users_of(account):
                yield account, user


def _sorted(users: Mapping[str, Mapping[str, Iterable[str]]]) -> dict[str, dict[str, tuple[str, ...]]]:
    return {
        partition: {account: tuple(sorted(set(some))) for account, some in accounts.items()}
        for partition, accounts in users.items()
    }
