# SPDX-License-Identifier: MIT
"""The entry points of plugins. They are looked for once for each way in which Python finds packages: it takes time."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType


def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return _installed(group, tuple(sys.path))


@lru_cache(maxsize=8)
def _installed(group: str, _path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    return MappingProxyType({point.name: point for point in entry_points(group=group)})
