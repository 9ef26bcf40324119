# SPDX-License-Identifier: MIT
"""The plugin behind the entry point `ldap` of the username backends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.base import Parsed
from backends.usernames.base import (
    GroupDirectory,
    ProviderGroupDirectory,
    UsernameBackend,
    UsernameContext,
)
from backends.usernames.ldap import schema
from backends.usernames.ldap.backend import LdapUsernames
from backends.usernames.ldap.project_groups import ProjectGroups
from backends.usernames.ldap.provider_groups import ProviderGroups
from backends.usernames.ldap.schema import LdapSettings


class LdapPlugin:
    settings = schema.LdapKeys

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        return schema.parse(raw, path)

    def connect(self, settings: LdapSettings, context: UsernameContext) -> UsernameBackend:
        return LdapUsernames(settings, context)

    def groups(self, settings: LdapSettings) -> GroupDirectory:
        return ProjectGroups(settings)

    def provider_groups(self, settings: LdapSettings) -> ProviderGroupDirectory | None:
        wanted = settings.provider_groups
        return ProviderGroups(settings, wanted) if wanted is not None else None


plugin = LdapPlugin()
