# SPDX-License-Identifier: MIT
"""`waldur_site_export_plugin_catalogue`: the installed backends and the keys that they read, for forms."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from agent import __version__
from agent.cli.output import echo
from agent.config.keys import json_schema, secret_keys
from agent.config.schema import BackendSettingsKeys, ComponentKeys, OfferingKeys
from agent.core.errors import SiteAgentError
from backends import registry
from backends.base import HasComponentKeys
from backends.usernames import registry as usernames

VERSION = 1
CLUSTER_ROLES = ("order_processing", "membership_sync", "reporting")
NAME_ROLES = ("username_management",)


def command(output: Path | None) -> int:
    plugins, errors = [], []
    for name, entry in sorted(registry.installed().items()):
        try:
            plugin = registry.load(name)
        except SiteAgentError as error:
            errors.append(str(error))
            continue
        own = (plugin.component_keys,) if isinstance(plugin, HasComponentKeys) else ()
        settings = (BackendSettingsKeys, plugin.settings)
        plugins.append(_plugin(entry, CLUSTER_ROLES, settings, json_schema(ComponentKeys, *own)))
    for name, entry in sorted(usernames.installed().items()):
        try:
            plugins.append(_plugin(entry, NAME_ROLES, (usernames.load(name).settings,), json_schema()))
        except SiteAgentError as error:
            errors.append(str(error))
    if errors:
        echo(*(f"error: {error}" for error in errors), err=True)
        return 1
    catalogue = {
        "catalogue_version": VERSION,
        "agent_version": __version__,
        "offering_secret_fields": secret_keys(OfferingKeys),
        "plugins": plugins,
    }
    text = json.dumps(catalogue, indent=2, sort_keys=True)
    if output is None:
        echo(*text.split("\n"))
    else:
        output.write_text(f"{text}\n", encoding="utf-8")
    return 0


def _plugin(
    entry: EntryPoint, roles: Iterable[str], settings: Iterable[type], components: Mapping[str, Any]
) -> Mapping[str, Any]:
    return {
        "name": entry.name,
        "package": entry.dist.name if entry.dist else None,
        "version": entry.dist.version if entry.dist else None,
        "roles": list(roles),
        "settings_schema": json_schema(*settings),
        "component_schema": components,
        "secret_settings": secret_keys(*settings),
    }
