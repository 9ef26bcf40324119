# SPDX-License-Identifier: MIT
"""`execution_mode: rest` and `emulator_mode`: which settings lead where, and the sentence for those that cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Severity
from backends.base import BackendContext
from backends.slurm.backend import SlurmBackend
from backends.slurm.emulator import EmulatorSettings
from backends.slurm.periodic import PeriodicSettings
from backends.slurm.plugin import plugin
from backends.slurm.rest.backend import RestSlurmBackend
from backends.slurm.rest.periodic import RestPeriodicSettings
from backends.slurm.rest_access import RestAccess
from backends.slurm.schema import parse

ACCESS = {"url": "https://slurm.example.com:6820", "username": "waldur", "token_env": "SLURM_JWT"}
REST: dict[str, Any] = {"execution_mode": "rest", "cluster_name": "test", "rest_api": ACCESS}


def problems_of(raw: dict[str, Any]) -> dict[str, str]:
    return {problem.path: problem.message for problem in parse(raw, "s").problems}


def with_access(**changes: Any) -> dict[str, Any]:
    return {**REST, "rest_api": {**ACCESS, **changes}}


def test_defaults_are_the_references() -> None:
    found = parse(REST, "s")
    assert found.problems == ()
    assert found.settings.rest == RestAccess(
        url=ACCESS["url"],
        api_version="",
        username="waldur",
        token_file="",
        token_env="SLURM_JWT",
        verify_ssl=True,
        timeout_s=30.0,
    )
    assert parse({**REST, "execution_mode": "cli"}, "s").settings.rest is None


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({**REST, "rest_api": None}, "s.rest_api", "needs its url and username"),
    ({**REST, "cluster_name": ""}, "s.cluster_name", "`rest` needs it"),
    (with_access(url=None), "s.rest_api.url", "is missing"),
    (with_access(username=None), "s.rest_api.username", "is missing"),
    (with_access(url="slurm.example.com:6820"), "s.rest_api.url", "write http://host:port"),
    (with_access(url="https://root:pw@slurm.example.com"), "s.rest_api.url", "write http://host:port"),
    (with_access(url="unix://run/slurmrestd.socket"), "s.rest_api.url", "write http://host:port"),
    (with_access(username="a\nb"), "s.rest_api.username", "is not the name of a user"),
    (with_access(token_env=None), "s.rest_api.token_file", "there is no way to log in"),
    (
        with_access(api_version="v0.0.39"),
        "s.rest_api.api_version",
        "v0.0.40 (SLURM 23.11) or later is needed",
    ),
    (with_access(api_version="43"), "s.rest_api.api_version", "they read like v0.0.40"),
    (
        {
            **REST,
            "slurm_bin_path": "/nonexistent",
            "qos_management": {"enabled": True, "skip_qos_swap": True, "apply_limits_to_qos": True},
        },
        "s.qos_management.apply_limits_to_qos",
        "cannot reset what a QoS has counted, and this host has no sacctmgr",
    ),
    (with_access(timeout=0), "s.rest_api.timeout", "0"),
    (
        {**REST, "qos_management": {"enabled": True, "max_wall": "a day"}},
        "s.qos_management",
        "MaxWall=a day should read like",
    ),
]


@pytest.mark.parametrize(("raw", "path", "sentence"), REFUSED)
def test_what_slurmrestd_cannot_do_is_refused_when_the_file_is_read(
    raw: dict[str, Any], path: str, sentence: str
) -> None:
    assert sentence in problems_of(raw)[path]
    assert parse(raw, "s").settings is None


WARNED: list[tuple[dict[str, Any], str, str]] = [
    (with_access(url="http://slurm.example.com:6820"), "s.rest_api.url", "crosses the network unencrypted"),
    (with_access(verify_ssl=False), "s.rest_api.verify_ssl", "TLS certificates are not checked"),
    (
        {**REST, "periodic_limits": {"enabled": True}},
        "s.periodic_limits",
        "slurmrestd cannot reset raw usage (RawUsage=0)",
    ),
    (with_access(token_fil="x"), "s.rest_api.token_fil", "did you mean 'token_file'?"),
]


@pytest.mark.parametrize(("raw", "path", "sentence"), WARNED)
def test_what_may_do_harm_is_said(raw: dict[str, Any], path: str, sentence: str) -> None:
    (problem,) = parse(raw, "s").problems
    assert (problem.path, problem.severity) == (path, Severity.WARNING)
    assert sentence in problem.message


@pytest.mark.parametrize("url", ["http://127.0.0.1:6820", "unix:///run/slurmrestd.socket"])
def test_what_stays_on_this_machine_needs_no_tls_and_a_socket_no_token(url: str) -> None:
    is_socket = url.startswith("unix")
    assert problems_of(with_access(url=url, **({"token_env": None} if is_socket else {}))) == {}


def test_a_missing_token_stops_the_modes_on_this_host_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JWT", raising=False)
    assert "rest_api.token_env) has no token" in plugin.missing(parse(REST, "s").settings)
    in_file = parse(with_access(token_file=str(tmp_path / "token")), "s").settings
    assert "cannot be read: No such file" in plugin.missing(in_file)
    (tmp_path / "token").write_text("SLURM_JWT=a.b.c\n")
    assert plugin.missing(in_file) == ""


SWITCH: list[tuple[dict[str, Any], type[object], type[object]]] = [
    ({}, SlurmBackend, PeriodicSettings),
    ({"periodic_limits": {"emulator_mode": True}}, SlurmBackend, EmulatorSettings),
    (
        {"periodic_limits": {"emulator_mode": "no", "emulator_base_url": "http://e"}},
        SlurmBackend,
        PeriodicSettings,
    ),
    (REST, RestSlurmBackend, RestPeriodicSettings),
    (
        {**REST, "periodic_limits": {"enabled": True, "emulator_mode": True}},
        RestSlurmBackend,
        EmulatorSettings,
    ),
]


@pytest.mark.parametrize(("raw", "backend", "keeper"), SWITCH)
def test_one_key_switches_between_the_ways(
    tmp_path: Path, raw: dict[str, Any], backend: type[object], keeper: type[object]
) -> None:
    found = parse(raw, "s")
    assert found.problems == ()
    made = plugin.connect(found.settings, BackendContext("0" * 32, tmp_path))
    assert (type(made), type(made.periodic)) == (backend, keeper)
