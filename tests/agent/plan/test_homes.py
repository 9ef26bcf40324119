# SPDX-License-Identifier: MIT
"""Homes: what is due for whom, in which order, and nothing twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.homes import NOTHING, Home, HomeQuota, HomeRecord, HomeRules, QuotaProvider, is_username
from agent.core.host_actions import MakeHome, SetQuota
from agent.core.policy import PolicyRules
from agent.plan.homes import actions, is_done, sort

XFS = HomeQuota(QuotaProvider.XFS, (("bhard", "10g"),), "/xfs")
CEPH = HomeQuota(QuotaProvider.CEPH_XATTR, (("ceph.quota.max_files", "5"),))
PLAIN = HomeRules(umask="0027")
LIMITED = HomeRules(umask="0027", base_path="/homes", quota=XFS)
ANN = Home("ann", "/homes/ann", made_at="/home/ann")
DONE = HomeRecord(home=LIMITED.home_mark(), quota=LIMITED.quota_mark())


def test_a_new_user_gets_a_home_and_then_a_quota() -> None:
    assert actions(ANN, NOTHING, LIMITED) == (
        MakeHome(user="ann", path="/home/ann", umask="0027"),
        SetQuota(user="ann", provider="xfs", place="/xfs", limits=(("bhard", "10g"),)),
    )


def test_the_quota_of_ceph_belongs_to_the_home() -> None:
    (quota,) = actions(replace(ANN, exists=True), NOTHING, replace(LIMITED, quota=CEPH))
    assert quota == SetQuota(
        user="ann", provider="ceph_xattr", place="/homes/ann", limits=(("ceph.quota.max_files", "5"),)
    )


def test_nothing_for_a_home_in_trouble() -> None:
    assert actions(replace(ANN, trouble="a link"), NOTHING, LIMITED) == ()


@pytest.mark.parametrize(
    "other",
    [
        replace(LIMITED, quota=replace(XFS, limits=(("bhard", "11g"),))),
        replace(LIMITED, quota=replace(XFS, limits=(("bsoft", "10g"),))),
        replace(LIMITED, quota=replace(XFS, mount_point="/other")),
        replace(LIMITED, quota=replace(XFS, provider=QuotaProvider.LUSTRE)),
        replace(LIMITED, base_path="/elsewhere"),
    ],
)
def test_a_changed_setting_is_due_once_more(other: HomeRules) -> None:
    assert is_done(DONE, LIMITED)
    assert not is_done(DONE, other)
    assert is_done(HomeRecord(home=other.home_mark(), quota=other.quota_mark()), other)


@pytest.mark.parametrize("other", [replace(LIMITED, umask="0077"), replace(LIMITED, quota=None)])
def test_what_changes_no_home_that_is_there(other: HomeRules) -> None:
    assert is_done(DONE, other)


def test_those_who_failed_come_last() -> None:
    memory = {"ann": HomeRecord(failures=2), "bob": HomeRecord(failures=1), "dan": DONE}
    found = sort(["dan", "ann", "bob", "cat", "Eve", ""], memory, LIMITED)
    assert (found.kept, found.due, found.refused) == (("dan",), ("cat", "bob", "ann"), ("", "Eve"))


def test_users_whom_the_policy_leaves_alone() -> None:
    policy = PolicyRules(protected_users=frozenset({"root", "boss"}), ignore_users=frozenset({"svc_*"}))
    names = ["ann", "root", "boss", "svc_x", "svc"]
    assert [name for name in names if not policy.spares(name)] == ["ann", "svc"]


RULES = st.builds(
    HomeRules,
    base_path=st.sampled_from(["", "/homes"]),
    quota=st.sampled_from([None, XFS, CEPH]),
)
REMEMBERED = st.builds(
    HomeRecord,
    home=st.sampled_from(["", PLAIN.home_mark(), LIMITED.home_mark()]),
    quota=st.sampled_from(["", "x", LIMITED.quota_mark()]),
    failures=st.integers(0, 3),
)


@given(rules=RULES, record=REMEMBERED, exists=st.booleans())
def test_what_was_done_is_not_planned_again(rules: HomeRules, record: HomeRecord, exists: bool) -> None:
    """Applying a plan and planning again gives nothing."""
    home = replace(ANN, exists=exists)
    for action in actions(home, record, rules):
        if isinstance(action, MakeHome):
            home = replace(home, exists=True)
        else:
            record = replace(record, quota=rules.quota_mark())
    assert actions(home, record, rules) == ()
    assert is_done(replace(record, home=rules.home_mark()), rules)


@given(
    names=st.lists(st.sampled_from("abcdefgh")), memory=st.dictionaries(st.sampled_from("abcd"), REMEMBERED)
)
def test_everybody_is_sorted_once_whatever_the_order(names: list[str], memory: dict[str, HomeRecord]) -> None:
    found = sort(names, memory, LIMITED)
    assert found == sort(reversed(names), memory, LIMITED)
    assert sorted(found.kept + found.due + found.refused) == sorted(set(names))


@given(name=st.text(max_size=20))
def test_a_name_is_one_word_for_every_tool_and_one_step_of_a_path(name: str) -> None:
    if is_username(name):
        assert name.split() == [name]
        assert not set(name) & set("/\\'\"=,;*?[]()|&$`\n\0 ")
        assert name[0] not in "-.0123456789"
