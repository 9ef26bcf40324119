# SPDX-License-Identifier: MIT
"""Everything in examples/ loads, strictly; so do the documents the project started from, where they are."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.config.load import load
from agent.config.model import Mode, Offering
from agent.config.schema import BACKEND_SETTINGS, COMPONENT, LOG_SHIPPING, OFFERING, POLICY, ROOT

from .samples import EXAMPLES, REPOSITORY, UUID, errors, only_offering, variables_of, warnings

FACTS = Path(os.environ.get("WALDUR_FACTS_DIR", REPOSITORY.parent / "shared"))
SEEDS = sorted((FACTS / "seeds" / "restored").glob("*.yaml"))
CONFIGURATIONS = sorted(file for file in EXAMPLES.glob("*.yaml") if file.name != "config-components.yaml")


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.name)
def test_example_loads_strictly(file: Path) -> None:
    loaded = load(file, {}, strict=True)
    assert loaded.settings is not None, [str(problem) for problem in loaded.problems]


@pytest.mark.skipif(not SEEDS, reason=f"no seeds below {FACTS}")
@pytest.mark.parametrize("file", SEEDS, ids=lambda file: file.name)
def test_seed_loads_strictly_and_its_example_is_the_same(file: Path) -> None:
    """But for the default account: members do not join it, and no example suggests that."""
    loaded = load(file, {}, strict=True)
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
    assert "offerings[1].waldur_offering_uuid" in warnings(loaded)


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
        for schema in (ROOT, POLICY, OFFERING, BACKEND_SETTINGS, COMPONENT, LOG_SHIPPING)
        for key in schema.fields
    }
    assert [key for key in sorted(known) if f"{key}:" not in text] == []
