# SPDX-License-Identifier: MIT
"""Keys that another key takes their meaning away: `config-check` says so, and says nothing where they count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.run.service import configuration

from .samples import OFFERING, changed

REST = {
    "cluster_name": "main",
    "execution_mode": "rest",
    "rest_api": {"url": "unix:///run/slurmrestd.socket", "username": "waldur"},
}
DIRECTORY = {"uri": "ldaps://ldap", "bind_dn": "cn=a", "bind_password": "s3cret", "base_dn": "dc=e"}
OIDC = {"oidc_token_url": "https://sso/token", "oidc_client_id": "a", "oidc_client_secret": "s3cret"}
Keys = dict[str, Any]
# Keys without a reader, where and in which words that is said, and what gives them one.
CASES: list[tuple[Keys, str, str, Keys]] = [
    (
        {"backend_settings.rest_api": REST["rest_api"]},
        "backend_settings.rest_api",
        "Set `execution_mode: rest`",
        {"backend_settings": REST},
    ),
    (
        {"backend_settings": changed(REST, "rest_api.token_env", "X"), "backend_settings.rest_api.token_file": "/t"},
        "backend_settings.rest_api.token_env",
        "`token_file` comes first",
        {"backend_settings.rest_api.token_file": None},
    ),
    (
        {"backend_settings.qos_management": {"max_jobs": 5, "flags": "NoDecay"}},
        "backend_settings.qos_management",
        "flags, max_jobs have no effect",
        {"backend_settings.qos_management.enabled": True},
    ),
    (
        {"backend_settings.periodic_limits": {"emulator_mode": True, "limit_type": "GrpTRES"}},
        "backend_settings.periodic_limits",
        "emulator_mode, limit_type have no effect: `enabled: true`",
        {"backend_settings.periodic_limits.enabled": True},
    ),
    (
        {"backend_settings.periodic_limits": {"enabled": True, "emulator_base_url": "http://localhost:1"}},
        "backend_settings.periodic_limits.emulator_base_url",
        "without `emulator_mode: true` limits go to the cluster",
        {"backend_settings.periodic_limits.emulator_mode": True},
    ),
    (
        {"backend_settings": {"enable_user_homedir_account_creation": False, "homedir_base_path": "/home"}},
        "backend_settings.homedir_base_path",
        "no homes are made",
        {"backend_settings.enable_user_homedir_account_creation": True},
    ),
    (
        {"backend_settings.check_all_offerings": True},
        "backend_settings.check_all_offerings",
        "without `check_backend_id_uniqueness: true`",
        {"backend_settings.check_backend_id_uniqueness": True},
    ),
    (
        {"backend_settings.project_directory": {"base_path": "/p", "owner": "root"}},
        "backend_settings.project_directory",
        "base_path, owner have no effect: `enabled: true`",
        {"backend_settings.project_directory.enabled": True},
    ),
    (
        {"backend_settings.project_directory": {"enabled": True, "group_name": "hpc"}},
        "backend_settings.project_directory.group_name",
        "group_owner_source: group_name",
        {"backend_settings.project_directory.group_owner_source": "group_name"},
    ),
    (
        {"username_management_backend": "ldap", "backend_settings.ldap": {**DIRECTORY, "on_departure": "disable"}},
        "backend_settings.ldap.on_departure",
        "without `remove_user_on_deactivate: true`",
        {"backend_settings.ldap.remove_user_on_deactivate": True},
    ),
    (
        {"stomp_ws_host": "mq.example.com", "stomp_ws_port": 443, "event_transport": "tcp"},
        "",
        "event_transport, stomp_ws_host, stomp_ws_port have no effect: neither",
        {"stomp_enabled": True},
    ),
    (OIDC, "", "have no effect: `waldur_api_token` comes first", {"waldur_api_token": None}),
]  # fmt: skip


def messages(folder: Path, keys: Keys, root: Keys | None = None) -> dict[str, str]:
    """Return what `config-check` says of an offering with these keys, by path below it."""
    offering: Keys = OFFERING
    for path, value in keys.items():
        offering = changed(offering, path, value)
    file = folder / "site.yaml"
    file.write_text(yaml.safe_dump({"state_dir": str(folder), **(root or {}), "offerings": [offering]}))
    file.chmod(0o600)
    problems = configuration.checked(file, {"X": "token"}).problems
    return {p.path.removeprefix("offerings[0]").lstrip("."): p.message for p in problems}


@pytest.mark.parametrize(("keys", "path", "words", "reader"), CASES)
def test_a_key_without_a_reader_is_reported(
    tmp_path: Path, keys: Keys, path: str, words: str, reader: Keys
) -> None:
    assert words in messages(tmp_path, keys)[path]
    assert words not in messages(tmp_path, {**keys, **reader}).get(path, "")


def test_shipping_of_logs_that_is_off(tmp_path: Path) -> None:
    sentence = messages(tmp_path, {}, {"log_shipping": {"log_level": "INFO"}})["log_shipping.log_level"]
    assert sentence.startswith("it has no effect: `enabled: true` is not written")
    assert "log_shipping.log_level" not in messages(
        tmp_path, {}, {"log_shipping": {"log_level": "INFO", "enabled": True}}
    )
