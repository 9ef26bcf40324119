# SPDX-License-Identifier: MIT
"""QoS of accounts, and QoS and partitions of members: what is planned, and what is left to others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.actions import ClusterAction
from agent.core.association_actions import RemovePartition
from agent.core.associations import Association
from agent.core.model import (
    Account,
    AccountSpec,
    AllocationSpec,
    MemberQos,
    OwnQos,
    Part,
    RequestedState,
    Snapshot,
)
from agent.plan import accounts, existing_accounts
from backends.slurm.canonical import canonical
from backends.testing.memory import slurm_settings
from tests.agent.plan.worlds import cluster

OWN = OwnQos("a_one", "NoDecay", (("MaxJobs", "5"),), holds_limits=True)
SPEC = AllocationSpec(AccountSpec("a_one", "root"), limits={"cpu": 60}, members=("ann",))
BEFORE = cluster({"root": None})
STANDING = cluster({"root": None, "a_one": "root"}, [("a_one", "ann")])
LIMITED = {"enabled": True, "skip_qos_swap": True, "apply_limits_to_qos": True}


def lines(actions: list[ClusterAction]) -> list[str]:
    return [action.line() for action in actions]


def with_qos(snapshot: Snapshot, *names: str, made: tuple[str, ...] = ()) -> Snapshot:
    return replace(snapshot, qos=frozenset({"normal", *names, *made}), made_qos=frozenset(made))


def alter(snapshot: Snapshot, account: str, **fields: Any) -> Snapshot:
    changed = replace(snapshot.accounts[account], **fields)
    return replace(snapshot, accounts={**snapshot.accounts, account: changed})


def after(snapshot: Snapshot, actions: list[ClusterAction]) -> Snapshot:
    for action in sorted(actions, key=lambda action: action.phase):
        snapshot = action.applied_to(snapshot)
    return snapshot


# Per-account QoS ---------------------------------------------------------------------------------


def test_limits_go_on_the_qos_which_comes_after_its_account_and_begins_at_zero() -> None:
    spec = replace(SPEC, own_qos=OWN)
    actions = accounts.building(spec, BEFORE, "")
    assert lines(actions) == [
        "create account a_one below root",
        "create QoS a_one NoDecay MaxJobs=5",
        "reset usage of QoS a_one",
        "set QoS a_one normal -> normal,a_one default a_one",
        "set limits a_one on its QoS cpu=none->60",
        "add member ann to a_one",
    ]
    by_phase = sorted(actions, key=lambda action: action.phase)
    assert [action.verb for action in by_phase][:2] == ["create account", "create QoS"]
    built = after(BEFORE, actions)
    assert accounts.building(spec, built, "") == []
    assert lines(accounts.limits("a_one", {"cpu": 30}, built, "")) == [
        "set limits a_one on its QoS cpu=60->30"
    ]


@pytest.mark.parametrize("standing", [BEFORE, STANDING])
def test_a_qos_that_was_made_and_not_given_yet_still_begins_at_zero(standing: Snapshot) -> None:
    spec = replace(SPEC, own_qos=OWN)
    found = accounts.building(spec, with_qos(standing, made=("a_one",)), "")
    verbs = [action.verb for action in sorted(found, key=lambda action: action.phase)]
    assert verbs.index("reset usage of QoS") < verbs.index("set QoS")
    assert "create QoS" not in verbs


def test_an_account_that_was_limited_before_keeps_its_limits_itself() -> None:
    limited = alter(STANDING, "a_one", limits={"cpu": 5})
    found = accounts.building(replace(SPEC, own_qos=OWN), limited, "")
    assert "set limits a_one cpu=5->60" in lines(found)
    spec = canonical(slurm_settings(qos_management=LIMITED), SPEC, limited)
    assert any("stay on the account" in note for note in spec.notes)


FOREIGN = with_qos(BEFORE, "a_one")
USED_BY_OTHERS = alter(with_qos(STANDING, "a_one"), "root", qos=frozenset({"a_one"}))


@pytest.mark.parametrize(
    ("snapshot", "is_ours"),
    [
        (FOREIGN, False),
        (USED_BY_OTHERS, False),
        (replace(with_qos(BEFORE, "a_one"), foreign_qos=frozenset({"a_one"})), False),
        (replace(with_qos(STANDING, "a_one"), foreign_qos=frozenset({"a_one"})), False),
        (with_qos(BEFORE, made=("a_one",)), True),
        (alter(with_qos(STANDING, "a_one"), "a_one", default_qos="a_one"), True),
        (BEFORE, True),
    ],
)
def test_a_qos_that_is_not_ours_is_left_alone(snapshot: Snapshot, is_ours: bool) -> None:
    spec = canonical(slurm_settings(qos_management=LIMITED), SPEC, snapshot)
    assert (spec.own_qos is not None) == is_ours
    assert any("was not made for account a_one" in note for note in spec.notes) != is_ours
    built = lines(accounts.building(spec, snapshot, ""))
    assert any("QoS" in line for line in built) == is_ours
    if "a_one" in snapshot.accounts:
        removed = lines(accounts.removal("a_one", snapshot, default_account="root", reason=""))
        assert ("delete QoS a_one" in removed) == is_ours


@pytest.mark.parametrize("name", ["normal", "stop", "extra"])
def test_no_account_owns_a_qos_of_the_site(name: str) -> None:
    settings = slurm_settings(
        qos_paused="stop", qos_management={"enabled": True, "additional_qos": ["Extra"]}
    )
    spec = replace(SPEC, account=AccountSpec(name, "root"))
    assert canonical(settings, spec, BEFORE).own_qos is None


@pytest.mark.parametrize(("other", "expected"), [("", ["delete QoS a_one"]), ("root", [])])
def test_a_qos_that_still_stands_is_deleted_with_the_next_try(other: str, expected: list[str]) -> None:
    left = with_qos(BEFORE, made=("a_one",))
    if other:
        left = alter(left, other, qos=frozenset({"a_one"}))
    assert lines(accounts.left_qos("a_one", left, "")) == expected
    assert accounts.left_qos("a_one", with_qos(BEFORE, "a_one"), "") == []


@pytest.mark.parametrize(
    ("flags", "submission"),
    [({"paused": True}, False), ({"downscaled": True}, False), ({}, True)],
)
def test_without_a_swap_a_pause_closes_the_account(flags: dict[str, bool], submission: bool) -> None:
    settings = slurm_settings(qos_management={"skip_qos_swap": True})
    spec = canonical(settings, replace(SPEC, requested=RequestedState(**flags)), STANDING)
    assert (spec.state.submission, spec.state.qos, spec.notes) == (submission, (), ())


@pytest.mark.parametrize(
    ("management", "fields", "command"),
    [
        ({}, {"submit_limit": 0}, "set GrpSubmitJobs=-1"),
        ({}, {"default_qos": "stop"}, ""),
        ({"skip_qos_swap": True}, {"default_qos": "stop"}, "set qos=normal defaultqos=normal"),
        ({"skip_qos_swap": True}, {"default_qos": "normal"}, ""),
        ({"skip_qos_swap": True}, {"submit_limit": 0}, ""),
    ],
)
def test_what_another_way_of_pausing_may_have_left_is_noted(
    management: dict[str, Any], fields: dict[str, Any], command: str
) -> None:
    held = alter(STANDING, "a_one", **fields)
    settings = slurm_settings(qos_management=management)
    notes = canonical(settings, SPEC, held).notes
    expected = [f"where name=a_one {command}"] if command else []
    assert [note.partition("sacctmgr modify account ")[2] for note in notes] == expected
    paused = canonical(settings, replace(SPEC, requested=RequestedState(paused=True)), held)
    assert not any("sacctmgr" in note for note in paused.notes)
    assert canonical(settings, SPEC, held).state.is_unclear == ("defaultqos" in command)


# QoS and partitions of members -------------------------------------------------------------------

PLACED = replace(SPEC, partitions=("gpu", "main"), qos=("fast",), default_qos="fast")
FAST = MemberQos(frozenset({"fast"}), "fast")


def rows(*partitions: str, qos: MemberQos | None = FAST, default: str = "a_one") -> Snapshot:
    found = frozenset(Association("a_one", "ann", partition) for partition in partitions)
    own = dict.fromkeys(found, qos) if qos else {}
    return replace(STANDING, associations=found, member_qos=own, default_accounts={"ann": default})


SYNCED = {
    "in step": (rows("gpu", "main"), []),
    "one too many": (
        rows("gpu", "main", "old"),
        ["keep default account a_one of ann", "remove partition old of ann in a_one"],
    ),
    "good for all": (
        rows("gpu", "main", ""),
        ["keep default account a_one of ann", "remove partition without a name of ann in a_one"],
    ),
    "another default account": (
        rows("gpu", "main", "old", default="root"),
        ["remove partition old of ann in a_one"],
    ),
    "nothing that is wanted stands yet": (rows("old"), []),
    "no QoS": (rows("gpu", "main", qos=None), ["set QoS of member ann in a_one none -> fast default fast"]),
    "another default QoS": (
        rows("gpu", "main", qos=MemberQos(frozenset({"fast"}), "")),
        ["set QoS of member ann in a_one fast -> fast default fast"],
    ),
    "the same QoS in capitals": (rows("gpu", "main", qos=MemberQos(frozenset({"FAST"}), "Fast")), []),
}


@pytest.mark.parametrize("what", SYNCED)
def test_members_who_are_in_get_what_is_wanted_now(what: str) -> None:
    snapshot, expected = SYNCED[what]
    found = list(existing_accounts.associations(PLACED, snapshot, ""))
    assert lines(found) == expected
    assert list(existing_accounts.associations(PLACED, after(snapshot, found), "")) == []


def test_what_replaces_a_partition_is_there_before_that_goes() -> None:
    first = list(accounts.missing_members(PLACED, rows("old"), ""))
    assert lines(first) == ["add member ann to a_one on gpu,main"]
    then = existing_accounts.associations(PLACED, after(rows("old"), first), "")
    assert [type(action) for action in then].count(RemovePartition) == 1


def test_what_people_gave_by_hand_stays_where_the_site_names_nothing() -> None:
    assert list(existing_accounts.associations(SPEC, rows("old", "", qos=FAST), "")) == []
    only_qos = replace(PLACED, partitions=())
    assert list(existing_accounts.associations(only_qos, rows("old", ""), "")) == []


NAMES = replace(
    STANDING,
    qos=frozenset({"normal", "fast"}),
    partitions=frozenset({"gpu", "main"}),
    accounts={**STANDING.accounts, "x": Account("x", "root")},
)
ENFORCED = {"qos_enforcement_enabled": True, "enforce_offering_qos": True}
PARTITIONS = {"enforce_offering_partitions": True}
CHECKED: dict[str, tuple[dict[str, Any], RequestedState, tuple[str, ...], str]] = {
    "all there": (PARTITIONS, RequestedState(offering_partitions=("gpu", "main")), ("gpu", "main"), ""),
    "one of the offering's is not": (
        PARTITIONS, RequestedState(offering_partitions=("gpu", "gone")), ("gpu",), ""
    ),
    "the default one is not": (
        {"default_partition": "gone"}, RequestedState(), ("gone",), "cluster test has no partition 'gone'"
    ),
    "the QoS is not": (
        ENFORCED, RequestedState(qos="slow", offering_qos=("slow",)), (), "cluster test has no QoS 'slow'"
    ),
    "the order's partition is not": (
        ENFORCED, RequestedState(qos="fast", partition="gone", offering_qos=("fast",)), ("gone",),
        "cluster test has no partition 'gone'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHECKED)
def test_names_are_looked_up_on_the_cluster_where_its_lists_were_read(what: str) -> None:
    settings, requested, partitions, unplaced = CHECKED[what]
    wanted = replace(SPEC, members=("ann", "bob"), requested=requested)
    spec = canonical(slurm_settings(**settings), wanted, NAMES)
    assert spec.partitions == partitions
    assert spec.unplaced.startswith(unplaced) and bool(spec.unplaced) == bool(unplaced)
    joins = list(accounts.missing_members(spec, NAMES, ""))
    assert bool(joins) == (not unplaced)
    unread = replace(NAMES, complete=NAMES.complete - {Part.QOS, Part.PARTITIONS})
    assert canonical(slurm_settings(**settings), wanted, unread).unplaced == ""
