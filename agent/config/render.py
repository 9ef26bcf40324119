# SPDX-License-Identifier: MIT
"""Settings as plain values for `config-check --json`: every key, and `***` for whatever may be a secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from agent.config.field_types import command_words
from agent.config.model import Settings
from agent.config.secret import COMMAND_PREFIX, MASK, is_secret_key, mask_url, mask_words


def render(settings: Settings) -> dict[str, Any]:
    """Return a tree of dicts, lists, texts and numbers; nothing in it is secret."""
    return {field.name: plain(getattr(settings, field.name)) for field in fields(settings)}


def plain(value: Any) -> Any:
    """Return one value without types of ours and without secrets."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _kept(field.name, getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _kept(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return mask_url(value) if "://" in value else value
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)


def _kept(name: str, value: Any) -> Any:
    if name == COMMAND_PREFIX and value:
        return list(mask_words(command_words(value)))
    return MASK if is_secret_key(name) and value else plain(value)
