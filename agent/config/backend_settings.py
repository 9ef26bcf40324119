# SPDX-License-Identifier: MIT
"""The keys of `backend_settings` that mean the same for every backend: names, homes, deletion, commands.

The map itself goes on to the backend unchanged; keys that are not common are the backend's to judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.config.findings import Findings, key_path, without_effect
from agent.config.homes import HOME_KEYS
from agent.config.keys import keys_of
from agent.config.reading import read
from agent.config.schema import BackendSettingsKeys, ComputedKeys, PeriodicLimitsKeys
from agent.config.secret import secrets_in


def read_backend_settings(section: Mapping[Any, Any], path: str, findings: Findings) -> BackendSettingsKeys:
    """Return the common settings of one offering; problems are noted under `path`."""
    values = read(BackendSettingsKeys, section, path, findings, open_ended=True)
    if secrets_in(values.command_prefix):
        findings.warn(
            key_path(path, "command_prefix"),
            "a password stands among its words: every user of this host can read it in the list of processes. Give "
            "ssh a key, or sshpass a file (`sshpass -f FILE`)",
        )
    _note_without_effect(section, values, path, findings)
    return values


def _note_without_effect(
    section: Mapping[Any, Any], values: BackendSettingsKeys, path: str, findings: Findings
) -> None:
    """Warn of keys that are written and not read, because another one says otherwise."""
    limits, limits_path = section.get("periodic_limits"), key_path(path, "periodic_limits")
    periodic = values.periodic_limits
    if periodic and not periodic.enabled:
        keys = keys_of(PeriodicLimitsKeys).keys() - keys_of(ComputedKeys).keys() - {"enabled"}
        findings.add(without_effect(limits, keys, limits_path, "`enabled: true` is not written"))
    elif periodic and not periodic.emulator_mode:
        why = "without `emulator_mode: true` limits go to the cluster"
        findings.add(without_effect(limits, ("emulator_base_url",), limits_path, why))
    if not values.enable_user_homedir_account_creation:
        keys = set(HOME_KEYS)
        if not section.get("ldap"):
            keys.add("homedir_bases")
        why = "with `enable_user_homedir_account_creation: false` no homes are made"
        findings.add(without_effect(section, keys, path, why))
    if not values.check_backend_id_uniqueness:
        why = "without `check_backend_id_uniqueness: true` Waldur is not asked whether a name is free"
        findings.add(without_effect(section, ("check_all_offerings",), path, why))
