# SPDX-License-Identifier: MIT
"""Reads a map of settings with a marshmallow schema: every problem at once, each with its place.

A null means "not given": a default that null overwrites would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from marshmallow import Schema, ValidationError, fields

from agent.config.findings import below, has_errors, key_name, unknown_keys
from agent.config.model import Problem, Severity
from backends.usernames.candidates import pattern_of


class NameFormatField(fields.String):
    """The name of a format, or a pattern."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        word = str(super()._deserialize(value, attr, data, **kwargs))
        try:
            pattern_of(word)
        except ValueError as error:
            raise ValidationError(f"{word!r} cannot be used: {error}") from error
        return word


def parsed_section(
    schema: Schema, section: Any, path: str
) -> tuple[dict[str, Any] | None, tuple[Problem, ...]]:
    """Return the values and the problems; None for values where one is an error.

    Unknown keys are warnings, errors in `config-check`.
    """
    if section is None:
        section = {}
    if not isinstance(section, Mapping):
        return None, (Problem(Severity.ERROR, path, "a map of keys is needed"),)
    problems = list(_unknown(schema, section, path))
    try:
        loaded = schema.load(without_nulls(section))
    except ValidationError as refusal:
        problems += [
            Problem(Severity.ERROR, where, words) for where, words in sentences(refusal.messages, path)
        ]
        return None, tuple(problems)
    return (None if has_errors(problems) else dict(loaded)), tuple(problems)


def without_nulls(section: Any) -> Any:
    """Return the section without keys whose value is null, at every depth."""
    if isinstance(section, Mapping):
        return {key_name(k): without_nulls(v) for k, v in section.items() if v is not None}
    if isinstance(section, list):
        return [without_nulls(item) for item in section if item is not None]
    return section


def sentences(messages: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield marshmallow's tree of messages as pairs of place and sentence."""
    if isinstance(messages, Mapping):
        for key, nested in messages.items():
            place = f"{path}[{key}]" if isinstance(key, int) else below(path, str(key))
            yield from sentences(nested, place)
    else:
        yield path, " ".join(map(str, messages))


def _unknown(schema: Schema, section: Mapping[Any, Any], path: str) -> Iterator[Problem]:
    """Yield keys that nobody reads, in the section and in the sections within it."""
    yield from unknown_keys(section, schema.fields, path)
    for name, field in schema.fields.items():
        inner = section.get(name)
        nested = field if isinstance(field, fields.Nested) else getattr(field, "inner", None)
        if not isinstance(nested, fields.Nested):
            continue
        if isinstance(inner, Mapping):
            yield from _unknown(nested.schema, inner, below(path, name))
        for number, item in enumerate(inner if isinstance(inner, list) else ()):
            if isinstance(item, Mapping):
                yield from _unknown(nested.schema, item, f"{below(path, name)}[{number}]")
