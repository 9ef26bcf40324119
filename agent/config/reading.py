# SPDX-License-Identifier: MIT
"""Reads a map of the configuration into the dataclass that declares its keys, with all problems at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

from marshmallow import EXCLUDE, RAISE, ValidationError
from marshmallow.exceptions import SCHEMA

from agent.config.field_types import displayed, key_name
from agent.config.findings import Findings, key_path, unknown_keys
from agent.config.keys import UNKNOWN, Idle, WrongValue, keys_of, schema_of
from agent.config.secret import MASK, is_secret_key

T = TypeVar("T")
Place = tuple[str | int, ...]
MISSING = object()


def read(kind: type[T], section: Any, path: str, findings: Findings, *, open_ended: bool = False) -> T:
    """Return the keys of a section; a null, and what cannot be used, count as not given.

    Keys that the dataclass lacks are reported, unless the section is `open_ended`.
    """
    schema = schema_of(cast(type, kind), EXCLUDE if open_ended else RAISE)
    try:
        return cast(T, schema.load(section))
    except ValidationError as refusal:
        usable = section
        for place, words in _leaves(refusal.messages):
            lost, instead = _report_value(kind, section, place, words, path, findings)
            usable = _without(usable, lost, instead)
    return cast(T, schema.load(usable if isinstance(usable, Mapping) else {}, partial=True))


def _leaves(messages: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield marshmallow's tree of messages as pairs of place and words."""
    if not isinstance(messages, Mapping):
        yield place, " ".join(map(str, messages))
        return
    for name, below_it in messages.items():
        yield from _leaves(below_it, place if name == SCHEMA else (*place, name))


def _report_value(
    kind: type, section: Any, place: Place, words: str, path: str, findings: Findings
) -> tuple[Place, Any]:
    """Report one value. Return the place of what counts as not written because of it, or as the value that comes
    second."""
    effect: WrongValue | None = None
    lost, written, where, label, is_hidden = place, section, path, "", False
    for depth, name in enumerate(place):
        written = _at(written, name)
        if isinstance(name, int):
            where, label = f"{where}[{name}]", f"{label}[{name}]"
            lost = lost if effect or words == UNKNOWN else place[:depth]
            continue
        declared = keys_of(kind).get(name)
        if declared is None:
            (unknown,) = unknown_keys([name], keys_of(kind), where)
            if effect is None or not effect.strictly:
                findings.add([unknown])
                return place, MISSING
            findings.refuse(unknown.path, unknown.message, effect)
            return lost, MISSING
        where, label = key_path(where, name), name
        if isinstance(declared.field, Idle):
            findings.warn(where, words)
            return place, MISSING
        # A password may be written by mistake where `generate_vpn_password` wants a switch.
        is_hidden |= declared.is_secret or is_secret_key(name)
        if declared.key.wrong and written is not MISSING:
            effect, lost = declared.key.wrong, place[: depth + 1]
        kind = declared.inner or kind
    label = f"`{label}`" if label else "it"
    if written is MISSING:
        sentence = f"{label} {words}"
    else:
        sentence = f"{label} is {MASK if is_hidden else displayed(written)}; {words}"
    findings.refuse(where, sentence, effect)
    return lost, MISSING if effect is None or effect.value is None else effect.value


def _at(tree: Any, name: str | int) -> Any:
    """Return what is written at a key or an index; a null is missing."""
    if isinstance(tree, Mapping):
        tree, name = [value for each, value in tree.items() if key_name(each) == name], 0
    found = tree[name] if isinstance(tree, list) and isinstance(name, int) and name < len(tree) else None
    return MISSING if found is None else found


def _without(tree: Any, place: Place, instead: Any) -> Any:
    """Return the tree with another value at a place; without the key there where that is MISSING."""
    if not place:
        return instead
    if isinstance(tree, list):
        return [_without(item, place[1:], instead) if n == place[0] else item for n, item in enumerate(tree)]
    if not isinstance(tree, Mapping):
        return tree
    changed = {
        name: _without(value, place[1:], instead) if key_name(name) == place[0] else value
        for name, value in tree.items()
    }
    return {name: value for name, value in changed.items() if value is not MISSING}
