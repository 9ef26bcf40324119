# SPDX-License-Identifier: MIT
"""`backend_settings` and `backend_components` of MOAB: what they mean, and the sentence when they cannot be."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from agent.config.keys import keys_of
from agent.config.model import Mode, Severity
from agent.config.schema import BackendSettingsKeys
from agent.core.model import AccountingType, Component
from backends.base import ComponentRules, KeysWithoutEffect, UserHomes
from backends.moab.plugin import plugin
from backends.moab.schema import MoabSettings, parse

DEPOSIT = Component("deposit", "EUR", AccountingType.LIMIT, "Deposit (EUR)")
CPU = Component("cpu", "h", AccountingType.LIMIT, "CPU", unit_factor=60)


def settings(**raw: Any) -> MoabSettings:
    found = parse(raw, "s")
    assert found.problems == ()
    assert isinstance(found.settings, MoabSettings)
    return found.settings


MEANT: list[tuple[str, Any, str, Any]] = [
    ("default_account", "Users", "default_account", "users"),
    ("default_account", None, "default_account", "root"),
    ("default_account", "", "default_account", "root"),
    ("default_account", 42, "default_account", "42"),
    ("cluster_name", "Old", "cluster_name", "old"),
    ("cluster_name", None, "cluster_name", ""),
    ("moab_bin_path", "/opt/mam/bin", "bin_path", "/opt/mam/bin"),
    ("moab_bin_path", None, "bin_path", ""),
    ("command_prefix", ["ssh", "head"], "command_prefix", ("ssh", "head")),
    ("command_prefix", "docker exec 'a b'", "command_prefix", ("docker", "exec", "a b")),
    ("command_prefix", None, "command_prefix", ()),
    ("deactivate_when_paused", "yes", "deactivate_when_paused", True),
    ("deactivate_when_downscaled", True, "deactivate_when_downscaled", True),
    ("manage_default_accounts", True, "manage_default_accounts", True),
]


def test_without_keys_nothing_is_switched_on() -> None:
    assert settings() == MoabSettings()
    assert MoabSettings() == MoabSettings(
        default_account="root", cluster_name="", bin_path="", command_prefix=(), deactivate_when_paused=False,
        deactivate_when_downscaled=False, manage_default_accounts=False,
    )  # fmt: skip


@pytest.mark.parametrize(("key", "value", "name", "meant"), MEANT)
def test_keys_mean_what_they_say_and_only_that(key: str, value: Any, name: str, meant: Any) -> None:
    found = settings(**{key: value})
    assert getattr(found, name) == meant
    others = {field.name for field in fields(found)} - {name}
    assert all(getattr(found, other) == getattr(MoabSettings(), other) for other in others)


@pytest.mark.parametrize(
    ("key", "value"),
    [("deactivate_when_paused", "perhaps"), ("manage_default_accounts", 7), ("moab_bin_path", ["a"])],
)
def test_a_wrong_value_is_an_error_at_its_place(key: str, value: Any) -> None:
    found = parse({key: value}, "offerings[1].backend_settings")
    assert found.settings is None
    assert [(p.severity, p.path) for p in found.problems] == [
        (Severity.ERROR, f"offerings[1].backend_settings.{key}")
    ]


@pytest.mark.parametrize(
    ("key", "value"), [("command_prefix", 5), ("default_account", {"a": 1}), ("cluster_name", [])]
)
def test_a_wrong_value_of_a_key_that_the_agent_reads_as_well_stops_all_modes(key: str, value: Any) -> None:
    found = parse({key: value}, "offerings[1].backend_settings")
    (problem,) = found.problems
    assert found.settings is None
    assert problem.path == f"offerings[1].backend_settings.{key}"
    assert problem.stopped_modes == frozenset(Mode)


def test_the_settings_of_the_reference_are_known() -> None:
    keys = {"default_account", "enable_user_homedir_account_creation", "homedir_umask", "command_prefix"}
    assert keys < keys_of(BackendSettingsKeys).keys() | keys_of(MoabSettings).keys()


def test_only_deposit_counts_and_by_itself() -> None:
    assert isinstance(plugin, ComponentRules)
    known = plugin.known_components({"cpu": CPU, "deposit": DEPOSIT}, "o.c")
    assert known.components == {"deposit": DEPOSIT}
    assert [str(p) for p in known.problems] == [
        "warning: o.c.cpu: MOAB knows no component but `deposit`: it is ignored"
    ]


@pytest.mark.parametrize(
    "otherwise",
    [{"unit_factor": 100.0}, {"unit_factor_reporting": 2.0}, {"targets": {"cpu": 5.0}}],
    ids=lambda keys: next(iter(keys)),
)
def test_factors_of_a_deposit_are_ignored_and_reported(otherwise: dict[str, Any]) -> None:
    asked = Component("deposit", "EUR", AccountingType.LIMIT, "Deposit (EUR)", **otherwise)
    known = plugin.known_components({"deposit": asked}, "o.c")
    assert known.components == {"deposit": DEPOSIT}
    assert [(p.severity, p.path) for p in known.problems] == [(Severity.WARNING, "o.c.deposit")]
    assert "ignored" in known.problems[0].message


def test_without_deposit_there_is_nothing_to_sell() -> None:
    known = plugin.known_components({"cpu": CPU}, "o.c")
    assert known.components == {}
    assert [(p.severity, p.path) for p in known.problems] == [
        (Severity.WARNING, "o.c.cpu"),
        (Severity.ERROR, "o.c.deposit"),
    ]


def test_users_get_homes_on_the_head_node_where_the_file_asks_for_them() -> None:
    assert isinstance(plugin, UserHomes)
    assert (plugin.homes_on_head_node, plugin.homes_unasked) == (True, False)


def test_common_keys_that_it_cannot_serve_are_keys() -> None:
    assert isinstance(plugin, KeysWithoutEffect)
    assert plugin.keys_without_effect.keys() <= keys_of(BackendSettingsKeys).keys()


def test_a_host_without_the_programs_is_an_error_that_names_them(tmp_path: Path) -> None:
    assert "mam-list-accounts is not on this host" in plugin.missing(settings())
    assert f"{tmp_path}/mam-list-accounts is not" in plugin.missing(settings(moab_bin_path=str(tmp_path)))
    assert plugin.missing(settings(command_prefix=["env"])) == ""
    assert "nosuch is not on this host" in plugin.missing(settings(command_prefix=["nosuch"]))
