# SPDX-License-Identifier: MIT
"""Finds the backends that are installed. A backend is found, loaded, configured and ready, in that order; each step
may fail with its own reason, and a failure stops the modes that need this backend, not the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import Any

from agent.config.findings import Findings
from agent.config.keys import WrongValue, keys_of
from agent.config.model import Mode, Offering, Problem, Severity
from agent.config.offering import BACKEND_KEYS
from agent.config.reading import read
from agent.core.errors import ConfigError
from backends import plugins
from backends.base import (
    Advice,
    Advising,
    Backend,
    BackendContext,
    ComponentRules,
    HasComponentKeys,
    KeysWithoutEffect,
    Parsed,
    Plugin,
    UserHomes,
)
from backends.plugins import PluginMissing
from backends.reference.plugin import ReferencePlugin

GROUP = "waldur_site_cluster.backends"


@dataclass(frozen=True, slots=True)
class Configured:
    """A backend that was found, loaded and configured."""

    name: str
    plugin: Plugin
    # What its plugin made of `backend_settings`.
    settings: Any

    def missing(self) -> str:
        """Return why it cannot be ready on this host (a program that is not there); empty when it can."""
        return self.plugin.missing(self.settings)

    def connect(self, context: BackendContext) -> Backend:
        return self.plugin.connect(self.settings, context)


def installed() -> Mapping[str, EntryPoint]:
    return plugins.installed(GROUP)


def meant(name: str) -> str:
    """Return the installed backend that a name is a slip of, else empty."""
    return plugins.meant(GROUP, name)


def load(name: str) -> Plugin:
    """Load the plugin of that name. Raises PluginMissing."""
    plugin: Plugin = plugins.load(GROUP, name, "")
    return plugin


def plugin_of(offering: Offering, mode: Mode) -> Plugin:
    """Return the plugin that serves a mode: one of this host's, or one of the reference. Raises PluginMissing."""
    name = offering.backend_of(mode)
    if mode is Mode.REPORT and offering.plugin_venv:
        return ReferencePlugin(offering, name)
    return load(name)


def advice_of(offering: Offering, mode: Mode) -> Advice:
    """Return what is said about the kind of cluster that serves a mode; general words where its plugin has none."""
    with suppress(PluginMissing):
        plugin = plugin_of(offering, mode)
        if isinstance(plugin, Advising):
            return plugin.advice
    return Advice()


def _modes(offering: Offering) -> Iterator[frozenset[Mode]]:
    """Yield the modes of each backend of an offering. A plugin of the reference serves no other than reports."""
    places = {
        mode: (name, mode is Mode.REPORT and offering.plugin_venv is not None)
        for mode, name in offering.backends.items()
        if name
    }
    for place in dict.fromkeys(places.values()):
        yield frozenset(mode for mode, each in places.items() if each == place)


def _plugins(offering: Offering) -> Iterator[Plugin]:
    """Yield the plugins of an offering's backends that can be loaded; where a name is a slip, the one that is meant,
    whose keys are there.
    """
    for modes in _modes(offering):
        mode = min(modes)
        with suppress(PluginMissing):
            near = meant(offering.backend_of(mode)) if not offering.plugin_venv else ""
            yield load(near) if near else plugin_of(offering, mode)


def configure(offering: Offering, mode: Mode) -> Configured:
    """Configure the backend of one mode. Raises ConfigError with every reason."""
    plugin = plugin_of(offering, mode)
    parsed = _parsed(plugin, offering)
    errors = [str(p) for p in parsed.problems if p.severity is Severity.ERROR or mode in p.stopped_modes]
    if errors or parsed.settings is None:
        raise ConfigError(f"offering {offering.name}: {'; '.join(errors)}")
    return Configured(offering.backend_of(mode), plugin, parsed.settings)


def with_known_components(offering: Offering, *modes: Mode) -> Offering:
    """Return the offering with those of its components that the backends of these modes (of all, without any) can
    keep.
    """
    for served in _modes(offering):
        if modes and served.isdisjoint(modes):
            continue
        try:
            plugin = plugin_of(offering, min(served))
        except PluginMissing:
            continue
        if isinstance(plugin, ComponentRules):
            known = plugin.known_components(offering.components, f"{offering.path}.backend_components")
            offering = replace(offering, components=known.components)
    return offering


def _parsed(plugin: Plugin, offering: Offering) -> Parsed:
    """Return the settings, and what is wrong with them or with the components for this backend."""
    parsed = plugin.parse(offering.backend_settings, f"{offering.path}.backend_settings")
    findings = Findings()
    findings.add(parsed.problems)
    path = f"{offering.path}.backend_components"
    written = {**offering.components, **offering.draft_components}
    if isinstance(plugin, ComponentRules):
        findings.add(plugin.known_components(written, path).problems)
    if isinstance(plugin, HasComponentKeys):
        for name, component in written.items():
            read(plugin.component_keys, component.extras, f"{path}.{name}", findings, open_ended=True)
    return replace(parsed, problems=findings.problems)


def problems(offering: Offering) -> list[Problem]:
    """Return what the backends of an offering find wrong in its settings, and modes without an installed backend."""
    findings = Findings()
    if not offering.backends and (near := meant(offering.backend_type)):
        what = f"backend {offering.backend_type!r} (did you mean {near!r}?) is not installed"
        findings.refuse(f"{offering.path}.backend_type", what, WrongValue(frozenset(Mode)))
    for modes in _modes(offering):
        unserved = WrongValue(modes)
        try:
            parsed = _parsed(plugin_of(offering, min(modes)), offering)
        except PluginMissing as error:
            where = next(BACKEND_KEYS[mode] for mode in offering.backends if mode in modes)
            findings.refuse(f"{offering.path}.{where}", str(error), unserved)
            continue
        for problem in parsed.problems:
            # An error stops the modes of this offering that the backend serves, and nothing else; a key that it does
            # not serve those of them that the key is about.
            if problem.severity is Severity.ERROR:
                findings.refuse(problem.path, problem.message, unserved)
            else:
                findings.add([replace(problem, stopped_modes=problem.stopped_modes & modes)])
    return list(findings.problems)


def without_effect(offering: Offering) -> Mapping[str, str]:
    """Return the common keys of `backend_settings` that no backend of an offering can serve, each with why."""
    found = [
        plugin.keys_without_effect if isinstance(plugin, KeysWithoutEffect) else {}
        for plugin in _plugins(offering)
    ]
    return {key: why for key, why in found[0].items() if all(key in each for each in found)} if found else {}


def keys_elsewhere(offering: Offering) -> Mapping[str, str]:
    """Return the keys of `backend_settings` that backends read which this offering does not name, with one of each."""
    found: dict[str, str] = {}
    for name in sorted(installed().keys() - set(offering.backends.values())):
        with suppress(PluginMissing):
            found |= dict.fromkeys(keys_of(load(name).settings), name)
    return found


def homes_are_unasked(offering: Offering) -> bool:
    """Return whether homes are made where the offering's file does not say whether to."""
    return any(isinstance(plugin, UserHomes) and plugin.homes_unasked for plugin in _plugins(offering))


def component_keys(offering: Offering) -> frozenset[str]:
    """Return the keys of components that an installed backend of this offering adds to the common ones."""
    return frozenset(
        key
        for plugin in _plugins(offering)
        if isinstance(plugin, HasComponentKeys)
        for key in keys_of(plugin.component_keys)
    )


def setting_kinds(offering: Offering) -> frozenset[type]:
    """Return the dataclasses of the keys that an installed backend of this offering reads."""
    return frozenset(plugin.settings for plugin in _plugins(offering))
