# SPDX-License-Identifier: MIT
"""`waldur_site_test_order`: render an order from a template, and check it. As in the reference nothing is carried out:
`plan order_process` and the simulated Waldur (`simulate`) show what becomes of an order.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from agent.cli.options import print_json, select_offerings
from agent.cli.output import echo
from agent.cli.settings import load_settings
from agent.core.account_names import uuid_hex
from agent.core.bounded_json import read_json
from agent.core.errors import SiteAgentError

UUID_FIELDS = ("uuid", "offering_uuid", "marketplace_resource_uuid", "project_uuid", "customer_uuid")
CREATE, UPDATE, TERMINATE = "Create", "Update", "Terminate"


class OrderRefused(SiteAgentError):
    """A template, a variable or a file that no order can be made of."""


def _variable(text: str) -> tuple[str, Any]:
    """Return the name and value of `k=v`; a value that is JSON is what it says, any other is text."""
    name, is_given, value = text.partition("=")
    if not is_given or not name:
        raise OrderRefused(f"--var {text}: write NAME=VALUE")
    try:
        return name, read_json(value)
    except ValueError:
        return name, value


def command(**given: Any) -> int:
    if given["list_templates"]:
        folder = given["template_dir"]
        found = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.json"))
        echo(
            *(
                ["Available templates:", *(f"  - {name}" for name in found)]
                if found
                else ["No templates found"]
            )
        )
        return 0
    if bool(given["template"]) == bool(given["order_file"]):
        raise OrderRefused("give either --template or --order-file")
    started_s = time.monotonic()
    text = _order_text(given, _offering_uuid(given))
    if given["output"]:
        given["output"].write_text(text, encoding="utf-8")
    if given["generate_only"]:
        echo(*text.rstrip("\n").split("\n"))
        return 0
    try:
        order = read_json(text)
    except ValueError as error:
        raise OrderRefused(f"the order is not JSON: {error}") from error
    errors, warnings = check(order)
    result = {
        "success": not errors,
        "order_uuid": order.get("uuid") if isinstance(order, dict) else None,
        "order_type": order.get("type") if isinstance(order, dict) else None,
        "resource_name": _resource_name(order),
        "backend_operations": [],
        "errors": errors,
        "warnings": warnings,
        "execution_time_seconds": round(time.monotonic() - started_s, 3),
    }
    if given["as_json"]:
        print_json(result)
    else:
        _print(result, is_verbose=given["verbose"])
    return 1 if errors else 0


def _offering_uuid(given: Mapping[str, Any]) -> str:
    """Return the uuid of the offering that is named, or of the first one; empty where no file is to be read."""
    named, found = given["offering_uuid"], ""
    with suppress(ValueError):
        found = uuid_hex(named or "")
    reads_none = given["template"] and (given["validate_only"] or given["generate_only"])
    if reads_none and (found or not named):
        return found
    settings = load_settings(given["config_file"])
    return found or next((each.uuid for each in select_offerings(settings, named)), "")


def _order_text(given: Mapping[str, Any], offering_uuid: str) -> str:
    if given["order_file"]:
        try:
            return str(given["order_file"].read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise OrderRefused(f"{given['order_file']} cannot be read: {error}") from error
    made = {"offering_uuid": offering_uuid} if offering_uuid else {}
    environment = SandboxedEnvironment(
        loader=jinja2.FileSystemLoader(given["template_dir"]),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "uuid4": lambda value="": value or uuid.uuid4().hex,
        "timestamp": lambda value="": value or datetime.now(UTC).isoformat(timespec="seconds"),
        "from_json": read_json,
        "to_json": json.dumps,
    }
    try:
        return environment.get_template(given["template"]).render(
            made | dict(map(_variable, given["variables"]))
        )
    except jinja2.TemplateNotFound as error:
        raise OrderRefused(f"there is no template {error.name} in {given['template_dir']}") from error
    except (jinja2.TemplateError, ValueError) as error:
        raise OrderRefused(f"template {given['template']}: {error}") from error


def check(order: Any) -> tuple[list[str], list[str]]:
    """Return what is wrong with an order, and what is unusual about it."""
    if not isinstance(order, dict):
        return ["an order is a map of fields"], []
    errors, warnings = [], []
    kind = order.get("type")
    if kind not in (CREATE, UPDATE, TERMINATE):
        errors.append(f"type is {kind!r}: it is one of {CREATE}, {UPDATE}, {TERMINATE}")
    for field in UUID_FIELDS:
        try:
            if order.get(field):
                uuid_hex(str(order[field]))
        except ValueError:
            errors.append(f"{field} is {order[field]!r}, which is no uuid")
    resource = order.get("marketplace_resource_uuid")
    if kind == CREATE and not order.get("offering_uuid"):
        errors.append("an order that creates needs offering_uuid")
    if kind == CREATE and not (resource and _resource_name(order)):
        warnings.append("an order that creates usually has a resource name and marketplace_resource_uuid")
    if kind in (UPDATE, TERMINATE) and not resource:
        errors.append(f"an order of type {kind} needs marketplace_resource_uuid")
    if kind == UPDATE and not (order.get("limits") or order.get("attributes")):
        warnings.append("an update without limits and attributes changes nothing")
    return errors, warnings


def _resource_name(order: Any) -> str:
    if not isinstance(order, dict):
        return ""
    attributes = order.get("attributes")
    named = attributes.get("name") if isinstance(attributes, dict) else None
    return str(order.get("resource_name") or named or "")


def _print(result: Mapping[str, Any], *, is_verbose: bool) -> None:
    echo(
        f"Test Result: {'SUCCESS' if result['success'] else 'FAILED'}",
        f"Order UUID: {result['order_uuid'] or ''}",
        f"Order Type: {result['order_type'] or ''}",
        f"Resource Name: {result['resource_name']}",
        f"Execution Time: {result['execution_time_seconds']:.2f}s",
    )
    for title, key in (("Warnings", "warnings"), ("Errors", "errors")):
        if result[key]:
            echo(f"{title}:", *(f"  - {sentence}" for sentence in result[key]))
    if is_verbose:
        echo("Backend Operations:", "  - none: nothing is carried out; see `plan order_process`")
