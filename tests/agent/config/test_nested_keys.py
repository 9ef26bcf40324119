# SPDX-License-Identifier: MIT
"""Keys within maps of `backend_settings` are judged by their own names and places."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.model import Settings
from agent.run.service import configuration

from .samples import OFFERING, changed
from .test_wrong_values import write

ALL_BACKENDS = {"membership_sync_backend": "slurm", "reporting_backend": "slurm"}


def read(folder: Path, path: str, value: object) -> tuple[Settings, dict[str, str]]:
    file = write(folder, {**changed(OFFERING, path, value), **ALL_BACKENDS})
    settings, problems = configuration.usable(file, {})
    return settings, {problem.path.removeprefix("offerings[0]."): problem.message for problem in problems}


NESTED = [
    ("qos_management.flag", "did you mean 'flags'?"),
    ("project_directory.base_pth", "did you mean 'base_path'?"),
    ("rest_api.tokenfile", "did you mean 'token_file'?"),
    ("periodic_limits.enable", "did you mean 'enabled'?"),
]


@pytest.mark.parametrize(("name", "sentence"), NESTED)
def test_unknown_keys_of_maps_within_the_settings(tmp_path: Path, name: str, sentence: str) -> None:
    _, problems = read(tmp_path, f"backend_settings.{name}", 1)
    assert sentence in problems[f"backend_settings.{name}"]
    assert configuration.checked(tmp_path / "site.yaml", {}, strict=True).settings is None


def test_a_wrong_value_hides_no_unknown_key(tmp_path: Path) -> None:
    _, problems = read(tmp_path, "backend_settings.qos_management", {"flags": ["NoDecay"], "maxjobs": 4})
    assert "text is needed" in problems["backend_settings.qos_management.flags"]
    assert "did you mean 'max_jobs'?" in problems["backend_settings.qos_management.maxjobs"]


@pytest.mark.parametrize(
    ("key", "value"), [("emulator_mode", "perhaps"), ("emulator_base_url", "localhost:8080")]
)
def test_a_wrong_word_about_the_emulator_never_means_the_real_cluster(
    tmp_path: Path, key: str, value: str
) -> None:
    limits = {"enabled": True, "emulator_mode": True, key: value}
    settings, problems = read(tmp_path, "backend_settings.periodic_limits", limits)
    assert "periodic limits are off" in problems[f"backend_settings.periodic_limits.{key}"]
    assert not settings.offerings[0].periodic_limits_enabled


LDAP = {"uri": "ldaps://ldap.example.com", "bind_dn": "cn=a", "bind_password": "b", "base_dn": "dc=c"}


@pytest.mark.parametrize(
    ("groups", "place", "sentence"),
    [
        ({"membership": "all"}, "membership", "use one of sync, add_only"),
        ({"member_attribute": "member"}, "object_classes", "needs groupOfNames or groupOfMembers"),
        ({"parents": [{"dn": "cluster"}]}, "parents[0].dn", "a DN is needed"),
        (
            {"parents": [{"dn": "cn=a", "offering_uuids": ["x"]}]},
            "parents[0].offering_uuids[0]",
            "is 'x'; a uuid is needed",
        ),
        ({"organization_description": "org"}, "organization_description", "use {slug} once"),
        ({"organization_description": "{slug}"}, "organization_description", "has no word besides {slug}"),
    ],
)
def test_groups_of_projects_in_a_directory(
    tmp_path: Path, groups: dict[str, object], place: str, sentence: str
) -> None:
    _, problems = read(
        tmp_path, "backend_settings.ldap", {**LDAP, "project_groups": {"enabled": True, **groups}}
    )
    ((path, words),) = problems.items()
    assert path == f"backend_settings.ldap.project_groups.{place}"
    assert sentence in words


def test_a_misspelt_key_of_groups_is_named_where_they_are_off(tmp_path: Path) -> None:
    groups = {"enabled": False, "member_atribute": "member"}
    _, problems = read(tmp_path, "backend_settings.ldap", {**LDAP, "project_groups": groups})
    ((path, sentence),) = problems.items()
    assert path == "backend_settings.ldap.project_groups.member_atribute"
    assert "did you mean 'member_attribute'?" in sentence
