# SPDX-License-Identifier: MIT
"""`config-schema`: the keys of the configuration, and of the backends that are installed, as a JSON Schema."""

from __future__ import annotations

import json
from typing import Any

from agent.cli.output import echo
from agent.config.keys import json_schema
from agent.config.schema import BackendSettingsKeys, ComponentKeys, RootKeys
from agent.config.settings import ANCHOR_PREFIXES
from backends import registry
from backends.base import HasComponentKeys
from backends.usernames import registry as usernames


def command() -> int:
    echo(*json.dumps(configuration_schema(), indent=2).split("\n"))
    return 0


def configuration_schema() -> dict[str, Any]:
    """Return the JSON Schema of a whole file."""
    plugins = [registry.load(name) for name in sorted(registry.installed())]
    names = [usernames.load(name).settings for name in sorted(usernames.installed())]
    settings = json_schema(BackendSettingsKeys, *(each.settings for each in plugins), *names)
    own = [plugin.component_keys for plugin in plugins if isinstance(plugin, HasComponentKeys)]
    components = json_schema(ComponentKeys, *own) | {"required": json_schema(ComponentKeys)["required"]}
    root = json_schema(RootKeys)
    described = root["properties"]["offerings"]["items"]["properties"]
    # What one backend requires is optional in a file of another.
    described["backend_settings"] |= settings | {"type": ["object", "null"], "required": []}
    described["backend_components"]["additionalProperties"] = components
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of waldur-site-cluster",
        **root,
        "patternProperties": {f"^({'|'.join(ANCHOR_PREFIXES)})": {}},
    }
