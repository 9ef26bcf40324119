# SPDX-License-Identifier: MIT
"""Project directories: which are made, which quotas are set, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

from agent.core.host_actions import MakeProjectDirectory, SetProjectQuota
from agent.core.model import Snapshot
from agent.core.policy import PolicyRules
from agent.core.project_directories import DirectoryRecord, DirectoryRules, ProjectQuota
from agent.plan.project_directories import DirectoryFacts, changes, due, unrecorded

QUOTA = ProjectQuota("/lustre", (("bhard", "1000"),), id_offset=100)
RULES = DirectoryRules("/p", "nobody", 0o2770, has_acl=True, quota=QUOTA)
DONE = DirectoryRecord(quota=QUOTA.mark())
NEW = MakeProjectDirectory(
    account="a", path="/p/a", owner="nobody", group="a", gid=7, mode="2770", has_acl=True, project_id=107
)
LIMIT = SetProjectQuota(
    account="a", path="/p/a", project_id=107, mount_point="/lustre", limits=(("bhard", "1000"),)
)


def facts(*accounts: str, **known: object) -> DirectoryFacts:
    return replace(DirectoryFacts(accounts, {}, {}, {"a": 7}), **known)


def test_a_directory_is_made_and_then_limited_once() -> None:
    assert changes(facts("a"), RULES).of_account == {"a": (NEW, LIMIT)}
    assert changes(facts("a", standing={"a": ""}), RULES).of_account == {"a": (LIMIT,)}
    assert changes(facts("a", standing={"a": ""}, records={"a": DONE}), RULES).of_account == {}
    plain = replace(RULES, quota=None)
    assert changes(facts("a"), plain).of_account == {"a": (replace(NEW, project_id=0),)}
    assert due(["a", "b"], {"a": ""}, {"a": DONE}, RULES) == ("b",)


def test_a_directory_that_was_removed_gets_its_quota_again() -> None:
    assert changes(facts("a", records={"a": DONE}), RULES).of_account == {"a": (NEW, LIMIT)}


def test_who_waits_or_is_left_alone_has_no_action() -> None:
    found = changes(facts("a", "b", "../c", standing={"a": "it is no folder"}), RULES)
    assert found.of_account == {}
    assert found.troubles["a"] == "/p/a is left alone: it is no folder"
    assert found.troubles["b"] == "group b is not known yet"
    assert "cannot be a folder's" in found.troubles["../c"]


def test_an_id_that_is_too_large_costs_the_quota_only() -> None:
    high = replace(RULES, quota=replace(QUOTA, id_offset=2**32 - 2))
    found = changes(facts("a"), high)
    assert found.of_account == {"a": (replace(NEW, project_id=0),)}
    assert "is too large" in found.troubles["a"]


def test_a_lower_quota_takes_something_away_and_another_place_is_unknown() -> None:
    seen = facts("a", standing={"a": ""}, records={"a": DONE})
    for limits, mount_point, lower in (
        ((("bhard", "900"),), "/lustre", True),
        ((("bhard", "2000"),), "/lustre", False),
        ((("bhard", "0"),), "/lustre", False),
        ((("bhard", "900"),), "/other", True),
    ):
        quota = replace(QUOTA, limits=limits, mount_point=mount_point)
        (action,) = changes(seen, replace(RULES, quota=quota)).of_account["a"]
        assert action.takes_away(Snapshot("c"), PolicyRules()) is lower


def test_a_quota_that_we_have_no_record_of_is_compared_with_the_present_one_or_counts_as_lower() -> None:
    stands = facts("a", standing={"a": ""})
    assert unrecorded(stands, RULES) == {"a": 107}
    assert unrecorded(facts("a", "b"), RULES) == {}
    assert unrecorded(replace(stands, records={"a": DONE}), RULES) == {}
    for present, lower in (
        ({"a": (("bhard", "5000"),)}, True),
        ({"a": (("bhard", "0"),)}, True),
        ({"a": (("bhard", "1000"),)}, False),
        ({"a": (("bhard", "10"),)}, False),
        ({}, True),
    ):
        (action,) = changes(replace(stands, present=present), RULES).of_account["a"]
        assert action.takes_away(Snapshot("c"), PolicyRules()) is lower, present
    (_, first) = changes(facts("a"), RULES).of_account["a"]
    assert not first.takes_away(Snapshot("c"), PolicyRules())


def test_who_is_in_trouble_comes_last() -> None:
    records = {"a": DirectoryRecord(logged="it waits")}
    assert due(["a", "b"], {}, records, RULES) == ("b", "a")
