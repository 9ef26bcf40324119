# SPDX-License-Identifier: MIT
"""The username backend `template`: names from a format, without any directory (`backend_settings.usernames`).

A name is taken when an offering user has it in Waldur, when the cluster knows it, or when this host does. Only Waldur
remembers the names that are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marshmallow import EXCLUDE, Schema, fields, validate

from agent.core.model import OfferingUser
from backends.base import Parsed
from backends.usernames.base import UsernameBackend, UsernameContext
from backends.usernames.candidates import LAST_COUNTER, MAX_LENGTH, NameFormat, pattern_of
from backends.usernames.choice import FreeNames
from backends.usernames.sections import NameFormatField, parsed_section
from backends.usernames.unmanaged import Unmanaged

KEY = "usernames"


@dataclass(frozen=True, slots=True)
class TemplateSettings:
    name_format: NameFormat


class TemplateSchema(Schema):
    class Meta:
        unknown = EXCLUDE

    format = NameFormatField(load_default="first_initial_lastname")
    max_length = fields.Integer(
        load_default=MAX_LENGTH,
        validate=validate.Range(4, MAX_LENGTH, error="use a whole number from {min} to {max}"),
    )
    last_counter = fields.Integer(
        load_default=LAST_COUNTER,
        validate=validate.Range(2, 99_999, error="use a whole number from {min} to {max}"),
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
    setting_keys = frozenset({KEY})

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        loaded, problems = parsed_section(TemplateSchema(), raw.get(KEY), f"{path}.{KEY}")
        if loaded is None:
            return Parsed(None, problems)
        pattern = pattern_of(loaded["format"])
        wanted = NameFormat(pattern, loaded["max_length"], loaded["last_counter"])
        return Parsed(TemplateSettings(wanted), problems)

    def connect(self, settings: TemplateSettings, context: UsernameContext) -> UsernameBackend:
        return TemplateUsernames(settings, context)


plugin = TemplatePlugin()
