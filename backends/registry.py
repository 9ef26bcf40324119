# SPDX-License-Identifier: MIT
"""Finds the backends that are installed. A backend is found, loaded, configured and ready, in that order; each step
may fail with its own reason, and a failure stops the modes that need this backend, not the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import Any

from agent.config.model import Mode, Offering, Problem, Severity
from agent.config.offering import BACKEND_KEYS
from agent.core.errors import ConfigError
from backends import plugins
from backends.base import (
    Backend,
    BackendContext,
    ComponentKeys,
    ComponentRules,
    KnownComponents,
    Parsed,
    Plugin,
)

GROUP = "waldur_site_cluster.backends"


class BackendNotInstalled(ConfigError):
    """Nothing on this host provides a backend that the configuration names."""


@dataclass(frozen=True, slots=True)
class Configured:
    """A backend that was found, loaded and configured; `settings` are its own."""

    name: str
    plugin: Plugin
    settings: Any

    def missing(self) -> str:
        """Return why it cannot be ready on this host (a program that is not there); empty when it can."""
        return self.plugin.missing(self.settings)

    def connect(self, context: BackendContext) -> Backend:
        return self.plugin.connect(self.settings, context)


def installed() -> Mapping[str, EntryPoint]:
    return plugins.installed(GROUP)


def load(name: str) -> Plugin:
    """Load the plugin of that name. Raises BackendNotInstalled with what is installed."""
    found = installed()
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise BackendNotInstalled(f"backend {name!r} is not installed; installed are: {known}")
    try:
        plugin: Plugin = found[name].load()
    except ImportError as error:
        raise BackendNotInstalled(f"backend {name!r} is installed but cannot be loaded: {error}") from error
    return plugin


def configure(offering: Offering, mode: Mode) -> Configured:
    """Configure the backend of one mode. Raises ConfigError with every reason."""
    name = offering.backend_of(mode)
    plugin = load(name)
    parsed = _parsed(plugin, offering)
    errors = [str(p) for p in parsed.problems if p.severity is Severity.ERROR or mode in p.stops]
    if errors or parsed.settings is None:
        raise ConfigError(f"offering {offering.name}: {'; '.join(errors)}")
    return Configured(name, plugin, parsed.settings)


def with_known_components(offering: Offering, *modes: Mode) -> Offering:
    """Return the offering with those of its components that the backends of these modes (of all, without any) can
    keep.
    """
    names = (offering.backend_of(mode) for mode in modes or offering.backends)
    for name in dict.fromkeys(filter(None, names)):
        try:
            plugin = load(name)
        except BackendNotInstalled:
            continue
        if isinstance(plugin, ComponentRules):
            offering = replace(offering, components=_known(plugin, offering).components)
    return offering


def _parsed(plugin: Plugin, offering: Offering) -> Parsed:
    """Return the settings, and what is wrong with them or with the components for this backend."""
    parsed = plugin.parse(offering.backend_settings, f"{offering.path}.backend_settings")
    if not isinstance(plugin, ComponentRules):
        return parsed
    return replace(parsed, problems=(*parsed.problems, *_known(plugin, offering).problems))


def _known(rules: ComponentRules, offering: Offering) -> KnownComponents:
    return rules.known_components(offering.components, f"{offering.path}.backend_components")


def problems(offering: Offering) -> list[Problem]:
    """Return what the backends of an offering find wrong in its settings, and modes without an installed backend."""
    found: dict[str, list[Problem]] = {}
    for mode, name in offering.backends.items():
        if not name or name in found:
            continue
        where = f"{offering.path}.{BACKEND_KEYS[mode]}"
        modes = frozenset(m for m, n in offering.backends.items() if n == name)
        unserved = f"Not served for this offering: {', '.join(sorted(modes))}"
        try:
            parsed = _parsed(load(name), offering)
            found[name] = [_stopping(problem, modes, unserved) for problem in parsed.problems]
        except BackendNotInstalled as error:
            found[name] = [Problem(Severity.WARNING, where, f"{error}. {unserved}")]
    return [problem for several in found.values() for problem in several]


def _stopping(problem: Problem, modes: frozenset[Mode], unserved: str) -> Problem:
    """An error of a backend's settings stops the modes of this offering that it serves, and nothing else; a key that it
    does not serve those of them that the key is about.
    """
    if problem.severity is not Severity.ERROR:
        return replace(problem, stops=problem.stops & modes)
    return Problem(Severity.WARNING, problem.path, f"{problem.message}. {unserved}", True, modes)


def component_keys(offering: Offering) -> frozenset[str]:
    """Return the keys of components that an installed backend of this offering adds to the common ones."""
    names = set(filter(None, offering.backends.values())) & set(installed())
    plugins = (load(name) for name in names)
    return frozenset(
        key for plugin in plugins if isinstance(plugin, ComponentKeys) for key in plugin.component_keys
    )


def setting_keys(offering: Offering) -> frozenset[str]:
    """Return all keys that an installed backend of this offering reads."""
    keys: frozenset[str] = frozenset()
    for name in set(filter(None, offering.backends.values())) & set(installed()):
        keys |= load(name).setting_keys
    return keys
