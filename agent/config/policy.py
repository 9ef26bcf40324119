# SPDX-License-Identifier: MIT
"""The section `policy`: how far passes may go, for all offerings at the root and for each one in its own section.

What an offering does not write it takes from the root. Lists of names add up: nobody protected at the root is
unprotected by an offering.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from enum import StrEnum
from typing import Any

from agent.config import field_types
from agent.config.findings import Findings, below, key_name
from agent.config.schema import BUDGET, POLICY, checked
from agent.core.account_names import NameRules, fold
from agent.core.policy import Budget, Cost, PolicyRules
from agent.core.system_users import SYSTEM_USERS

# Accounts on which a site's own users and accounts stand, by the names of `backend_settings`.
FOUNDATIONS = ("default_account", "root_account", "parent_account")
ALWAYS_PROTECTED = "root"
# The hour of these budgets has an older key of its own.
HOUR_KEYS = {
    Cost.MEMBERS_REMOVED: "max_removed_members",
    Cost.ACCOUNTS_EMPTIED: "max_removed_accounts",
}


def read_policy(
    section: Mapping[Any, Any], path: str, *, above: PolicyRules, findings: Findings
) -> PolicyRules:
    """Return the rules of one section, with those `above` it for what it does not say."""
    values = checked(POLICY, section, path, findings=findings)
    given = {key_name(name) for name, value in section.items() if value is not None} & values.keys()
    changes = {name: values[name] for name in given}
    for name, value in changes.items():
        before = getattr(above, name)
        if isinstance(before, frozenset):
            changes[name] = before | frozenset(map(fold, value))
        elif isinstance(before, StrEnum):
            changes[name] = type(before)(value)
    budgets = changes.pop("budgets", {})
    return _with_budgets(
        replace(above, **changes), budgets, below(path, "budgets"), given=given, findings=findings
    )


def _with_budgets(
    rules: PolicyRules,
    section: Mapping[Any, Any],
    path: str,
    *,
    given: Set[str],
    findings: Findings,
) -> PolicyRules:
    """Return the rules with the budgets of one section, which may say a part. `given`: the keys beside `budgets`."""
    budgets: dict[Cost, Budget] = dict(rules.budgets)
    hours: dict[str, Any] = {}
    for name, written in section.items():
        place = below(path, key_name(name))
        if name not in list(Cost):
            findings.error(place, f"there is no such cost; use {', '.join(Cost)}")
            continue
        cost = Cost(name)
        if not isinstance(written, Mapping):
            findings.error(
                place, f"`{name}` is {field_types.shown(written)}; write `hour` and `day` below it"
            )
            continue
        values = checked(BUDGET, written, place, findings=findings)
        before = rules.budget(cost)
        hour, day = values["hour"] or before.hour, values["day"] or max(before.day, values["hour"] or 0)
        if hour > day:
            findings.error(below(place, "day"), f"`day` is {day}, less than the {hour} of an hour")
        own = HOUR_KEYS.get(cost, "")
        if values["hour"] and own:
            hours[own] = hour
            if own in given and getattr(rules, own) != hour:
                findings.error(
                    below(place, "hour"), f"`hour` is {hour}, and `{own}` says {getattr(rules, own)}"
                )
        budgets[cost] = Budget(hour, day)
    return replace(rules, budgets=budgets, **hours)


def of_offering(rules: PolicyRules, backend_settings: Mapping[Any, Any], names: NameRules) -> PolicyRules:
    """Return the rules with what the backend's settings add: protected foundations, and prefixes that are ours."""
    foundations = {
        fold(str(backend_settings[key])) for key in FOUNDATIONS if backend_settings.get(key) not in (None, "")
    }
    return replace(
        rules,
        protected_users=rules.protected_users | SYSTEM_USERS,
        protected_accounts=rules.protected_accounts | foundations | {ALWAYS_PROTECTED},
        prefixes=tuple(
            fold(p) for p in (names.customer_prefix, names.project_prefix, names.allocation_prefix) if fold(p)
        ),
        pausing_qos=_qos(backend_settings.get("qos_paused")),
        downscaling_qos=_qos(backend_settings.get("qos_downscaled")),
    )


def _qos(name: Any) -> frozenset[str]:
    return frozenset({fold(name)}) if isinstance(name, str) and name else frozenset()
