# SPDX-License-Identifier: MIT
"""A key of the configuration is one declaration: a field of a frozen dataclass, made by `key`.

The field's annotation is the type; `key` adds the default, the meaning and the effect of a wrong value. The marshmallow
schemas, the tables of the documents, the catalogue of plug-ins and the JSON Schema for editors are made from it. A key
that two of them read is declared in a dataclass that both inherit.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args, get_origin, get_type_hints

from marshmallow import RAISE, Schema, ValidationError, fields, post_load, pre_load, validate

from agent.config.field_types import Several, Text, flag, key_name, number, whole
from agent.config.secret import Secret, is_secret_key

if TYPE_CHECKING:
    from agent.config.model import Mode

UNKNOWN = "unknown key"
# What leads on in a page and nowhere in an editor: ", see below", ": [reports](reports.md)", " ([events](events.md))".
_POINTER = re.compile(
    r"[,:] (?:see )?\[(?:see )?(?:below|above)\]\([^)]*\)|[,:] see (?:below|above)\b|: \[[^]]*\]\([^)]*\)(?=\.|$)"
    r"| \(\[[^]]*\]\([^)]*\)\)"
)
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
MAP = ["object", "null"]


@dataclass(frozen=True, slots=True)
class WrongValue:
    """The effect of a wrong value, also below the key, that is no error of the whole file: the key counts as not
    written, or as another value.
    """

    # Modes of its offering that are off.
    stopped_modes: frozenset[Mode] = frozenset()
    # What is done instead, in words.
    fallback: str = ""
    # The key counts as this.
    value: Any = None
    # Unknown keys below it are wrong values too.
    strictly: bool = False

    @property
    def sentence(self) -> str:
        """Return what holds until the value is set right."""
        modes = sorted(self.stopped_modes)
        off = f"{', '.join(modes)} {'is' if len(modes) == 1 else 'are'} off for this offering"
        return f"until then {off if modes else self.fallback}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What is declared of a key."""

    meaning: str
    wrong: WrongValue | None = None
    # As it is written, where the field has another name.
    name: str = ""
    # The field type, where the annotation does not say enough.
    of: fields.Field[Any] | None = None
    # What stands in a list or map that is read one by one.
    each: type | None = None
    # What a null means, where it is not "not given".
    null: Any = None
    # The default in words.
    usual: str | None = None
    # The default as a file has it, where the field's own stands for it.
    usual_value: Any = None
    # Messages do not contain the value.
    hidden: bool = False
    required: bool = False
    # false is "not given", too: for a map.
    may_be_false: bool = False
    # The dataclass of the map, where that is read apart.
    section: type | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """A key with what follows from its dataclass."""

    key: Key
    attribute: str
    default: Any
    field: fields.Field[Any]
    # The dataclass of the map, maps or list below it.
    inner: type | None
    # Its value must not be printed: it is `hidden`, of the type Secret, or a text whose name says so.
    is_secret: bool


def key(default: Any, meaning: str, **declared: Any) -> Any:
    """Declare a key on a field of a dataclass; `declared` is the rest of `Key`."""
    made = Key(meaning=meaning, **declared)
    how: dict[str, Any] = {"default_factory": dict} if default is dict else {"default": default}
    return dataclasses.field(**how, repr=not made.hidden, metadata={"key": made})


def required(meaning: str, **declared: Any) -> Any:
    """Declare a key that has to be written; drafts have an empty text."""
    return key("", meaning, required=True, **declared)


class Idle(fields.Field[None]):
    """The type of a key that nothing reads: whatever is written, its `message` is a warning."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = message

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> None:
        raise ValidationError(self.message)


def idle(why: str, **declared: Any) -> Any:
    """Declare a key that files may have and that has no effect; `why` goes on after that."""
    return key(None, f"no effect: {why}", of=Idle(f"it has no effect here: {why}"), usual="", **declared)


class _Section(Schema):
    """A map of keys; a null, or an empty map, counts as not given."""

    kind: ClassVar[type]

    @pre_load
    def _without_nulls(self, data: Any, **_: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        declared, given = keys_of(self.kind), {}
        for name, value in data.items():
            each = declared.get(key_name(name))
            is_empty_map = value == {} and each is not None and isinstance(each.field, fields.Nested)
            if each is None:
                given[key_name(name)] = UNKNOWN
            elif value is not None and not is_empty_map and not (value is False and each.key.may_be_false):
                given[key_name(name)] = value
            elif each.key.null is not None:
                given[key_name(name)] = each.key.null
        return given

    @post_load
    def _made(self, data: Mapping[str, Any], **_: Any) -> Any:
        return self.kind(**data)


@cache
def keys_of(kind: type) -> Mapping[str, Declared]:
    """Return the keys that a dataclass declares, by the names under which they are written."""
    hints, found = get_type_hints(kind), {}
    for each in dataclasses.fields(kind):
        declared: Key | None = each.metadata.get("key")
        if declared is None:
            continue
        name = declared.name or each.name
        field = declared.of or _field(hints[each.name])
        field.data_key, field.required = name, declared.required
        field.error_messages = {**field.error_messages, "required": "is missing"}
        default = {} if each.default is dataclasses.MISSING else each.default
        nested = field.inner if isinstance(field, fields.List) else field
        is_nested = isinstance(nested, fields.Nested)
        inner = nested.schema.kind if is_nested else declared.each or declared.section  # type: ignore[attr-defined]
        is_named_so = isinstance(field, Text) and is_secret_key(name)
        is_secret = declared.hidden or is_named_so or _is_secret_type(hints[each.name])
        found[name] = Declared(declared, each.name, default, field, inner, is_secret)
    return types.MappingProxyType(found)


@cache
def schema_of(kind: type, unknown: Literal["raise", "exclude"] = RAISE) -> Schema:
    """Return the marshmallow schema whose `load` makes the dataclass."""
    own = {each.attribute: each.field for each in keys_of(kind).values()}
    words = {"unknown": UNKNOWN, "type": "a map of keys is needed"}
    made: type[Schema] = type(kind.__name__, (_Section,), {**own, "kind": kind, "error_messages": words})
    return made(unknown=unknown)


_FIELDS: Mapping[Any, Callable[[], fields.Field[Any]]] = {
    bool: flag,
    int: whole,
    float: number,
    str: Text,
    Secret: lambda: Text(Secret, strip=False),
}


def _field(hint: Any) -> fields.Field[Any]:
    """Return marshmallow's field for an annotation."""
    if isinstance(hint, types.UnionType):
        hint = next(each for each in get_args(hint) if each is not types.NoneType)
    origin = get_origin(hint) or hint
    if origin is tuple:
        return Several(_field(get_args(hint)[0]))
    if is_dataclass(hint):
        return fields.Nested(lambda: schema_of(cast(type, hint)))
    if issubclass(origin, Enum):
        return fields.Enum(hint, by_value=True, error_messages={"unknown": "use one of {choices}"})
    if issubclass(origin, Mapping):
        return fields.Dict(error_messages={"invalid": "a map of keys is needed"})
    return _FIELDS[hint]()


