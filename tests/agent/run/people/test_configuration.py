# SPDX-License-Identifier: MIT
"""What `config-check` says of username backends and of the directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Severity
from agent.run.service import configuration
from rig.site import configuration as written
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.people.scripted import Scripted


@pytest.fixture
def waldur() -> SimulatedWaldur:
    """Not started: it is not asked."""
    return SimulatedWaldur()


def problems(
    waldur: SimulatedWaldur, folder: Path, name: str, *, strict: bool = False, **backend: Any
) -> dict[str, tuple[Severity, str]]:
    path = written(waldur, folder, backend=backend, username_management_backend=name)
    loaded = configuration.checked(path, {}, strict=strict)
    return {
        p.path.removeprefix("offerings[0]."): (p.severity, p.message)
        for p in loaded.problems
        if "user" in p.path or "ldap" in p.path
    }


def test_good_settings_are_silent(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    ldap = {"uri": "ldaps://x", "bind_dn": "a", "bind_password": "b", "base_dn": "c"}
    assert problems(waldur, tmp_path, "ldap", strict=True, ldap=ldap) == {}
    assert problems(waldur, tmp_path, "template", strict=True, usernames={"format": "{first}"}) == {}
    assert problems(waldur, tmp_path, "base", strict=True, ldap=ldap) == {}


def test_a_name_that_is_not_installed(waldur: SimulatedWaldur, tmp_path: Path, scripted: Scripted) -> None:
    found = problems(waldur, tmp_path, "ladp")
    severity, message = found["username_management_backend"]
    assert severity is Severity.WARNING
    assert (
        "installed are: base, broken, ldap, scripted, template; until then no usernames are made" in message
    )


@pytest.mark.parametrize("strict", [False, True])
def test_wrong_settings_stop_names_and_nothing_else(
    waldur: SimulatedWaldur, tmp_path: Path, strict: bool
) -> None:
    found = problems(waldur, tmp_path, "ldap", strict=strict, ldap={"uri": "ldaps://x", "bnd_dn": "a"})
    wanted = {"bind_dn", "bind_password", "base_dn", "bnd_dn"}
    assert found.keys() == {f"backend_settings.ldap.{key}" for key in wanted}
    assert {severity for severity, _ in found.values()} == {Severity.ERROR if strict else Severity.WARNING}
    assert "until then no usernames are made" in found["backend_settings.ldap.base_dn"][1]
    assert "did you mean 'bind_dn'" in found["backend_settings.ldap.bnd_dn"][1]


def test_in_a_directory_that_follows_waldur_wrong_settings_keep_everybody_in(
    waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    found = problems(waldur, tmp_path, "ldap", ldap={"uri": "ldaps://x", "account_source": "waldur"})
    words = "until then the directory does not follow Waldur, and no member is removed from an account"
    assert words in found["backend_settings.ldap.base_dn"][1]
    assert "until then no usernames are made" not in found["backend_settings.ldap.base_dn"][1]


def test_missing_ldap_settings_are_required(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    found = problems(waldur, tmp_path, "ldap", strict=True)
    assert "LDAP settings are required" in found["backend_settings.ldap"][1]


def test_a_directory_for_groups_only_is_judged_too(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    found = problems(waldur, tmp_path, "base", ldap={"uri": "x"})
    assert "until then no groups are made" in found["backend_settings.ldap.uri"][1]


def test_keys_of_a_backend_that_is_not_chosen_are_unknown(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    assert "unknown key" in problems(waldur, tmp_path, "base", usernames={})["backend_settings.usernames"][1]
    assert problems(waldur, tmp_path, "template", usernames={}) == {}


def test_sites_without_a_directory_do_not_carry_ldap() -> None:
    words = "import agent.cli.main, agent.run.membership, tasks.app, sys; print({'ldap3', 'jinja2'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.strip() == "set()"
