# SPDX-License-Identifier: MIT
"""The JSON Schema says what the agent says: the same defaults, and no value is wrong in one and right in the other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from agent.cli.config_schema import configuration_schema
from agent.config.keys import json_schema, keys_of, table

from .samples import OFFERING, Site
from .test_documentation import ROOTS, kinds
from .test_wrong_kinds import CASES, WRONG, Case, is_refused, path_of, problems_of, put, wrong_value

SCHEMA = configuration_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
KINDS = sorted({each for root in ROOTS for each in kinds(root)}, key=str)


def described(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield all keys of a schema, also within maps and lists, with what it says of them."""
    for name, each in schema.get("properties", {}).items():
        yield name, each
        for below in (each, each.get("items"), each.get("additionalProperties")):
            if isinstance(below, dict):
                yield from described(below)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_default_that_a_table_has_as_a_value_is_in_the_schema(kind: type) -> None:
    properties = json_schema(kind)["properties"]
    for row in list(table(kind, "Key"))[2:]:
        found = re.match(r"\| `(\w+)` \| (?:`\"?([^`]+?)\"?`|([0-9.]+|true|false)) \|", row)
        cell = found and (found[2] or found[3])
        # `unit_factor` is another key, and `cn=nobody,BASE_DN` follows from one.
        if not found or cell in keys_of(kind) or "BASE_DN" in found[0]:
            continue
        default = properties[found[1]]["default"]
        assert cell == (str(default) if isinstance(default, str | list) else str(default).lower()), row


DEFAULTS = {
    "broker_url": "redis://127.0.0.1:6379/0",
    "timezone": "UTC",
    "usage_source": "requested",
    "mode": "sync",
    "limit_cuts": "hold",
    "journal_failures": "go_on",
    "usage_decreases": "hold",
    "stomp_ws_port": 443,
    "stomp_ws_path": "/rmqws-stomp",
    "default_homedir_umask": "0077",
    "emulator_base_url": "http://localhost:8080",
    "permissions": "770",
    "max_removed_members": 50,
}


@pytest.mark.parametrize(("name", "default"), DEFAULTS.items())
def test_a_default_that_follows_from_nothing_written(name: str, default: Any) -> None:
    found = [each["default"] for key, each in described(SCHEMA) if key == name and "default" in each]
    assert default in found


def test_descriptions_stand_alone() -> None:
    for name, each in described(SCHEMA):
        words = each["description"]
        assert not re.search(r"\]\(|\bsee\b|^below$|[,:] (below|above)$", words), (name, words)
        assert len(words) > 3 and words == words.strip(), (name, words)


def marked(tree: Any, place: tuple[str | int, ...]) -> bool:
    """Whether the schema finds something wrong at a place or below it."""
    return any(tuple(error.absolute_path)[: len(place)] == place for error in VALIDATOR.iter_errors(tree))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_it_marks_the_agent_refuses(case: Case) -> None:
    for kind in WRONG:
        value = wrong_value(case.declared, kind)
        place = case.place if case.offering is None else ("offerings", 0, *case.place)
        base = {"offerings": [dict(case.offering or OFFERING)]}
        if marked(put(base, place, value), place):
            assert is_refused(case.declared, kind), (path_of(place), value)
        elif kind == "null":
            assert not case.declared.key.required, path_of(place)


TAKEN = [
    (("log_level",), "warn"),
    (("log_level",), "Fatal"),
    (("log_shipping",), {"enabled": True, "log_level": "error"}),
    (("offerings", 0, "backend_settings", "rest_api"), False),
    (("offerings", 0, "backend_settings", "rest_api"), None),
]


@pytest.mark.parametrize(("place", "value"), TAKEN)
def test_what_the_agent_takes_is_not_marked(site: Site, place: tuple[str | int, ...], value: Any) -> None:
    tree = put({"offerings": [dict(OFFERING)]}, place, value)
    assert path_of(place) not in {problem.path for problem in problems_of(site, tree)}
    assert not marked(tree, place)


@pytest.mark.parametrize(
    ("place", "value"), [(("log_level",), "LOUD"), (("offerings", 0, "backend_settings", "rest_api"), True)]
)
def test_what_neither_takes(site: Site, place: tuple[str | int, ...], value: Any) -> None:
    tree = put({"offerings": [dict(OFFERING)]}, place, value)
    assert path_of(place) in {problem.path for problem in problems_of(site, tree)}
    assert marked(tree, place)
