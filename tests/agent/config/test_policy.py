# SPDX-License-Identifier: MIT
"""The section `policy`, at the root and in an offering, and whose limits count."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.policy import (
    BUDGETS,
    Budget,
    Cost,
    LimitCuts,
    LimitsSource,
    PolicyMode,
    PolicyRules,
    UsageDecreases,
)
from agent.core.system_users import SYSTEM_USERS

from .samples import OFFERING, Site, changed, errors, only_offering, root, warnings, with_offering


def policy(site: Site, at_root: dict[str, Any] | None, own: dict[str, Any] | None) -> PolicyRules:
    offering = changed(OFFERING, "policy", own)
    return only_offering(site.load(root(policy=at_root, offerings=[offering]))).policy


def test_without_a_section_passes_go_all_the_way_within_limits(site: Site) -> None:
    rules = policy(site, None, None)
    assert (rules.mode, rules.paused, rules.limit_cuts) == (PolicyMode.SYNC, False, LimitCuts.HOLD)
    assert rules.usage_decreases is UsageDecreases.HOLD
    assert rules.protected_users == {"root", "nobody", "nfsnobody", "munge", "slurm"}
    assert rules.prefixes == ("c_",)


@pytest.mark.parametrize(
    ("at_root", "own", "expected"),
    [
        ({"mode": "observe"}, None, {"mode": PolicyMode.OBSERVE}),
        ({"mode": "observe"}, {"mode": "sync"}, {"mode": PolicyMode.SYNC}),
        ({"mode": "upsert-only", "paused": True}, {"paused": "no"}, {"mode": PolicyMode.UPSERT_ONLY, "paused": False}),
        ({"max_removed_members": 5}, {"max_removed_accounts": 0},
         {"max_removed_members": 5, "max_removed_accounts": 0, "max_removed_percent": 50}),
        ({"usage_decreases": "allow"}, {"mode": "observe"}, {"usage_decreases": UsageDecreases.ALLOW}),
        ({"usage_decreases": "allow"}, {"usage_decreases": "hold"}, {"usage_decreases": UsageDecreases.HOLD}),
        ({"limit_cuts": "allow"}, {"small_removal": "3"}, {"limit_cuts": LimitCuts.ALLOW, "small_removal": 3}),
        ({"protected_users": ["Ann"]}, {"protected_users": ["bob"]},
         {"protected_users": {"ann", "bob", *SYSTEM_USERS}}),
        ({"ignore_users": "svc-*"}, {"ignore_users": []}, {"ignore_users": {"svc-*"}}),
        ({"ignore_accounts": [2024]}, {"ignore_accounts": None}, {"ignore_accounts": {"2024"}}),
    ],
)  # fmt: skip
def test_an_offering_wins_key_by_key_and_lists_add_up(
    site: Site, at_root: dict[str, Any], own: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    rules = policy(site, at_root, own)
    assert {name: getattr(rules, name) for name in expected} == expected


def test_what_a_site_stands_on_is_protected_and_prefixes_are_ours(site: Site) -> None:
    settings = {
        "default_account": "Common",
        "root_account": "root",
        "parent_account": 2024,
        "allocation_prefix": "A_",
        "project_prefix": "",
        "qos_paused": "Paused",
    }
    rules = only_offering(site.load(with_offering("backend_settings", settings))).policy
    assert rules.protected_accounts == {"root", "common", "2024"}
    assert rules.prefixes == ("a_",)
    assert rules.pausing_qos == {"paused"}


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("mode", "delete", "use one of sync, upsert-only, create-only, observe"),
        ("max_removed_percent", 101, "a whole number from 0 to 100"),
        ("max_removed_members", -1, "a whole number of 0 or more"),
        ("limit_cuts", True, "use one of hold, allow"),
        ("usage_decreases", "no", "use one of hold, allow"),
        ("protected_users", {"root": 1}, "text is needed"),
        ("ignore_users", ["a", ""], "`ignore_users[1]` is ''; it cannot be empty"),
        ("paused", "maybe", "use true or false"),
    ],
)
@pytest.mark.parametrize("place", ["policy", "offerings[0].policy"])
def test_a_wrong_value_stops_the_start(
    site: Site, place: str, key: str, value: object, sentence: str
) -> None:
    tree = with_offering(f"policy.{key}", value) if place != "policy" else root(policy={key: value})
    ((path, message),) = errors(site.load(tree)).items()
    assert path.startswith(f"{place}.{key}") and sentence in message


def test_budgets_are_taken_cost_by_cost_and_hour_and_day_apart(site: Site) -> None:
    at_root = {"budgets": {"limits_cut": {"hour": 7, "day": 9}, "accounts_moved": {"hour": 500}}}
    rules = policy(site, at_root, {"budgets": {"limits_cut": {"day": 8}, "members_removed": {"hour": 5}}})
    assert rules.budget(Cost.LIMITS_CUT) == Budget(7, 8)
    assert rules.budget(Cost.ACCOUNTS_MOVED) == Budget(500, 500)
    assert rules.budget(Cost.ACCOUNTS_BLOCKED) == BUDGETS[Cost.ACCOUNTS_BLOCKED]
    assert rules.budget(Cost.MEMBERS_REMOVED) == Budget(5, 150)
    assert rules.max_removed_members == 5


@pytest.mark.parametrize(
    ("written", "place", "sentence"),
    [
        ({"limit_cuts": {"hour": 1}}, "limit_cuts", "no such cost; use members_removed, accounts_emptied"),
        ({"limits_cut": 5}, "limits_cut", "write `hour` and `day` below it"),
        ({"limits_cut": {"hour": 0}}, "limits_cut.hour", "a whole number of 1 or more"),
        ({"limits_cut": {"hour": 9, "day": 8}}, "limits_cut.day", "less than the 9 of an hour"),
        ({"limits_cut": {"day": 8}}, "limits_cut.day", "less than the 50 of an hour"),
    ],
)
def test_a_wrong_budget_stops_the_start(
    site: Site, written: dict[str, Any], place: str, sentence: str
) -> None:
    said = errors(site.load(with_offering("policy.budgets", written)))
    assert sentence in said[f"offerings[0].policy.budgets.{place}"]


def test_the_hour_of_members_is_said_once(site: Site) -> None:
    section = {"max_removed_members": 5, "budgets": {"members_removed": {"hour": 6}}}
    said = errors(site.load(root(policy=section)))
    assert "`max_removed_members` says 5" in said["policy.budgets.members_removed.hour"]


def test_a_misspelt_key_is_named_with_the_nearest(site: Site) -> None:
    loaded = site.load(with_offering("policy.max_remove_members", 5))
    said = warnings(loaded)["offerings[0].policy.max_remove_members"]
    assert "did you mean 'max_removed_members'?" in said


@pytest.mark.parametrize(
    ("written", "source"), [(None, "cluster"), ("cluster", "cluster"), ("waldur", "waldur")]
)
def test_whose_limits_count(site: Site, written: str | None, source: str) -> None:
    loaded = site.load(with_offering("limits_source", written))
    assert only_offering(loaded).limits_source is LimitsSource(source)
