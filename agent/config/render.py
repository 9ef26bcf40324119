# SPDX-License-Identifier: MIT
"""Settings as plain values for `config-check --json`: every key, and `***` for whatever may be a secret."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from agent.config.model import Offering
from agent.config.secret import COMMAND_PREFIX, MASK, command_words, is_secret_key, mask_url, mask_words


def plain(value: Any, secret: Collection[str] = ()) -> Any:
    """Return settings, or one value of them, as dicts, lists, texts and numbers; nothing in it is secret, and keys of
    maps that are in `secret` are masked.
    """
    if is_dataclass(value) and not isinstance(value, type):
        declared = [each.name for each in fields(value) if getattr(each.metadata.get("key"), "hidden", False)]
        below = value.secret_settings if isinstance(value, Offering) else secret
        return {
            each.name: _kept(each.name, getattr(value, each.name), declared, below) for each in fields(value)
        }
    if isinstance(value, Mapping):
        return {str(name): _kept(str(name), item, secret, secret) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, secret) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return mask_url(value) if "://" in value else value
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)


def _kept(name: str, value: Any, secret: Collection[str], below: Collection[str]) -> Any:
    if name == COMMAND_PREFIX and value:
        return list(mask_words(command_words(value)))
    return MASK if (name in secret or is_secret_key(name)) and value else plain(value, below)
