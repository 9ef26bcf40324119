# SPDX-License-Identifier: MIT
"""The published API description of 8.0.5, with its known mistakes patched, as a judge of answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml
from jsonschema import FormatChecker  # type: ignore[import-untyped]

from tests.simulator.facts import openapi_file

# Fields that the recorded server prints as null although the description does not let them be.
_RECORDED_NULLS = (
    *(
        (name, image)
        for name in ("OrderDetails", "Resource")
        for image in ("offering_image", "offering_thumbnail", "category_icon")
    ),
    ("Resource", "scope"),
    ("Resource", "project_end_date_requested_by"),
    ("ProviderOfferingDetails", "scope"),
    ("ServiceProvider", "customer_image"),
    ("Project", "oecd_fos_2007_label"),
    ("ComponentUserUsage", "user"),
)
_RECORDED_NULL_VALUES = (("BaseProviderPlan", "future_prices"), ("ProviderPlanDetails", "future_prices"))
# Objects the server prints as null although the description says `allOf` + nullable, which no strict
# validator lets through.
_NULL_OBJECTS = (
    ("OrderDetails", "issue"),
    ("Resource", "order_in_progress"),
    ("Resource", "creation_order"),
)
# Decimals the server prints as strings; the description says integer.
_STRING_DECIMALS = (("ComponentUsage", "usage"), ("ComponentUserUsage", "usage"))
# Formats worth checking; the server's uuids have no dashes, and it does not print strict URIs.
_FORMATS = FormatChecker(formats=("date", "ipv4", "ipv6"))


@cache
def document() -> dict[str, Any]:
    text = openapi_file().read_text()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loaded: dict[str, Any] = yaml.load(text, Loader=loader)
    schemas = loaded["components"]["schemas"]
    for name, field in _RECORDED_NULLS:
        schemas[name]["properties"][field]["nullable"] = True
    for name, field in _RECORDED_NULL_VALUES:
        schemas[name]["properties"][field]["additionalProperties"]["nullable"] = True
    for name, field in _NULL_OBJECTS:
        reference = schemas[name]["properties"][field]["allOf"][0]["$ref"]
        schemas[name]["properties"][field] = schemas[reference.rpartition("/")[2]] | {"nullable": True}
    for name, field in _STRING_DECIMALS:
        schemas[name]["properties"][field] = {"type": "string", "format": "decimal"}
    return loaded


def answer_schema(method: str, path: str, status: int) -> dict[str, Any] | None:
    """The schema of a JSON answer; None when the description promises no body."""
    for template, operations in document()["paths"].items():
        if not re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            continue
        answers = operations.get(method.lower(), {}).get("responses", {})
        content = answers.get(str(status), {}).get("content", {})
        schema: dict[str, Any] | None = content.get("application/json", {}).get("schema")
        return schema
    raise LookupError(f"{path} is not described")


def problems(schema: dict[str, Any], body: Any) -> list[str]:
    # Imported here: with pydantic, its import takes 0.1 s of each process that collects the tests.
    from openapi_schema_validator import OAS30ReadValidator

    whole = schema | {"components": document()["components"]}
    validator = OAS30ReadValidator(whole, format_checker=_FORMATS)
    found = [f"{error.json_path}: {error.message[:120]}" for error in validator.iter_errors(body)]
    return found + sorted(set(_invented(schema, body, "$")))


def undescribed(schema_name: str, body: dict[str, Any]) -> set[str]:
    """Fields of the described object that the body does not have."""
    described: dict[str, Any] = document()["components"]["schemas"][schema_name]["properties"]
    return described.keys() - body.keys()


def _invented(schema: dict[str, Any], body: Any, where: str) -> Iterator[str]:
    """Keys of described objects that the description does not know."""
    schema = _resolved(schema)
    if isinstance(body, list):
        for item in body:
            yield from _invented(schema.get("items", {}), item, f"{where}[]")
    if not isinstance(body, dict) or "properties" not in schema:
        return
    for name, value in body.items():
        if name in schema["properties"]:
            yield from _invented(schema["properties"][name], value, f"{where}.{name}")
        elif "additionalProperties" not in schema:
            yield f"{where}.{name}: not described"


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema or "allOf" in schema:
        reference = schema.get("$ref") or schema["allOf"][0].get("$ref", "")
        schema = document()["components"]["schemas"][reference.rpartition("/")[2]]
    return schema
