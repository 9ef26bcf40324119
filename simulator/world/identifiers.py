# SPDX-License-Identifier: MIT
"""Uuids and slugs of the simulated server: deterministic, so that two runs of a scenario look the same."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from itertools import count

from simulator.world.ages import Age

_UUID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_SHORT_SLUG_LENGTH = 8


class UuidSource:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._numbers = count()

    def new(self) -> str:
        return hashlib.sha256(f"{self._seed}/{next(self._numbers)}".encode()).hexdigest()[:32]


class Slugs:
    """2024 cuts a slug to eight characters and numbers it; later servers keep the name when it is free."""

    def __init__(self, age: Age) -> None:
        self._age = age
        self._taken: Counter[tuple[str, str]] = Counter()

    def make(self, kind: str, name: str) -> str:
        base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or kind
        if not self._age.is_modern:
            base = base[:_SHORT_SLUG_LENGTH]
        self._taken[(kind, base)] += 1
        number = self._taken[(kind, base)]
        if self._age.is_modern and number == 1:
            return base
        return f"{base}-{number}"


def as_uuid(text: object) -> str | None:
    """Return the 32-hex form of a uuid in either spelling; None when it is not one."""
    if isinstance(text, str) and _UUID.fullmatch(text):
        return text.replace("-", "").lower()
    return None


def role_uuid(name: str) -> str:
    """Return the uuid of a role: each name is one role, not stored."""
    return hashlib.sha256(f"role/{name}".encode()).hexdigest()[:32]


def plan_period_uuid(resource_uuid: str) -> str:
    """Return the uuid of a resource's plan period, or the reverse: each resource has one period, not stored."""
    return resource_uuid[::-1]


def uuid_of_url(url: object) -> str | None:
    """Return the uuid at the end of an object's URL."""
    if not isinstance(url, str):
        return None
    return as_uuid(url.rstrip("/").rsplit("/", 1)[-1])
