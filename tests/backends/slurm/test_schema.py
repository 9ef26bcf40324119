# SPDX-License-Identifier: MIT
"""`backend_settings` of SLURM: every key with its default, what it may be, and the sentence when it may not."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from agent.config.keys import keys_of
from agent.config.model import Mode, Severity
from agent.config.schema import ClusterKeys
from agent.core.model import OwnQos
from backends.slurm.plugin import plugin
from backends.slurm.schema import SlurmSettings, parse

DEFAULTS = SlurmSettings(
    default_account="root",
    root_account="root",
    default_account_policy="common",
    parent_account="",
    cluster_name="",
    bin_path="/usr/bin",
    command_prefix=(),
    default_partition="",
    enforce_offering_partitions=False,
    qos_default="normal",
    qos_downscaled="",
    qos_paused="",
    qos_enforcement_enabled=False,
    enforce_offering_qos=None,
    own_qos=None,
)


def settings(**raw: Any) -> SlurmSettings:
    found = parse(raw, "s")
    # A default account that is written is always remarked on.
    assert {problem.path for problem in found.problems} <= {"s.default_account"}
    assert isinstance(found.settings, SlurmSettings)
    return found.settings


def test_defaults_are_the_references() -> None:
    assert settings() == DEFAULTS


MEANT: list[tuple[str, Any, str, Any]] = [
    ("default_account", "Users", "default_account", "users"),
    ("default_account", "Users", "root_account", "users"),
    ("default_account", None, "default_account", "root"),
    ("default_account", "", "default_account", "root"),
    ("root_account", "Top", "root_account", "top"),
    ("root_account", "top", "default_account", "root"),
    ("root_account", None, "root_account", "root"),
    ("default_account_policy", "common", "default_account_policy", "common"),
    ("default_account_policy", None, "default_account_policy", "common"),
    ("default_account_policy", "individual", "default_account_policy", "individual"),
    ("default_account_policy", "none", "default_account_policy", "none"),
    ("parent_account", "Flat", "parent_account", "flat"),
    ("parent_account", None, "parent_account", ""),
    ("cluster_name", "Alpha", "cluster_name", "alpha"),
    ("cluster_name", None, "cluster_name", ""),
    ("slurm_bin_path", "/opt/slurm/bin", "bin_path", "/opt/slurm/bin"),
    ("slurm_bin_path", "", "bin_path", ""),
    ("slurm_bin_path", None, "bin_path", ""),
    ("execution_mode", "cli", "execution_mode", "cli"),
    ("command_prefix", ["docker", "exec", "slurmctld"], "command_prefix", ("docker", "exec", "slurmctld")),
    ("command_prefix", "docker exec 'a b'", "command_prefix", ("docker", "exec", "a b")),
    ("command_prefix", "", "command_prefix", ()),
    ("command_prefix", None, "command_prefix", ()),
    ("command_prefix", [], "command_prefix", ()),
    ("default_partition", "main", "default_partition", "main"),
    ("default_partition", None, "default_partition", ""),
    ("enforce_offering_partitions", True, "enforce_offering_partitions", True),
    ("enforce_offering_partitions", "yes", "enforce_offering_partitions", True),
    ("qos_default", "slow", "qos_default", "slow"),
    ("qos_default", None, "qos_default", "normal"),
    ("qos_downscaled", "slow", "qos_downscaled", "slow"),
    ("qos_downscaled", None, "qos_downscaled", ""),
    ("qos_paused", "stop", "qos_paused", "stop"),
    ("qos_paused", None, "qos_paused", ""),
    ("qos_enforcement_enabled", True, "qos_enforcement_enabled", True),
    ("qos_enforcement_enabled", "no", "qos_enforcement_enabled", False),
    ("enforce_offering_qos", True, "enforce_offering_qos", True),
    ("enforce_offering_qos", False, "enforce_offering_qos", False),
    ("enforce_offering_qos", None, "enforce_offering_qos", None),
    ("qos_management", None, "own_qos", None),
    ("qos_management", {}, "own_qos", None),
    ("qos_management", {"enabled": False, "max_jobs": None}, "own_qos", None),
    ("qos_management", {"enabled": True}, "own_qos", OwnQos("", "DenyOnLimit,NoDecay")),
    (
        "qos_management",
        {"enabled": True, "skip_qos_swap": True, "apply_limits_to_qos": True},
        "own_qos",
        OwnQos("", "DenyOnLimit,NoDecay", holds_limits=True),
    ),
    ("qos_management", {"skip_qos_swap": True}, "skip_qos_swap", True),
    ("qos_management", {"skip_qos_swap": None, "apply_limits_to_qos": None}, "skip_qos_swap", False),
    ("qos_management", {"enabled": True, "flags": None}, "own_qos", OwnQos("", "")),
    ("qos_management", {"enabled": True, "flags": "NoDecay"}, "own_qos", OwnQos("", "NoDecay")),
    (
        "qos_management",
        {
            "enabled": True,
            "grp_tres": "cpu=25600,node=100",
            "max_jobs": 5,
            "max_submit": "10",
            "max_wall": "1-00:00:00",
            "min_tres_per_job": "cpu=2",
            "additional_qos": ["fast", "slow"],
        },
        "own_qos",
        OwnQos(
            "",
            "DenyOnLimit,NoDecay",
            (
                ("GrpTRES", "cpu=25600,node=100"),
                ("MaxJobs", "5"),
                ("MaxSubmit", "10"),
                ("MaxWall", "1-00:00:00"),
                ("MinTRESPerJob", "cpu=2"),
            ),
            ("fast", "slow"),
        ),
    ),
    (
        "qos_management",
        {"enabled": True, "flags": "", "max_jobs": 0},
        "own_qos",
        OwnQos("", "", (("MaxJobs", "0"),)),
    ),
    ("qos_management", {"enabled": True, "additional_qos": None}, "own_qos", OwnQos("", "DenyOnLimit,NoDecay")),
]  # fmt: skip


@pytest.mark.parametrize(("key", "written", "attribute", "meant"), MEANT)
def test_a_key_means(key: str, written: Any, attribute: str, meant: Any) -> None:
    assert getattr(settings(**{key: written}), attribute) == meant


def test_every_key_of_the_schema_is_tried_above() -> None:
    assert {key for key, *_ in MEANT} == keys_of(SlurmSettings).keys() - {"rest_api"}


def test_every_setting_comes_from_a_key() -> None:
    tried = {attribute for _, _, attribute, _ in MEANT}
    in_maps = {"rest", "rest_api", "emulator_url"}  # test_rest_settings.py tries those
    in_maps |= {"qos_management"}  # `own_qos` and `skip_qos_swap` are made of it
    assert tried | in_maps == {field.name for field in fields(SlurmSettings)}


NO_DEFAULT = "Members get their allocation's, as with `default_account_policy: none`"
WARNED: list[tuple[dict[str, Any], str]] = [
    (
        {"default_account": "root"},
        "root is where customers' accounts go, and becomes no user's default account. ",
    ),
    ({"default_account": "Root", "root_account": "top"}, "root is where customers' accounts go, "),
    ({"default_account": "users"}, "Name the account above customers' by `root_account`. "),
    (
        {"default_account": "users", "root_account": "users"},
        "one that takes no jobs would close all accounts",
    ),
    (
        {"default_account": "users", "root_account": "root"},
        "users becomes members' default account only while it takes no jobs (GrpSubmitJobs=0)",
    ),
]


@pytest.mark.parametrize(("written", "said"), WARNED)
def test_what_a_common_default_account_means_for_members_is_said(written: dict[str, Any], said: str) -> None:
    (problem,) = parse({**written, "default_account_policy": "common"}, "s").problems
    assert (problem.severity, problem.path) == (Severity.WARNING, "s.default_account")
    assert said in problem.message and problem.message.endswith(NO_DEFAULT)
    assert parse(written, "s").problems == (problem,)
    for policy in ("individual", "none"):
        assert parse({**written, "default_account_policy": policy}, "s").problems == ()


def test_without_the_key_there_is_nothing_to_say_of_the_default_account() -> None:
    assert parse({}, "s").problems == parse({"default_account": ""}, "s").problems == ()


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"default_account_policy": "all"}, "s.default_account_policy", "is 'all'; use one of common"),
    ({"execution_mode": "ssh"}, "s.execution_mode", "is 'ssh'; use one of cli, rest"),
    ({"command_prefix": 5}, "s.command_prefix", "write a list of words, or one text"),
    ({"command_prefix": ["docker", 5]}, "s.command_prefix", "write a list of words, or one text"),
    (
        {"command_prefix": "docker 'exec"},
        "s.command_prefix",
        "a quote in it is not closed",
    ),
    ({"default_account": "a,b"}, "s.default_account", "'a,b' is not a valid SLURM account name"),
    ({"root_account": "a b"}, "s.root_account", "is 'a b'; it is not a valid SLURM account name"),
    ({"parent_account": "-x"}, "s.parent_account", "is '-x'; it is not a valid SLURM account name"),
    ({"parent_account": "set"}, "s.parent_account", "is 'set'; it is not a valid SLURM account name"),
    (
        {"default_partition": "main,gpu"},
        "s.default_partition",
        "is 'main,gpu'; it is not a valid SLURM partition name",
    ),
    ({"qos_default": "normal fast"}, "s.qos_default", "is 'normal fast'; it is not a valid SLURM QoS name"),
    ({"qos_downscaled": "-slow"}, "s.qos_downscaled", "is '-slow'; it is not a valid SLURM QoS name"),
    ({"qos_paused": "a=b"}, "s.qos_paused", "is 'a=b'; it is not a valid SLURM QoS name"),
    (
        {"qos_management": {"enabled": True, "additional_qos": ["fast", "a,b"]}},
        "s.qos_management.additional_qos[1]",
        "is 'a,b'; it is not a valid SLURM QoS name",
    ),
    ({"default_account": ["a"]}, "s.default_account", "is a list; text is needed"),
    ({"enforce_offering_partitions": "maybe"}, "s.enforce_offering_partitions", "use true or false"),
    ({"enforce_offering_qos": 7}, "s.enforce_offering_qos", "use true or false"),
    (
        {"qos_management": {"enabled": True, "max_jobs": "many"}},
        "s.qos_management.max_jobs",
        "`max_jobs` is 'many'; use a whole number",
    ),
    *(
        ({"qos_management": {"enabled": True, **wrong}}, "s.qos_management", words)
        for wrong, words in (
            ({"max_wall": "abc"}, "MaxWall=abc should read like 90"),
            ({"grp_tres": "cpu"}, "GrpTRES=cpu should read like cpu=100"),
            ({"min_tres_per_job": "cpu=-1"}, "MinTRESPerJob=cpu=-1 should read like"),
            ({"max_jobs": -5}, "MaxJobs=-5 is not a number of jobs"),
            ({"flags": "DenyOnLimit NoDecay"}, "SLURM has no flag 'DenyOnLimit NoDecay'"),
        )
    ),
    ({"qos_management": {"additional_qos": "fast"}}, "s.qos_management.additional_qos", "write a list"),
    ({"qos_management": []}, "s.qos_management", "is a list; a map of keys is needed"),
]


@pytest.mark.parametrize(("raw", "path", "words"), REFUSED)
def test_a_value_that_cannot_be_used_is_an_error_at_its_place(
    raw: dict[str, Any], path: str, words: str
) -> None:
    found = parse(raw, "s")
    assert found.settings is None
    (problem,) = found.problems
    assert problem.path == path
    if path.removeprefix("s.") in keys_of(ClusterKeys) and "SLURM" not in words:
        assert problem.stopped_modes == frozenset(Mode)  # as the agent has it, which reads this key as well
    else:
        assert problem.severity is Severity.ERROR
    assert words in problem.message


def test_all_errors_are_reported_at_once() -> None:
    found = parse({"default_account_policy": "all", "execution_mode": "ssh", "command_prefix": 5}, "s")
    assert sorted(problem.path for problem in found.problems) == [
        "s.command_prefix",
        "s.default_account_policy",
        "s.execution_mode",
    ]


CONFLICTS: list[tuple[dict[str, Any], int]] = [
    ({"enforce_offering_qos": True, "qos_paused": "p"}, 1),
    ({"enforce_offering_qos": True, "qos_downscaled": "d"}, 1),
    ({"enforce_offering_qos": True}, 0),
    ({"enforce_offering_qos": False, "qos_paused": "p"}, 0),
    ({"enforce_offering_qos": None, "qos_paused": "p"}, 0),
]


@pytest.mark.parametrize(("raw", "count"), CONFLICTS)
def test_two_ways_to_pause_are_warned_about(raw: dict[str, Any], count: int) -> None:
    found = parse({"qos_enforcement_enabled": True, **raw}, "s")
    assert isinstance(found.settings, SlurmSettings)
    assert [problem.severity for problem in found.problems] == [Severity.WARNING] * count


def test_unknown_keys_are_reported_by_the_caller_who_knows_all_backends() -> None:
    assert settings(qos_quantum=5) == DEFAULTS
    assert plugin.settings is SlurmSettings
    assert "qos_quantum" not in keys_of(SlurmSettings)


MISSING: list[tuple[dict[str, Any], str]] = [
    ({"slurm_bin_path": "/nowhere"}, "/nowhere/sacctmgr is not on this host"),
    ({"slurm_bin_path": "/nowhere/"}, "/nowhere/sacctmgr is not on this host"),
    ({"slurm_bin_path": "/nowhere", "command_prefix": ["env"]}, ""),
    ({"command_prefix": ["no-such-program-x"]}, "no-such-program-x is not on this host"),
]


@pytest.mark.parametrize(("raw", "words"), MISSING)
def test_a_host_without_the_program_is_an_error_with_its_name(raw: dict[str, Any], words: str) -> None:
    sentence = plugin.missing(settings(**raw))
    assert sentence.startswith(words)
    assert bool(sentence) == bool(words)


def test_without_a_folder_programs_are_found_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert plugin.missing(settings(slurm_bin_path="")).startswith("sacctmgr is not on this host")


@pytest.mark.parametrize(
    ("management", "raw", "key"),
    [
        ({"apply_limits_to_qos": True, "skip_qos_swap": True}, {}, "apply_limits_to_qos"),
        ({"apply_limits_to_qos": True, "enabled": True}, {}, "apply_limits_to_qos"),
        ({"skip_qos_swap": True}, {"qos_paused": "p"}, "skip_qos_swap"),
        ({"skip_qos_swap": True}, {"qos_downscaled": "d"}, "skip_qos_swap"),
        ({"skip_qos_swap": True}, {"qos_default": "normal"}, "skip_qos_swap"),
        ({"skip_qos_swap": True}, {"qos_default": None}, ""),
        ({"apply_limits_to_qos": True, "skip_qos_swap": True, "enabled": True}, {}, ""),
        (
            {"apply_limits_to_qos": True, "skip_qos_swap": True, "enabled": True},
            {"periodic_limits": {"enabled": True}},
            "apply_limits_to_qos",
        ),
        (
            {"apply_limits_to_qos": True, "skip_qos_swap": True, "enabled": True},
            {"periodic_limits": {"enabled": False}},
            "",
        ),
    ],
)
def test_limits_on_qos_and_states_without_a_swap_need_each_other(
    management: dict[str, Any], raw: dict[str, Any], key: str
) -> None:
    found = parse({"qos_management": management, **raw}, "s")
    assert [problem.path for problem in found.problems] == ([f"s.qos_management.{key}"] if key else [])
    assert (found.settings is None) == bool(key)


def test_units_and_no_limit_are_words_of_the_commands() -> None:
    values = {
        "enabled": True,
        "flags": "nodecay, OverPartQOS",
        "grp_tres": "cpu=4,mem=2G",
        "max_wall": "UNLIMITED",
    }
    assert parse({"qos_management": values}, "s").problems == ()
