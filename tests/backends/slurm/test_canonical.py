# SPDX-License-Identifier: MIT
"""The desired state in the cluster's spelling: hierarchy, names, TRES, partitions, QoS; twice changes nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.errors import BackendUnavailable, ConfigError, PlanRefused
from agent.core.model import Account, AccountSpec, AllocationSpec, OwnQos, Part, RequestedState, Snapshot
from backends.slurm.canonical import canonical
from backends.testing.memory import slurm_settings

SNAPSHOT = Snapshot("c1", tres=frozenset({"cpu", "mem"}), complete=frozenset({Part.TRES}))
SPEC = AllocationSpec(
    account=AccountSpec("A_One ", "P_Proj", "My allocation", "P_Proj"),
    ancestors=(
        AccountSpec("C_Cust", "", "The Customer", "C_Cust"),
        AccountSpec("P_Proj", "C_Cust", "The Project", "P_Proj"),
    ),
    limits={"cpu": 60, "gres/gpu": 5},
    members=("Ann", "bob", "ann "),
    notes=("from before",),
)


def spelled(spec: AllocationSpec = SPEC, **settings: Any) -> AllocationSpec:
    return canonical(slurm_settings(**settings), spec, SNAPSHOT)


def hierarchy(spec: AllocationSpec) -> list[tuple[str, str]]:
    return [(account.name, account.parent) for account in (*spec.ancestors, spec.account)]


HIERARCHIES: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({}, [("c_cust", "root"), ("p_proj", "c_cust"), ("a_one", "p_proj")]),
    ({"root_account": "Top"}, [("c_cust", "top"), ("p_proj", "c_cust"), ("a_one", "p_proj")]),
    ({"default_account": "users"}, [("c_cust", "users"), ("p_proj", "c_cust"), ("a_one", "p_proj")]),
    (
        {"default_account": "users", "root_account": "top"},
        [("c_cust", "top"), ("p_proj", "c_cust"), ("a_one", "p_proj")],
    ),
    ({"parent_account": "Flat"}, [("p_proj", "flat"), ("a_one", "p_proj")]),
    ({"parent_account": "flat", "root_account": "top"}, [("p_proj", "flat"), ("a_one", "p_proj")]),
]


@pytest.mark.parametrize(("settings", "wanted"), HIERARCHIES)
def test_the_hierarchy_hangs_below_the_sites_account(
    settings: dict[str, Any], wanted: list[tuple[str, str]]
) -> None:
    assert hierarchy(spelled(**settings)) == wanted


def test_names_are_folded_once_and_texts_are_kept() -> None:
    spec = spelled()
    assert spec.account == AccountSpec("a_one", "p_proj", "My allocation", "P_Proj")
    assert spec.members == ("ann", "bob")


def test_tres_that_the_cluster_does_not_track_are_left_out_with_a_note() -> None:
    spec = spelled()
    assert dict(spec.limits) == {"cpu": 60}
    assert spec.notes[0] == "from before"
    assert spec.notes[1].startswith(
        "limit gres/gpu=5 is skipped: this cluster does not track the TRES gres/gpu"
    )


def test_without_the_list_of_tres_no_limit_is_dropped_but_all_waits() -> None:
    """An account without its limits would be unlimited."""
    with pytest.raises(BackendUnavailable, match="tres could not be read"):
        canonical(slurm_settings(), SPEC, replace(SNAPSHOT, tres=frozenset(), complete=frozenset()))


def test_members_that_are_no_user_names_are_left_out_with_a_note() -> None:
    spec = spelled(replace(SPEC, members=("ann", "a,b", "", "-x", "set")))
    assert spec.members == ("ann",)
    assert [note for note in spec.notes if note.startswith("member")] == [
        f"member {name!r} is skipped: it is not a valid SLURM user name" for name in ("a,b", "", "-x", "set")
    ]


BAD_ACCOUNTS: list[tuple[AllocationSpec, dict[str, Any], str]] = [
    (replace(SPEC, account=AccountSpec("a,b", "p_proj")), {}, "account name 'a,b'"),
    (replace(SPEC, account=AccountSpec("a", "p|")), {}, "account name 'p|'"),
    (replace(SPEC, account=AccountSpec("", "p")), {}, "account name '': it is empty"),
    (replace(SPEC, account=AccountSpec("Ünï", "p")), {}, "account name 'Ünï'"),
    (replace(SPEC, ancestors=(AccountSpec("c d", ""), SPEC.ancestors[1])), {}, "account name 'c d'"),
    (replace(SPEC, ancestors=(SPEC.ancestors[0], AccountSpec("p=d", "c_cust"))), {}, "account name 'p=d'"),
]


@pytest.mark.parametrize(("spec", "settings", "words"), BAD_ACCOUNTS)
def test_an_account_that_slurm_cannot_name_is_refused(
    spec: AllocationSpec, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(PlanRefused) as refused:
        spelled(spec, **settings)
    assert words.partition(":")[0] in str(refused.value)


def test_a_customer_without_a_name_is_refused_only_where_there_is_such_a_level() -> None:
    nameless = replace(SPEC, ancestors=(AccountSpec("", ""), AccountSpec("p_proj", "")))
    with pytest.raises(PlanRefused, match="no slug for the customer"):
        spelled(nameless)
    assert hierarchy(spelled(nameless, parent_account="flat")) == [("p_proj", "flat"), ("a_one", "p_proj")]


def test_a_customer_that_slurm_cannot_name_does_not_matter_where_there_is_no_such_level() -> None:
    bad = replace(SPEC, ancestors=(AccountSpec("c d", ""), AccountSpec("p_proj", "c d")))
    assert hierarchy(spelled(bad, parent_account="flat")) == [("p_proj", "flat"), ("a_one", "p_proj")]


POLICIES: list[tuple[dict[str, Any], str]] = [
    ({"default_account_policy": "none"}, ""),
    ({"default_account_policy": "none", "default_account": "no_jobs"}, ""),
    ({"default_account_policy": "individual"}, "a_one"),
    ({"default_account_policy": "individual", "default_account": "no_jobs"}, "a_one"),
    ({"default_account_policy": "common", "default_account": "No_Jobs"}, "no_jobs"),
    ({"default_account_policy": "common", "default_account": "below"}, "below"),
    # Who has an account that takes jobs as default could run there without limit or report.
    ({"default_account_policy": "common"}, ""),
    ({"default_account_policy": "common", "default_account": "Users"}, ""),
    ({"default_account_policy": "common", "default_account": "nosuch"}, ""),
]
WITH_NO_JOBS = replace(
    SNAPSHOT,
    accounts={
        "root": Account("root", None),
        "users": Account("users", "root", submit_limit=100),
        "no_jobs": Account("no_jobs", "root", submit_limit=0),
        "below": Account("below", "no_jobs"),
    },
)


@pytest.mark.parametrize(("settings", "default"), POLICIES)
def test_the_policy_names_the_members_default_account(settings: dict[str, Any], default: str) -> None:
    spec = canonical(slurm_settings(**settings), SPEC, WITH_NO_JOBS)
    assert spec.default_account == default
    assert canonical(slurm_settings(**settings), spec, WITH_NO_JOBS) == spec


# Which QoS and partitions an association gets: slurm-backend.md, 2.5 --------------------------------

ON: dict[str, Any] = {"qos_enforcement_enabled": True, "enforce_offering_qos": True}
ASKED = RequestedState(
    qos="fast", partition="gpu", offering_partitions=("gpu", "x"), offering_qos=("fast", "slow")
)

CHOICES: dict[str, tuple[dict[str, Any], RequestedState, str, tuple[str, ...]]] = {
    "plain": ({}, RequestedState(), "", ()),
    "a QoS that is not enforced": ({}, ASKED, "", ()),
    "QoS with the order's partition": (ON, ASKED, "fast", ("gpu",)),
    "QoS with the order's partition, before the offering's": (
        {**ON, "enforce_offering_partitions": True, "default_partition": "main"},
        ASKED,
        "fast",
        ("gpu",),
    ),
    "QoS with the offering's partitions": (
        {**ON, "enforce_offering_partitions": True, "default_partition": "main"},
        replace(ASKED, partition=""),
        "fast",
        ("gpu", "x"),
    ),
    "QoS with the default partition": (
        {**ON, "default_partition": "main"},
        replace(ASKED, partition=""),
        "fast",
        ("main",),
    ),
    "QoS without partitions": (ON, replace(ASKED, partition=""), "fast", ()),
    "enforced, but the order names none": (ON, replace(ASKED, qos=""), "", ()),
    "no QoS: the order's partition does not count": (
        {"default_partition": "main"},
        replace(ASKED, offering_partitions=()),
        "",
        ("main",),
    ),
    "offering's partitions": ({"enforce_offering_partitions": True}, ASKED, "", ("gpu", "x")),
    "offering's partitions before the default one": (
        {"enforce_offering_partitions": True, "default_partition": "main"},
        ASKED,
        "",
        ("gpu", "x"),
    ),
    "an offering without partitions": (
        {"enforce_offering_partitions": True, "default_partition": "main"},
        replace(ASKED, offering_partitions=()),
        "",
        ("main",),
    ),
    "default partition": ({"default_partition": "main"}, RequestedState(), "", ("main",)),
}


@pytest.mark.parametrize("what", CHOICES)
def test_an_association_gets(what: str) -> None:
    settings, requested, qos, partitions = CHOICES[what]
    spec = spelled(replace(SPEC, requested=requested), **settings)
    assert (spec.qos, spec.default_qos) == (((qos,) if qos else ()), qos)
    assert spec.partitions == partitions


@pytest.mark.parametrize(
    ("master", "site", "offering"), list(product([True, False], [None, True, False], [True, False]))
)
def test_the_site_decides_over_the_offering_and_the_master_switch_over_both(
    master: bool, site: bool | None, offering: bool
) -> None:
    requested = RequestedState(qos="fast", offering_qos=("fast",), offering_enforces_qos=offering)
    spec = spelled(
        replace(SPEC, requested=requested), qos_enforcement_enabled=master, enforce_offering_qos=site
    )
    enforced = master and (offering if site is None else site)
    assert spec.default_qos == ("fast" if enforced else "")


NOT_OFFERED: dict[str, tuple[dict[str, Any], RequestedState, str]] = {
    "a QoS that no offering names": ({}, replace(ASKED, offering_qos=()), "no QoS 'fast' in Waldur"),
    "a QoS of the site": ({}, replace(ASKED, qos="root_only"), "no QoS 'root_only' in Waldur"),
    "a QoS of another partition": (
        {},
        replace(ASKED, partition_qos={"gpu": ("slow",), "x": ("fast",)}),
        "no QoS 'fast' on its partition gpu",
    ),
    "a partition of the site": ({}, replace(ASKED, partition="admins"), "no partition 'admins'"),
    "a partition of the site, where the offering's are enforced": (
        {"enforce_offering_partitions": True, "default_partition": "main"},
        replace(ASKED, partition="main"),
        "no partition 'main'",
    ),
    "a partition in addition to the default one": (
        {"default_partition": "main"},
        replace(ASKED, offering_partitions=()),
        "no partition 'gpu'",
    ),
}


@pytest.mark.parametrize("what", NOT_OFFERED)
def test_what_the_offering_does_not_have_is_not_given(what: str) -> None:
    """Waldur takes an order with any value: its form alone shows what there is."""
    settings, requested, words = NOT_OFFERED[what]
    spec = spelled(replace(SPEC, requested=requested), **ON, **settings)
    plain = spelled(replace(SPEC, requested=replace(requested, qos="", partition="")), **ON, **settings)
    assert (spec.qos, spec.default_qos, spec.partitions) == ((), "", plain.partitions)
    (why,) = spec.not_offered
    assert words in why
    assert canonical(slurm_settings(**ON, **settings), spec, SNAPSHOT) == spec
    assert spelled(replace(SPEC, requested=requested), **settings).not_offered == ()


OFFERED: dict[str, tuple[dict[str, Any], RequestedState, tuple[str, ...]]] = {
    "the usual QoS": ({"qos_default": "fast"}, replace(ASKED, offering_qos=()), ("gpu",)),
    "a QoS of its partition": ({}, replace(ASKED, partition_qos={"gpu": ("fast",)}), ("gpu",)),
    "one of all partitions": ({}, replace(ASKED, partition="any", offering_partitions=()), ("any",)),
    "the default partition": ({"default_partition": "main"}, replace(ASKED, partition="main"), ("main",)),
}


@pytest.mark.parametrize("what", OFFERED)
def test_what_the_others_have_too_may_be_named(what: str) -> None:
    settings, requested, partitions = OFFERED[what]
    spec = spelled(replace(SPEC, requested=requested), **ON, **settings)
    assert (spec.not_offered, spec.default_qos, spec.partitions) == ((), "fast", partitions)


BAD_REQUESTS: list[tuple[RequestedState, str]] = [
    (RequestedState(qos="fast,root"), "QoS name 'fast,root'"),
    (RequestedState(qos="fa\nst"), "QoS name"),
    (RequestedState(qos="fast", partition="a b"), "partition name 'a b'"),
]


@pytest.mark.parametrize(("requested", "words"), BAD_REQUESTS)
def test_a_requested_name_that_slurm_cannot_take_is_refused_only_where_it_counts(
    requested: RequestedState, words: str
) -> None:
    with pytest.raises(PlanRefused, match=words):
        spelled(replace(SPEC, requested=requested), **ON)
    assert spelled(replace(SPEC, requested=requested)).qos == ()


ENFORCED: dict[str, Any] = {"enforce_offering_partitions": True}


@pytest.mark.parametrize(
    ("offered", "settings", "kept"),
    [
        (("big mem", "gpu"), ENFORCED, ("gpu",)),
        (("big mem",), {**ENFORCED, "default_partition": "main"}, ("main",)),
        (("big mem",), {}, ()),
    ],
)
def test_a_partition_of_the_offering_that_slurm_cannot_name_is_no_orders_fault(
    offered: tuple[str, ...], settings: dict[str, Any], kept: tuple[str, ...]
) -> None:
    spec = spelled(replace(SPEC, requested=RequestedState(offering_partitions=offered)), **settings)
    assert spec.partitions == kept
    noted = (
        "partition 'big mem' of the offering is skipped: it is not a valid SLURM partition name" in spec.notes
    )
    assert noted == bool(settings)
    assert spelled(spec, **settings) == spec


def test_where_no_partition_of_the_offering_can_be_used_no_member_gets_all_of_them() -> None:
    requested = RequestedState(offering_partitions=("big mem", "a,b"))
    with pytest.raises(ConfigError, match=r"\('big mem', 'a,b'\) can be one of SLURM"):
        spelled(replace(SPEC, requested=requested), **ENFORCED)


def test_limits_that_apply_limits_to_qos_leaves_are_noted_with_the_way_to_move_them() -> None:
    left = replace(SNAPSHOT, qos_limits={"a_one": {"mem": 5, "cpu": 60}, "a_two": {"cpu": 1}})
    own = {"enabled": True, "skip_qos_swap": True}
    spec = replace(SPEC, limits={"cpu": 60}, notes=(), members=("ann",))
    (note,) = canonical(slurm_settings(qos_management=own, cluster_name="c1"), spec, left).notes
    assert "QoS a_one has the limits cpu=60,mem=5, which go on to count" in note
    assert "sacctmgr modify account where name=a_one cluster=c1 set GrpTRESMins=cpu=60,mem=5; then" in note
    assert note.endswith("sacctmgr modify qos where name=a_one set GrpTRESMins=cpu=-1,mem=-1")
    holding = slurm_settings(qos_management={**own, "apply_limits_to_qos": True})
    assert canonical(holding, spec, left).notes == ()


def test_the_own_qos_is_named_like_the_account() -> None:
    spec = spelled(qos_management={"enabled": True, "flags": "NoDecay", "max_jobs": 5})
    assert spec.own_qos == OwnQos("a_one", "NoDecay", (("MaxJobs", "5"),))
    assert spelled().own_qos is None


@given(
    parent=st.sampled_from(["", "flat"]),
    enforce=st.booleans(),
    partitions=st.booleans(),
    own=st.booleans(),
    policy=st.sampled_from(["none", "common", "individual"]),
    members=st.lists(st.text(max_size=5), max_size=4),
    limits=st.dictionaries(st.sampled_from(["cpu", "mem", "gres/gpu"]), st.integers(0, 9)),
    requested=st.builds(
        RequestedState, qos=st.sampled_from(["", "q"]), partition=st.sampled_from(["", "p", "x"]),
        offering_qos=st.sampled_from([(), ("q",)]),
        offering_partitions=st.sampled_from([(), ("x",)]), offering_enforces_qos=st.booleans(),
    ),
)  # fmt: skip
def test_doing_it_again_changes_nothing(
    parent: str,
    enforce: bool,
    partitions: bool,
    own: bool,
    policy: str,
    members: list[str],
    limits: dict[str, int],
    requested: RequestedState,
) -> None:
    settings = slurm_settings(
        parent_account=parent,
        qos_enforcement_enabled=enforce,
        enforce_offering_partitions=partitions,
        qos_management={"enabled": own},
        default_account_policy=policy,
    )
    spec = replace(SPEC, members=tuple(members), limits=limits, requested=requested)
    once = canonical(settings, spec, SNAPSHOT)
    again = canonical(settings, once, SNAPSHOT)
    assert again == once
    assert again.notes == once.notes
