# SPDX-License-Identifier: MIT
"""What every renderer needs: the store and the address the caller used, to print absolute URLs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simulator.api.paging import Query
from simulator.world.ages import Age
from simulator.world.records import JsonObject, User
from simulator.world.store import Store


@dataclass(frozen=True)
class View:
    store: Store
    root_url: str

    @property
    def age(self) -> Age:
        return self.store.age

    def link(self, collection: str, uuid: str | None) -> str | None:
        return None if uuid is None else f"{self.root_url}/api/{collection}/{uuid}/"

    def user(self, uuid: str | None) -> User | None:
        return self.store.users.get(uuid)


def pick(body: JsonObject, query: Query) -> JsonObject:
    """Return only the fields asked for with `field=`; all when none of the names is known."""
    asked = frozenset(query.get("field", ()))
    wanted = {name: value for name, value in body.items() if name in asked} if asked else {}
    return wanted or body


def drop(body: JsonObject, names: Iterable[str]) -> JsonObject:
    unwanted = frozenset(names)
    return {name: value for name, value in body.items() if name not in unwanted}
