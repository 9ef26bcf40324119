# SPDX-License-Identifier: MIT
"""The username backend `template`: names from a format, without any directory (`backend_settings.usernames`).

A name is taken when an offering user has it in Waldur, when the cluster knows it, or when this host does. Only Waldur
remembers the names that are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.config.findings import Findings, has_errors
from agent.config.keys import key
from agent.config.reading import read
from agent.core.model import OfferingUser
from backends.base import Parsed
from backends.usernames.base import UsernameBackend, UsernameContext
from backends.usernames.candidates import NameFormat
from backends.usernames.choice import FreeNames
from backends.usernames.unmanaged import Unmanaged

KEY = "usernames"


@dataclass(frozen=True, slots=True)
class TemplateSettings:
    name_format: NameFormat = key(
        NameFormat(), "how names are made: [usernames](usernames.md)", name=KEY, usual="all defaults"
    )


class TemplateUsernames(Unmanaged):
    def __init__(self, settings: TemplateSettings, context: UsernameContext) -> None:
        self._names = FreeNames(settings.name_format, context)

    def propose(self, user: OfferingUser) -> str:
        name = self._names.first_free(user)
        self._names.give(user, name)
        return name

    def make(self, user: OfferingUser) -> str:
        return self.propose(user)


class TemplatePlugin:
    settings = TemplateSettings

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        findings = Findings()
        settings = read(TemplateSettings, raw, path, findings, open_ended=True)
        return Parsed(None if has_errors(findings.problems) else settings, findings.problems)

    def connect(self, settings: TemplateSettings, context: UsernameContext) -> UsernameBackend:
        return TemplateUsernames(settings, context)


plugin = TemplatePlugin()
