# SPDX-License-Identifier: MIT
"""A new key of a backend, in its settings or in components, is one declaration: the check of the configuration, the
schema for editors, the catalogue and the tables of the documents know it.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from agent.cli.commands import passes, reference
from agent.cli.config_schema import configuration_schema
from agent.config.keys import table
from agent.config.load import LoadResult
from agent.config.model import Mode, Problem, Severity
from agent.core.errors import ConfigError
from agent.run.service import configuration
from backends import registry

from .samples import CPU, OFFERING, REPOSITORY, Site

# What an author of a backend writes; its `connect` is of no interest here.
BACKEND = """
from dataclasses import dataclass

from agent.config.field_types import choice, whole
from agent.config.findings import Findings, is_unusable
from agent.config.keys import WrongValue, idle, key, required
from agent.config.model import Mode
from agent.config.reading import read
from agent.config.schema import ClusterKeys
from backends.base import Parsed


@dataclass(frozen=True, kw_only=True)
class Settings(ClusterKeys):
    motto: str = key("none", "what the site says", of=choice("none", "more light"))
    door_code: str = key("", "the code of the door", hidden=True, of=choice("", "1234"))
    colour: str = idle("doors have one colour")


@dataclass(frozen=True, kw_only=True)
class Components:
    disk: str = required("the kind of disk")
    copies: int = key(1, "how many", of=whole(1, 3), wrong=WrongValue(frozenset({Mode.REPORT})))


class Plugin:
    settings = Settings
    component_keys = Components

    def parse(self, raw, path):
        findings = Findings()
        settings = read(Settings, raw, path, findings, open_ended=True)
        return Parsed(None if is_unusable(findings.problems) else settings, findings.problems)


