# SPDX-License-Identifier: MIT
"""The keys of `backend_settings` that mean the same for every backend: names, homes, deletion, commands.

The map itself goes on to the backend unchanged; keys that are not common are the backend's to judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.config.findings import Findings, below, without_effect
from agent.config.homes import read_homes
from agent.config.project_directories import read_project_directories
from agent.config.schema import BACKEND_SETTINGS, PERIODIC_LIMITS, POLICY_KEYS, checked
from agent.config.secret import secrets_in
from agent.core.account_names import NameRules
from agent.core.homes import HomeRules
from agent.core.periodic import LimitType
from agent.core.project_directories import DirectoryRules

COMPUTED_BY_WALDUR = "it has no effect here: Waldur's periodic usage policy computes this now, set it there"


@dataclass(frozen=True, slots=True)
class CommonSettings:
    """The part of `backend_settings` that the rest of the agent uses."""

    names: NameRules = field(default_factory=NameRules)
    homes: HomeRules = field(default_factory=HomeRules)
    project_directories: DirectoryRules | None = None
    soft_delete: bool = False
    periodic_limits_enabled: bool = False
    periodic_limit_type: LimitType | None = None
    periodic_emulator: bool = False
    cluster_name: str = ""
    command_prefix: tuple[str, ...] = field(default=(), repr=False)
    usage_tres_source: str = ""


def read_backend_settings(section: Mapping[Any, Any], path: str, findings: Findings) -> CommonSettings:
    """Return the common settings of one offering; problems are noted under `path`."""
    values = checked(BACKEND_SETTINGS, section, path, findings=findings, open_ended=True)
    limits_path = below(path, "periodic_limits")
    note_policy_keys(values["periodic_limits"], limits_path, findings)
    known = {key: value for key, value in values["periodic_limits"].items() if key not in POLICY_KEYS}
    periodic_limits = checked(PERIODIC_LIMITS, known, limits_path, findings=findings)
    if secrets_in(values["command_prefix"]):
        findings.warn(
            below(path, "command_prefix"),
            "a password stands among its words: every user of this host can read it in the list of processes. Give "
            "ssh a key, or sshpass a file (`sshpass -f FILE`)",
        )
    _note_without_effect(section, values, periodic_limits, path, findings)
    return CommonSettings(
        names=NameRules(
            customer_prefix=values["customer_prefix"] or "",
            project_prefix=values["project_prefix"] or "",
            allocation_prefix=values["allocation_prefix"] or "",
            max_length=values["allocation_name_max_len"] or None,
            check_uniqueness=bool(values["check_backend_id_uniqueness"]),
            check_all_offerings=bool(values["check_all_offerings"]),
            max_attempts=max(1, values["backend_id_max_retries"]),
        ),
        homes=read_homes(values, section, path, findings),
        project_directories=read_project_directories(
            values["project_directory"], below(path, "project_directory"), findings
        ),
        soft_delete=bool(values["soft_delete"]),
        periodic_limits_enabled=bool(
            periodic_limits["enabled"]
            and periodic_limits["emulator_mode"] is not None
            and periodic_limits["emulator_base_url"] is not None
            and periodic_limits["limit_type"] is not False
        ),
        periodic_limit_type=LimitType(periodic_limits["limit_type"])
        if periodic_limits["limit_type"]
        else None,
        periodic_emulator=bool(periodic_limits["emulator_mode"]),
        cluster_name=values["cluster_name"],
        command_prefix=values["command_prefix"],
        usage_tres_source=values["usage_tres_source"] or "",
    )


def note_policy_keys(section: Mapping[Any, Any], path: str, findings: Findings) -> None:
    """Warn of keys that old versions read and Waldur has taken over."""
    for name in sorted(POLICY_KEYS & section.keys()):
        findings.warn(below(path, name), COMPUTED_BY_WALDUR)


def _note_without_effect(
    section: Mapping[Any, Any],
    values: Mapping[str, Any],
    periodic_limits: Mapping[str, Any],
    path: str,
    findings: Findings,
) -> None:
    """Warn of keys that are written and not read, because another one says otherwise."""
    limits = values["periodic_limits"]
    limits_path = below(path, "periodic_limits")
    if not periodic_limits["enabled"]:
        keys = PERIODIC_LIMITS.fields.keys() - {"enabled"}
        findings.add(without_effect(limits, keys, limits_path, "`enabled: true` is not written"))
    elif periodic_limits["emulator_mode"] is False:
        why = "without `emulator_mode: true` limits go to the cluster"
        findings.add(without_effect(limits, ("emulator_base_url",), limits_path, why))
    if not values["enable_user_homedir_account_creation"]:
        keys = {"default_homedir_umask", "homedir_umask", "homedir_base_path", "homedir_quota"}
        if not section.get("ldap"):
            keys.add("homedir_bases")
        why = "with `enable_user_homedir_account_creation: false` no homes are made"
        findings.add(without_effect(section, keys, path, why))
    if not values["check_backend_id_uniqueness"]:
        why = "without `check_backend_id_uniqueness: true` Waldur is not asked whether a name is free"
        findings.add(without_effect(section, ("check_all_offerings",), path, why))
