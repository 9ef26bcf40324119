# SPDX-License-Identifier: MIT
"""Everything in examples/ loads, strictly; so do the documents the project started from, where they are."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from agent.cli.config_schema import configuration_schema
from agent.config.keys import keys_of
from agent.config.load import load
from agent.config.model import LogShipping, Mode, Offering
from agent.config.schema import (
    BackendSettingsKeys,
    ComponentKeys,
    ComputedKeys,
    OfferingKeys,
    PolicyKeys,
    RootKeys,
)

from .samples import (
    EXAMPLES,
    OFFERING,
    REPOSITORY,
    SKIPPED,
    UUID,
    changed,
    errors,
    only_offering,
    variables_of,
)

FACTS = Path(os.environ.get("WALDUR_FACTS_DIR", REPOSITORY.parent / "shared"))
SEEDS = sorted((FACTS / "seeds" / "restored").glob("*.yaml"))
CONFIGURATIONS = sorted(file for file in EXAMPLES.glob("*.yaml") if file.name != "config-components.yaml")


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.name)
def test_example_loads_strictly(file: Path) -> None:
    loaded = load(file, {}, strict=True)
    assert loaded.settings is not None, [str(problem) for problem in loaded.problems]


@pytest.mark.skipif(not SEEDS, reason=f"no seeds below {FACTS}")
@pytest.mark.parametrize("file", SEEDS, ids=lambda file: file.name)
def test_seed_loads_strictly_and_its_example_is_the_same(file: Path, tmp_path: Path) -> None:
    """But for the default account: members do not join it, and no example suggests that. A uuid that stands twice in
    a seed, where the document has none, is one of the example's.
    """
    uuids = [
        each["waldur_offering_uuid"]
        for each in yaml.safe_load((EXAMPLES / file.name).read_text())["offerings"]
    ]
    seed = yaml.safe_load(file.read_text())
    for offering, uuid in zip(seed["offerings"], uuids, strict=True):
        offering["waldur_offering_uuid"] = uuid
    own = tmp_path / file.name
    own.write_text(yaml.safe_dump(seed))
    own.chmod(0o600)
    loaded = load(own, {}, strict=True)
    example = load(EXAMPLES / file.name, {})
    assert loaded.settings is not None and example.settings is not None
    wanted = [
        replace(offering, backend_settings=without_default_account(offering))
        for offering in loaded.settings.offerings
    ]
    assert [
        replace(offering, backend_settings=without_default_account(offering))
        for offering in example.settings.offerings
    ] == wanted
    assert not any(
        "default_account" in offering.backend_settings
        for offering in example.settings.offerings
        if offering.backend_type == "slurm"
    )


def without_default_account(offering: Offering) -> dict[str, Any]:
    return {key: value for key, value in offering.backend_settings.items() if key != "default_account"}


def test_slurm_and_moab_sample_means_what_it_says() -> None:
    loaded = load(EXAMPLES / "slurm-and-moab.yaml", {})
    assert loaded.settings is not None
    slurm, moab = loaded.settings.offerings
    assert slurm.events.mqtt_enabled and not slurm.events.stomp_enabled
    assert slurm.homes.umask == "0077"
    assert slurm.components["mem"].limit == 10
    assert moab.backends == dict.fromkeys(Mode, "moab")
    assert moab.names.allocation_prefix == "a_"


def test_stomp_sample_schedules_no_membership() -> None:
    offering = only_offering(load(EXAMPLES / "stomp.yaml", {}))
    assert offering.backends == {Mode.ORDER_PROCESS: "slurm", Mode.REPORT: "custom-slurm-api"}
    assert offering.backend_of(Mode.MEMBERSHIP_SYNC) == ""
    assert offering.events.stomp_enabled
    assert offering.uuid == UUID


@pytest.mark.parametrize(
    ("name", "modes", "account"),
    [
        ("service-pull.env", {Mode.ORDER_PROCESS}, "root"),
        ("service-push.env", {Mode.REPORT, Mode.MEMBERSHIP_SYNC}, "waldur"),
    ],
)
def test_env_files_configure_one_offering(name: str, modes: set[Mode], account: str) -> None:
    tres_file = str(EXAMPLES / "config-components.yaml")
    loaded = load(None, {**variables_of(EXAMPLES / name), "SLURM_TRES_CONFIG_PATH": tres_file}, strict=True)
    assert not errors(loaded)
    offering = only_offering(loaded)
    assert set(offering.backends) == modes
    assert offering.backend_settings["default_account"] == account
    assert offering.command_prefix == ("docker", "exec", "slurmctld")
    assert set(offering.components) == {"cpu", "gres/gpu", "mem"}


def test_annotated_example_shows_every_key() -> None:
    text = (EXAMPLES / "waldur-site-agent-config.yaml").read_text(encoding="utf-8")
    known = {
        key
        for kind in (RootKeys, PolicyKeys, OfferingKeys, BackendSettingsKeys, ComponentKeys, LogShipping)
        for key in keys_of(kind)
    } - keys_of(ComputedKeys).keys()
    assert [key for key in sorted(known) if f"{key}:" not in text] == []


SCHEMA = configuration_schema()


def wrong_places(tree: object) -> set[str]:
    found = jsonschema.Draft202012Validator(SCHEMA).iter_errors(tree)
    return {error.json_path.removeprefix("$.offerings[0].") for error in found}


def test_the_json_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "file", [*CONFIGURATIONS, *SEEDS], ids=lambda file: f"{file.parent.name}/{file.name}"
)
def test_an_editor_finds_nothing_wrong_in_examples(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert wrong_places(yaml.safe_load(text)) == set()
    line = "# yaml-language-server: $schema=waldur-site-agent-schema.json"
    assert text.splitlines()[0] == line or file in SEEDS


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("waldur_api_tokn", "x", ""),
        ("name", 5, "name"),
        ("stomp_enabled", "perhaps", "stomp_enabled"),
        ("stomp_ws_port", 70000, "stomp_ws_port"),
        ("limits_source", "both", "limits_source"),
        ("policy.max_removed_percent", 101, "policy.max_removed_percent"),
        ("policy.budgets.limits_cut.hour", "x", "policy.budgets.limits_cut.hour"),
        ("order_hook", {"command": ["/decide"], "timeout_seconds": 61}, "order_hook.timeout_seconds"),
        ("backend_settings.qos_pause", "stop", "backend_settings"),
        ("backend_settings.execution_mode", "ssh", "backend_settings.execution_mode"),
        ("backend_settings.homedir_quota.provider", "zfs", "backend_settings.homedir_quota.provider"),
        ("backend_settings.deactivate_when_paused", 7, "backend_settings.deactivate_when_paused"),
        (
            "backend_settings.ldap.welcome_email.smtp_port",
            "x",
            "backend_settings.ldap.welcome_email.smtp_port",
        ),
        ("backend_components.cpu.unit_factor", 0, "backend_components.cpu.unit_factor"),
        ("backend_components.cpu.accounting_type", "limits", "backend_components.cpu.accounting_type"),
        ("waldur_offering_uuid", SKIPPED, ""),
    ],
)
def test_an_editor_marks_a_wrong_key_in_its_place(path: str, value: object, place: str) -> None:
    mail = {"smtp_host": "h", "from_address": "a@b", "template_path": "t"}
    directory = {
        "uri": "ldap://h",
        "bind_dn": "a",
        "bind_password": "b",
        "base_dn": "c",
        "welcome_email": mail,
    }
    tree = changed(OFFERING, "backend_settings.ldap", directory)
    assert wrong_places({"offerings": [tree]}) == set()
    found = wrong_places({"offerings": [changed(tree, path, value)]})
    assert found == {place or "$.offerings[0]"}


def test_what_a_file_repeats_and_what_waldur_computes_now_is_not_marked() -> None:
    old = changed(OFFERING, "backend_components.cpu.grace_ratio", 0.2)
    assert wrong_places({"x-cpu": {"a": 1}, "_more": [], "offerings": [changed(old, "queue", None)]}) == set()
