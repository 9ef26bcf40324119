# SPDX-License-Identifier: MIT
"""What a plug-in declares as secret is printed nowhere, whatever its key is called: `hidden`, or of the type Secret."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from agent.cli.commands import passes, reference
from agent.cli.config_schema import configuration_schema
from agent.config.load import LoadResult
from agent.config.model import OrderHookSettings
from agent.config.render import plain
from agent.observability import sentry
from agent.run.service import configuration

from .samples import CPU, OFFERING, Site

BACKEND = """
from dataclasses import dataclass

from agent.config.findings import Findings, is_unusable
from agent.config.keys import key
from agent.config.reading import read
from agent.config.schema import ClusterKeys
from agent.config.secret import Secret
from backends.base import Parsed


@dataclass(frozen=True, kw_only=True)
class Gate:
    place: str = key("", "where it is")
    knock: Secret | None = key(None, "how to knock")


@dataclass(frozen=True, kw_only=True)
class Settings(ClusterKeys):
    door_code: str = key("", "the code of the door", hidden=True)
    riddle: Secret = key(Secret(""), "the answer to the riddle")
    safe: int = key(0, "the number of the safe", hidden=True)
    gate: Gate = key(Gate(), "the gate")


class Plugin:
    settings = Settings

    def parse(self, raw, path):
        findings = Findings()
        settings = read(Settings, raw, path, findings, open_ended=True)
        return Parsed(None if is_unusable(findings.problems) else settings, findings.problems)


plugin = Plugin()
"""
SECRETS = {
    "door_code": "under-mat",
    "riddle": "a-river",
    "safe": 77665544,
    "gate": {"place": "north", "knock": "thrice"},
}
TEXTS = ("under-mat", "a-river", "77665544", "thrice")
PLACES = ["command_prefix", "door_code", "gate.knock", "riddle", "safe", "target_api_token"]


@pytest.fixture(autouse=True)
def odd(install: Callable[[str], None]) -> None:
    install(BACKEND)


def loaded(
    site: Site, settings: dict[str, Any], *, with_logins: bool = True, token: str = "t0ken"
) -> LoadResult:
    offering = {
        **OFFERING,
        "waldur_api_token": token,
        "waldur_api_token_env": "" if token else "TOKEN",
        "order_processing_backend": "odd",
        "preserve_unmanaged_backend_users": True,
        "backend_settings": settings,
        "backend_components": {"cpu": CPU},
    }
    site.file.write_text(yaml.safe_dump({"offerings": [offering]}))
    site.file.chmod(0o600)
    return configuration.checked(site.file, {}, strict=True, with_logins=with_logins)


def test_config_check_prints_none(site: Site) -> None:
    assert loaded(site, SECRETS).problems == ()
    printed = CliRunner().invoke(passes.config_check, ["-c", str(site.file), "--json"]).output
    (offering,) = json.loads(printed)["settings"]["offerings"]
    assert offering["backend_settings"] == {
        "door_code": "***", "riddle": "***", "safe": "***", "gate": {"place": "north", "knock": "***"},
    }  # fmt: skip
    assert not [text for text in TEXTS if text in printed]


def test_a_process_without_logins_has_none(site: Site) -> None:
    result = loaded(site, SECRETS, with_logins=False)
    assert result.settings is not None
    for offering in (*result.settings.offerings, *result.offerings):
        assert "north" in str(offering.backend_settings)
        assert not [text for text in TEXTS if text in str(offering.backend_settings)]


@pytest.mark.parametrize("key", SECRETS)
def test_a_file_with_one_that_everybody_may_read_is_warned_of(site: Site, key: str) -> None:
    loaded(site, {key: SECRETS[key]}, token="")
    site.file.chmod(0o644)
    (problem,) = configuration.checked(site.file, {"TOKEN": "t0ken"}, strict=True).problems
    assert (problem.path, problem.severity) == (str(site.file), "warning")
    assert "chmod 600" in problem.message


def test_none_goes_to_sentry(site: Site) -> None:
    settings = loaded(site, SECRETS).settings
    assert settings is not None
    assert set(TEXTS) <= set(sentry.secrets_of(settings))


@pytest.mark.parametrize("key", ["door_code", "riddle", "safe", "gate.knock"])
def test_a_wrong_value_is_masked(site: Site, key: str) -> None:
    wrong: Any = "4321-4321" if key == "safe" else 43214321
    name, _, below = key.partition(".")
    (problem,) = loaded(site, {name: {below: wrong} if below else wrong}).problems
    assert problem.path == f"offerings[0].backend_settings.{key}"
    assert "is ***; " in problem.message and "4321" not in problem.message


def test_forms_and_editors_are_told() -> None:
    plugins = json.loads(CliRunner().invoke(reference.catalogue).output)["plugins"]
    (mine,) = (each for each in plugins if each["name"] == "odd" and "reporting" in each["roles"])
    assert mine["secret_settings"] == PLACES
    assert sorted(write_only(mine["settings_schema"])) == PLACES
    (ldap,) = (each for each in plugins if each["name"] == "ldap")
    assert ldap["secret_settings"] == ["ldap.bind_password", "ldap.welcome_email.smtp_password"]
    whole = set(write_only(configuration_schema()))
    assert {"broker_url", "sentry_dsn", "offerings.waldur_api_token"} <= whole
    assert {f"offerings.backend_settings.{place}" for place in PLACES} <= whole


def write_only(schema: dict[str, Any], place: str = "") -> Iterator[str]:
    for name, each in schema.get("properties", {}).items():
        here = f"{place}.{name}".lstrip(".")
        if each.get("writeOnly"):
            yield here
        yield from write_only(each, here)
        yield from write_only(each.get("items", {}), here)


def test_a_dataclass_of_settings_shows_none_either() -> None:
    hook = replace(OrderHookSettings(), command=("/bin/decide", "--pin", "1234"))
    assert plain(hook)["command"] == "***"
