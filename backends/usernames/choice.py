# SPDX-License-Identifier: MIT
"""Chooses a free name for a person: the first that is free in Waldur, on the cluster and on this host."""

from __future__ import annotations

from collections.abc import Callable

from agent.core.errors import BackendError
from agent.core.model import OfferingUser
from backends.usernames import nss
from backends.usernames.base import UsernameContext
from backends.usernames.candidates import NameFormat, candidates, posix_problem


class FreeNames:
    """The names of one pass: a name that it has given is taken for the next person."""

    def __init__(self, wanted: NameFormat, context: UsernameContext) -> None:
        self._wanted = wanted
        self._context = context
        self._given: dict[str, str] = {}
        self._on_cluster: frozenset[str] | None = None

    def first_free(self, user: OfferingUser, *, is_taken: Callable[[str], bool] = lambda _: False) -> str:
        """Return a free name.

        Raises BackendError when all that may be tried are taken, or the cluster's names cannot be read.
        """
        for name in candidates(user, self._wanted):
            if not (posix_problem(name) or self._is_known(name, user.user_uuid) or is_taken(name)):
                return name
        raise BackendError(
            f"every username for user {user.user_uuid} is taken, up to number {self._wanted.last_counter}"
        )

    def give(self, user: OfferingUser, name: str) -> None:
        """Note that the person has the name from now on."""
        self._given[name] = user.user_uuid

    def _is_known(self, name: str, user_uuid: str) -> bool:
        if name in self._given or name in self._context.owners:
            return user_uuid != self._given.get(name, self._context.owners.get(name))
        if self._on_cluster is None:
            self._on_cluster = self._context.on_cluster()
        return name in self._on_cluster or nss.is_taken(name)
