# SPDX-License-Identifier: MIT
"""The section `policy`: how far passes may go, for all offerings at the root and for each one in its own section.

What an offering does not write it takes from the root. Lists of names add up: nobody protected at the root is
unprotected by an offering.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.config.findings import Findings, key_name
from agent.config.schema import POLICY, checked
from agent.core.names import NameRules, fold
from agent.core.policy import LimitCuts, PolicyMode, PolicyRules, UsageDecreases

LISTS = ("protected_users", "protected_accounts", "ignore_users", "ignore_accounts")
# Accounts on which a site's own users and accounts stand, by the names of `backend_settings`.
FOUNDATIONS = ("default_account", "root_account", "parent_account")
ALWAYS_PROTECTED = "root"


def read_policy(
    section: Mapping[Any, Any], path: str, *, above: PolicyRules, findings: Findings
) -> PolicyRules:
    """The rules of one section, with those `above` it for what it does not say."""
    values = checked(POLICY, section, path, findings=findings)
    given = {key_name(name) for name, value in section.items() if value is not None} & values.keys()
    changes = {name: values[name] for name in given}
    for name in LISTS:
        if name in changes:
            changes[name] = getattr(above, name) | frozenset(map(fold, changes[name]))
    if "mode" in changes:
        changes["mode"] = PolicyMode(changes["mode"])
    if "limit_cuts" in changes:
        changes["limit_cuts"] = LimitCuts(changes["limit_cuts"])
    if "usage_decreases" in changes:
        changes["usage_decreases"] = UsageDecreases(changes["usage_decreases"])
    return replace(above, **changes)


def of_offering(rules: PolicyRules, backend_settings: Mapping[Any, Any], names: NameRules) -> PolicyRules:
    """The rules with what follows from the backend's settings: its foundations are protected, its prefixes ours."""
    foundations = {
        fold(str(backend_settings[key])) for key in FOUNDATIONS if backend_settings.get(key) not in (None, "")
    }
    pausing = backend_settings.get("qos_paused")
    return replace(
        rules,
        protected_users=rules.protected_users | {ALWAYS_PROTECTED},
        protected_accounts=rules.protected_accounts | foundations | {ALWAYS_PROTECTED},
        prefixes=tuple(
            fold(p) for p in (names.customer_prefix, names.project_prefix, names.allocation_prefix) if fold(p)
        ),
        pausing_qos=frozenset({fold(pausing)}) if isinstance(pausing, str) and pausing else frozenset(),
    )
