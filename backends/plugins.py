# SPDX-License-Identifier: MIT
"""The plugins of this host, by the entry points of their packages: backends, and backends of usernames.

One that cannot be imported is remembered with its reason, whatever it raised: what it would serve stops, and nothing
else.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

from agent.config.findings import nearest
from agent.core.errors import ConfigError

# How alike two names are that differ by one slip: two letters of four or more in the wrong order.
SLIP = 0.75


class PluginMissing(ConfigError):
    """The configuration names a plugin that this host does not have, or cannot import."""


def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name. They are looked for once for each way in which Python finds packages:
    it takes time.
    """
    return _installed(group, tuple(sys.path))


@lru_cache(maxsize=8)
def _installed(group: str, _path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    return MappingProxyType({point.name: point for point in entry_points(group=group)})


def meant(group: str, name: str) -> str:
    """Return the installed plugin that a name is a slip of; empty where it may well be another one's."""
    near = nearest(name.lower(), tuple(installed(group)), SLIP)
    return near if near != name else ""


def load(group: str, name: str, kind: str) -> Any:
    """Return the plugin of that name; `kind`: what people say before "backend" for its group. Raises PluginMissing with
    what is installed, or why it cannot be imported.
    """
    found = installed(group)
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        near = meant(group, name)
        hint = f" (did you mean {near!r}?)" if near else ""
        raise PluginMissing(f"{kind}backend {name!r}{hint} is not installed; installed are: {known}")
    plugin, reason = _loaded(found[name])
    if reason:
        raise PluginMissing(f"{kind}backend {name!r} is installed but cannot be loaded: {reason}")
    return plugin


@lru_cache(maxsize=64)
def _loaded(point: EntryPoint) -> tuple[Any, str]:
    """Return the plugin, or the reason why there is none."""
    try:
        return point.load(), ""
    except (Exception, SystemExit) as error:  # noqa: BLE001  others wrote it, and its module may do anything
        return None, f"{type(error).__name__}: {error}"