def _is_secret_type(hint: Any) -> bool:
    if parts := get_args(hint):
        return any(map(_is_secret_type, parts))
    return isinstance(hint, type) and issubclass(hint, Secret)


def table(kind: type, heading: str) -> Iterator[str]:
    """Yield the lines of the table of a dataclass's keys, for the documents. Those that it inherits have their own."""
    yield from (f"| {heading} | Default | Meaning |", "|---|---|---|")
    own = inspect.get_annotations(kind)
    for name, each in keys_of(kind).items():
        if each.attribute not in own:
            continue
        usual = each.key.usual
        if usual is None:
            value = _usual_value(each)
            usual = (
                str(value).lower()
                if isinstance(value, bool | int | float)
                else f"`{value}`"
                if value
                else "none"
            )
        yield f"| `{name}` | {'required' if each.key.required else usual} | {each.key.meaning} |".replace(
            "|  |", "| |"
        )


def json_schema(*kinds: type, **more: Any) -> dict[str, Any]:
    """Return the JSON Schema of a map with the keys of these dataclasses. Each that is not required may be null: that
    is not written.
    """
    keys = {name: each for kind in kinds for name, each in keys_of(kind).items()}
    properties = {name: _json_of_key(each) for name, each in keys.items()}
    wanted = [name for name, each in keys.items() if each.key.required]
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": wanted} if wanted else {}),
        **more,
    }


def secret_keys(*kinds: type) -> list[str]:
    """Return the keys whose values must not be printed; below a key as `gate.code`."""
    found: set[str] = set()
    for kind in kinds:
        for name, each in keys_of(kind).items():
            if each.is_secret:
                found.add(name)
            elif each.inner is not None and each.key.section is None:
                found |= {f"{name}.{below}" for below in secret_keys(each.inner)}
    return sorted(found)


_JSON_TYPES = {
    fields.Boolean: "boolean",
    fields.Integer: "integer",
    fields.Float: "number",
    fields.List: "array",
    fields.Dict: "object",
    fields.String: "string",
}


def _json(field: fields.Field[Any]) -> dict[str, Any]:
    """Return what the JSON Schema says of a value of this type."""
    usual = [name for kind, name in _JSON_TYPES.items() if isinstance(field, kind)]
    found: dict[str, Any] = {"type": [*getattr(field, "json_types", usual), "null"]}
    if isinstance(field, Idle):
        found = {"deprecated": True}
    elif isinstance(field, fields.Nested):
        found = json_schema(field.schema.kind, type=MAP)  # type: ignore[attr-defined]
    elif isinstance(field, fields.Enum):
        found = {"enum": [*(member.value for member in field.enum), None]}
    elif isinstance(field, fields.List):
        found["items"] = _json(field.inner)
    for check in field.validators:
        if isinstance(field, Text) and field.json_pattern:
            found["pattern"] = field.json_pattern
        elif isinstance(check, validate.OneOf):
            found = {"enum": [*check.choices, None]}
        elif isinstance(check, validate.Range):
            least = "minimum" if check.min_inclusive else "exclusiveMinimum"
            edges = {least: check.min, "maximum": check.max}
            found |= {name: edge for name, edge in edges.items() if edge is not None}
    return found


def _json_of_key(each: Declared) -> dict[str, Any]:
    """Return what the JSON Schema says of a key."""
    found = _json(each.field)
    if each.key.section is not None:
        found = json_schema(each.key.section, type=MAP)
    elif each.key.each is not None:
        below = "items" if isinstance(each.field, fields.List) else "additionalProperties"
        found[below] = json_schema(each.key.each, type=MAP)
    if each.key.may_be_false:
        found |= {"type": [*MAP, "boolean"], "not": {"const": True}}
    for name in {"type", "enum"} & found.keys() if each.key.required else ():
        found[name] = [value for value in found[name] if value not in ("null", None)]
    default = _usual_value(each)
    if default not in ("", None):
        found["default"] = default
    if each.is_secret:
        found["writeOnly"] = True
    return {**found, "description": _LINK.sub(r"\1", _POINTER.sub("", each.key.meaning))}


def _usual_value(each: Declared) -> Any:
    """Return a default as a file would have it; None where it is no plain value."""
    value = each.default if each.key.usual_value is None else each.key.usual_value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        return list(value) or None
    return value if isinstance(value, str | int | float) else None
