# SPDX-License-Identifier: MIT
"""Which username backends there are, and which one an offering has (`username_management_backend`).

A name that nothing provides, and a wrong setting, switch the making of names off for this offering, and nothing else.
Where a directory follows Waldur they also keep everybody in the accounts: who was renamed in it is unknown. The
modules for LDAP are loaded only for offerings that have a directory: they take 5 MB in each process.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint
from typing import Any

from agent.config import homes
from agent.config.findings import Findings
from agent.config.keys import WrongValue
from agent.config.model import Offering, Problem, Severity
from agent.core.errors import ConfigError
from backends import plugins
from backends.base import Parsed
from backends.plugins import PluginMissing
from backends.usernames.base import (
    GroupDirectory,
    GroupPlugin,
    ProviderGroupDirectory,
    ProviderGroupPlugin,
    UsernameBackend,
    UsernameContext,
    UsernamePlugin,
)
from backends.usernames.ldap import schema as ldap

GROUP = "waldur_site_cluster.username_backends"
KEY = "username_management_backend"
LDAP = "ldap"
NO_NAMES = WrongValue(fallback="no usernames are made for this offering")
NO_GROUPS = WrongValue(fallback="no groups are made for this offering")
NOT_FOLLOWED = WrongValue(
    fallback="the directory does not follow Waldur, and no member is removed from an account"
)


def installed() -> Mapping[str, EntryPoint]:
    """Return the entry points of username backends by name."""
    return plugins.installed(GROUP)


def load(name: str) -> UsernamePlugin:
    """Return the plugin of that name. Raises PluginMissing."""
    plugin: UsernamePlugin = plugins.load(GROUP, name, "username ")
    return plugin


def connect(offering: Offering, context: UsernameContext) -> UsernameBackend:
    """Return the offering's username backend, not yet opened. Raises ConfigError with every reason."""
    plugin = load(offering.username_backend)
    return plugin.connect(_settings(plugin, offering), context)


def groups(offering: Offering) -> GroupDirectory | None:
    """Return the groups of the offering's directory, not yet opened; None where it has none. Raises ConfigError."""
    if offering.backend_settings.get(LDAP) is None:
        return None
    plugin = load(LDAP)
    return plugin.groups(_settings(plugin, offering)) if isinstance(plugin, GroupPlugin) else None


def provider_groups(offering: Offering) -> ProviderGroupDirectory | None:
    """Return the groups of Waldur's projects in the offering's directory, not yet opened; None where the site wants
    none. Raises ConfigError.
    """
    if offering.backend_settings.get(LDAP) is None:
        return None
    plugin = load(LDAP)
    if not isinstance(plugin, ProviderGroupPlugin):
        return None
    return plugin.provider_groups(_settings(plugin, offering))


def follows_waldur(offering: Offering) -> bool:
    """Return whether the people of the offering's directory get the names that Waldur has for them."""
    return offering.username_backend == LDAP and homes.follows_waldur(offering.backend_settings)


def has_provider_groups(offering: Offering) -> bool:
    """Return whether the site wants the groups of Waldur's projects in its directory."""
    return ldap.wants_provider_groups(offering.backend_settings)


def _settings(plugin: UsernamePlugin, offering: Offering) -> Any:
    parsed = plugin.parse(offering.backend_settings, f"{offering.path}.backend_settings")
    if parsed.settings is None:
        errors = [str(p) for p in parsed.problems if p.severity is Severity.ERROR]
        raise ConfigError(f"offering {offering.name}: {'; '.join(errors)}")
    return parsed.settings


def problems(offering: Offering) -> list[Problem]:
    """Return the problems of the settings of the offering's username backend, and of the directory of its groups.

    An error there stops names, or groups, of this offering and nothing else; in a directory that follows Waldur it
    stops the removal of members, too.
    """
    effect = NOT_FOLLOWED if follows_waldur(offering) else NO_NAMES
    settings_path = f"{offering.path}.backend_settings"
    findings = Findings()
    parsed: list[tuple[Parsed, WrongValue]] = []
    try:
        plugin = load(offering.username_backend)
        parsed.append((plugin.parse(offering.backend_settings, settings_path), effect))
    except PluginMissing as error:
        findings.refuse(f"{offering.path}.{KEY}", str(error), effect)
    if offering.username_backend != LDAP and offering.backend_settings.get(LDAP) is not None:
        parsed.append((ldap.parse(offering.backend_settings, settings_path), NO_GROUPS))
    for settings, its_effect in parsed:
        for problem in settings.problems:
            if problem.severity is Severity.ERROR:
                findings.refuse(problem.path, problem.message, its_effect)
            else:
                findings.add([problem])
    return list(findings.problems)


def setting_kinds(offering: Offering) -> frozenset[type]:
    """Return the dataclasses of the keys of `backend_settings` that the offering's username backend reads, and the
    directory of its groups for whatever backend.
    """
    with suppress(PluginMissing):
        return frozenset({ldap.LdapKeys, load(offering.username_backend).settings})
    return frozenset({ldap.LdapKeys})
