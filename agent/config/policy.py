# SPDX-License-Identifier: MIT
"""The section `policy`: how far passes may go, for all offerings at the root and for each one in its own section.

What an offering does not write it takes from the root. Lists of names add up: who is protected at the root is
protected in each offering.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from agent.config.field_types import displayed, key_name
from agent.config.findings import Findings, key_path
from agent.config.keys import keys_of
from agent.config.reading import read
from agent.config.schema import BudgetKeys, PolicyKeys
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


def rules_of(values: PolicyKeys, path: str, *, above: PolicyRules, findings: Findings) -> PolicyRules:
    """Return the rules of one section, with those `above` it for what it does not say."""
    written = {name: getattr(values, name) for name in keys_of(PolicyKeys)}
    budgets = written.pop("budgets")
    changes = {
        name: getattr(above, name) | frozenset(map(fold, value)) if isinstance(value, tuple) else value
        for name, value in written.items()
        if value is not None
    }
    return _with_budgets(
        replace(above, **changes), budgets, key_path(path, "budgets"), given=changes.keys(), findings=findings
    )


def _with_budgets(
    rules: PolicyRules,
    section: Mapping[Any, Any],
    path: str,
    *,
    given: Set[str],
    findings: Findings,
) -> PolicyRules:
    """Return the rules with the budgets of one section, which may say a part. `given`: the keys next to `budgets`."""
    budgets: dict[Cost, Budget] = dict(rules.budgets)
    hours: dict[str, Any] = {}
    for name, written in section.items():
        place = key_path(path, key_name(name))
        if name not in list(Cost):
            findings.error(place, f"there is no such cost; use {', '.join(Cost)}")
            continue
        cost = Cost(name)
        if not isinstance(written, Mapping):
            findings.error(place, f"`{name}` is {displayed(written)}; write `hour` and `day` below it")
            continue
        values = read(BudgetKeys, written, place, findings)
        before = rules.budget(cost)
        hour, day = values.hour or before.hour, values.day or max(before.day, values.hour or 0)
        if hour > day:
            findings.error(key_path(place, "day"), f"`day` is {day}, less than the {hour} of an hour")
        own = HOUR_KEYS.get(cost, "")
        if values.hour and own:
            hours[own] = hour
            if own in given and getattr(rules, own) != hour:
                findings.error(
                    key_path(place, "hour"), f"`hour` is {hour}, and `{own}` says {getattr(rules, own)}"
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