plugin = Plugin()
"""
SERVED = ("order_processing_backend", "membership_sync_backend", "reporting_backend")
ODD: Mapping[str, Any] = {
    **OFFERING,
    **dict.fromkeys(SERVED, "odd"),
    "preserve_unmanaged_backend_users": True,
    "backend_settings": {"motto": "more light"},
    "backend_components": {"cpu": {**CPU, "disk": "fast"}},
}


@pytest.fixture(autouse=True)
def odd(install: Callable[[str], None]) -> None:
    install(BACKEND)


def check(site: Site, offering: Mapping[str, Any], *, strict: bool = False) -> dict[str, Problem]:
    problems = loaded(site, offering, strict=strict).problems
    return {problem.path.removeprefix("offerings[0]."): problem for problem in problems}


def loaded(site: Site, offering: Mapping[str, Any], *, strict: bool = False) -> LoadResult:
    site.file.write_text(yaml.safe_dump({"offerings": [dict(offering)]}))
    site.file.chmod(0o600)
    return configuration.checked(site.file, {}, strict=strict)


def test_it_is_checked(site: Site) -> None:
    assert check(site, ODD, strict=True) == {}
    wrong = {
        **ODD,
        "backend_settings": {
            "motto": "loud",
            "door_code": "4321",
            "moto": 1,
            "colour": "red",
            "cluster_name": [],
        },
        "backend_components": {"cpu": {**CPU, "copies": 4, "disc": "fast"}},
    }
    found = check(site, wrong)
    messages = {path: problem.message for path, problem in found.items()}
    modes = "until then membership_sync, order_process, report are off for this offering"
    assert messages == {
        "backend_settings.motto": f"`motto` is 'loud'; use one of none, more light; {modes}",
        "backend_settings.door_code": f"`door_code` is ***; use one of , 1234; {modes}",
        "backend_settings.moto": "unknown key 'moto'; did you mean 'motto'?",
        "backend_settings.colour": "it has no effect here: doors have one colour",
        "backend_settings.cluster_name": f"`cluster_name` is a list; text is needed: put it in quotes; {modes}",
        "backend_components.cpu.copies": "`copies` is 4; use a whole number from 1 to 3; "
        "until then report is off for this offering",
        "backend_components.cpu.disk": f"`disk` is missing; {modes}",
        "backend_components.cpu.disc": "unknown key 'disc'; did you mean 'disk'?",
    }
    assert found["backend_components.cpu.copies"].stopped_modes == {Mode.REPORT}
    printed = CliRunner().invoke(passes.config_check, ["-c", str(site.file), "--json"]).output
    document = json.loads(printed)
    severities = {
        each["path"].removeprefix("offerings[0]."): each["severity"] for each in document["problems"]
    }
    assert severities == {
        path: Severity.WARNING if path.endswith("colour") else Severity.ERROR for path in messages
    }
    assert (document["ok"], document["settings"], "4321" in printed) == (False, None, False)


def test_a_wrong_value_in_a_component_stops_the_modes_that_the_key_names(site: Site) -> None:
    settings = loaded(
        site, {**ODD, "backend_components": {"cpu": {**CPU, "disk": "x", "copies": 4}}}
    ).settings
    assert settings is not None
    assert registry.configure(settings.offerings[0], Mode.ORDER_PROCESS).settings.motto == "more light"
    with pytest.raises(ConfigError, match="`copies` is 4"):
        registry.configure(settings.offerings[0], Mode.REPORT)


def test_editors_know_it() -> None:
    schema = configuration_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    offering = schema["properties"]["offerings"]["items"]["properties"]
    settings = offering["backend_settings"]["properties"]
    assert settings["motto"] == {
        "enum": ["none", "more light", None], "default": "none", "description": "what the site says",
    }  # fmt: skip
    assert settings["colour"] == {"deprecated": True, "description": "no effect: doors have one colour"}
    validator = jsonschema.Draft202012Validator(schema)
    assert list(validator.iter_errors({"offerings": [dict(ODD)]})) == []
    # A file of another backend does not need what this one requires.
    assert (
        list(validator.iter_errors({"offerings": [{**OFFERING, "backend_components": {"cpu": CPU}}]})) == []
    )
    wrong = {**ODD, "backend_components": {"cpu": {**CPU, "disk": 5, "copies": 4}}}
    paths = {".".join(map(str, error.path)) for error in validator.iter_errors({"offerings": [wrong]})}
    assert paths == {f"offerings.0.backend_components.cpu.{key}" for key in ("disk", "copies")}


def test_the_catalogue_has_it() -> None:
    plugins = json.loads(CliRunner().invoke(reference.catalogue).output)["plugins"]
    (mine,) = (each for each in plugins if each["name"] == "odd" and "reporting" in each["roles"])
    assert mine["settings_schema"]["properties"]["motto"]["default"] == "none"
    assert {"door_code", "command_prefix"} <= set(mine["secret_settings"])
    components = mine["component_schema"]
    assert components["properties"]["copies"] == {
        "type": ["integer", "null"], "minimum": 1, "maximum": 3, "default": 1, "description": "how many",
    }  # fmt: skip
    assert components["properties"]["disk"] == {"type": ["string"], "description": "the kind of disk"}
    assert {"disk", "label"} <= set(components["required"]) and "copies" not in components["required"]


def test_a_table_has_it() -> None:
    """Without the keys that it shares with the agent, which have a table of their own."""
    assert list(table(registry.load("odd").settings, "Key"))[2:] == [
        "| `motto` | `none` | what the site says |",
        "| `door_code` | none | the code of the door |",
        "| `colour` | | no effect: doors have one colour |",
    ]


def test_a_page_of_the_documents_gets_the_table(tmp_path: Path) -> None:
    kind = registry.load("odd").component_keys
    page = tmp_path / "page.md"
    page.write_text(f"Text\n\n<!-- keys: {kind.__module__}:{kind.__name__} -->\n\nmore\n")
    made = runpy.run_path(str(REPOSITORY / "docs" / "generate.py"))["with_tables"](page)
    assert "| `disk` | required | the kind of disk |\n| `copies` | 1 | how many |\n" in made
