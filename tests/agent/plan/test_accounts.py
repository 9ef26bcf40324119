# SPDX-License-Identifier: MIT
"""From a desired state and a cluster to actions: one table for building, one for removing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from agent.core.actions import CreateAccount, SetLimits, SetQos
from agent.core.associations import Association
from agent.core.errors import BackendUnavailable
from agent.core.model import (
    AccountSpec,
    AllocationSpec,
    OwnQos,
    Part,
    Snapshot,
)
from agent.plan import accounts
from backends.testing.memory import without
from tests.agent.plan.worlds import TREE, applied, cluster, rendered

SPEC = AllocationSpec(
    account=AccountSpec("a_one", "p_proj", "One", "p_proj"),
    ancestors=(
        AccountSpec("c_cust", "root", "The customer", "c_cust"),
        AccountSpec("p_proj", "c_cust", "The project", "p_proj"),
    ),
    limits={"cpu": 600, "mem": 1024},
    members=("ann", "bob"),
)
WITH_QOS = replace(SPEC, own_qos=OwnQos("a_one", "NoDecay", (("GrpTRES", "cpu=4"),), ("extra",)))
MEMBERS = (("a_one", "ann"), ("a_one", "bob"))
LIMITS = {"a_one": {"cpu": 600, "mem": 1024}}

CREATE_C, CREATE_P, CREATE_A = (
    "create account c_cust below root",
    "create account p_proj below c_cust",
    "create account a_one below p_proj",
)
SET_BOTH = "set limits a_one cpu=none->600 mem=none->1024"
ADD_ANN, ADD_BOB = "add member ann to a_one", "add member bob to a_one"

BUILDING: dict[str, tuple[AllocationSpec, Snapshot, list[str]]] = {
    "nothing stands": (
        SPEC,
        cluster({"root": None}),
        [CREATE_C, CREATE_P, CREATE_A, SET_BOTH, ADD_ANN, ADD_BOB],
    ),
    "all stands": (SPEC, cluster(TREE, MEMBERS, limits=LIMITS), []),
    "more than was asked for stands": (
        SPEC,
        cluster(TREE, [*MEMBERS, ("a_one", "eve")], limits={"a_one": {**LIMITS["a_one"], "gres/gpu": 5}}),
        [],
    ),
    "only the customer": (
        SPEC,
        cluster({"root": None, "c_cust": "root"}),
        [CREATE_P, CREATE_A, SET_BOTH, ADD_ANN, ADD_BOB],
    ),
    "one limit differs": (
        SPEC,
        cluster(TREE, MEMBERS, limits={"a_one": {"cpu": 599, "mem": 1024}}),
        ["set limits a_one cpu=599->600"],
    ),
    "a limit of zero is none less": (
        replace(SPEC, limits={"cpu": 0}),
        cluster(TREE, MEMBERS),
        ["set limits a_one cpu=none->0"],
    ),
    "no desired limits": (replace(SPEC, limits={}), cluster(TREE, MEMBERS), []),
    "all but one member": (SPEC, cluster(TREE, MEMBERS[:1], limits=LIMITS), [ADD_BOB]),
    "a member of another account is no member": (
        SPEC,
        cluster({**TREE, "a_two": "p_proj"}, [("a_two", "ann"), MEMBERS[1]], limits=LIMITS),
        [ADD_ANN],
    ),
    "an account that stands elsewhere stays there": (
        SPEC,
        cluster({**TREE, "other": "root", "a_one": "other"}, MEMBERS, limits=LIMITS),
        [],
    ),
    "blocked by a soft deletion": (
        SPEC,
        cluster(TREE, MEMBERS, limits=LIMITS, blocked=["a_one"]),
        ["allow submission a_one"],
    ),
    "a blocked project is not this order's business": (
        SPEC,
        cluster(TREE, MEMBERS, limits=LIMITS, blocked=["p_proj"]),
        [],
    ),
    "flat: no customer account": (
        replace(SPEC, ancestors=(AccountSpec("p_proj", "root"),), account=AccountSpec("a_one", "p_proj")),
        cluster({"root": None}),
        ["create account p_proj below root", CREATE_A, SET_BOTH, ADD_ANN, ADD_BOB],
    ),
    "own QoS, nothing stands": (
        WITH_QOS,
        cluster({"root": None}),
        [
            CREATE_C,
            CREATE_P,
            CREATE_A,
            "create QoS a_one NoDecay GrpTRES=cpu=4",
            "set QoS a_one normal -> normal,a_one,extra default a_one",
            SET_BOTH,
            ADD_ANN,
            ADD_BOB,
        ],
    ),
    "own QoS, made but never given": (
        WITH_QOS,
        replace(cluster(TREE, MEMBERS, limits=LIMITS), qos=frozenset({"normal", "a_one"})),
        ["set QoS a_one normal -> normal,a_one,extra default a_one"],
    ),
    "own QoS, made and given": (
        WITH_QOS,
        cluster(TREE, MEMBERS, limits=LIMITS, qos={"a_one": ["a_one"]}),
        [],
    ),
    "own QoS, inherited ones are kept": (
        WITH_QOS,
        cluster({"root": None, "c_cust": "root", "p_proj": "c_cust"}, qos={"p_proj": ["fast"]}),
        [
            CREATE_A,
            "create QoS a_one NoDecay GrpTRES=cpu=4",
            "set QoS a_one fast,normal -> fast,normal,a_one,extra default a_one",
            SET_BOTH,
            ADD_ANN,
            ADD_BOB,
        ],
    ),
    "own QoS, it is not known whether it exists": (
        WITH_QOS,
        without(cluster(TREE, MEMBERS, limits=LIMITS), Part.QOS),
        ["set QoS a_one normal -> normal,a_one,extra default a_one"],
    ),
}


@pytest.mark.parametrize("what", BUILDING)
def test_building(what: str) -> None:
    spec, snapshot, lines = BUILDING[what]
    assert rendered(accounts.building(spec, snapshot, "test")) == lines


def test_what_is_built_carries_texts_reason_and_what_was_before() -> None:
    found = accounts.building(SPEC, cluster(TREE, limits={"a_one": {"mem": 1, "fs/disk": 2}}), "order x")
    change = next(action for action in found if isinstance(action, SetLimits))
    assert (change.before, change.after) == ((("mem", 1),), (("cpu", 600), ("mem", 1024)))
    assert {action.reason for action in found} == {"order x"}
    made = next(
        a for a in accounts.building(SPEC, cluster({"root": None}), "") if isinstance(a, CreateAccount)
    )
    assert (made.description, made.organization) == ("The customer", "c_cust")


PARTITIONS: list[tuple[tuple[str, ...], list[str], list[str]]] = [
    (("gpu", "main"), [], ["add member ann to a_one on gpu,main"]),
    (("gpu", "main"), ["gpu"], ["add member ann to a_one on main"]),
    (("gpu", "main"), ["gpu", "main"], []),
    (("gpu",), ["main"], ["add member ann to a_one on gpu"]),
    (("gpu",), [""], ["add member ann to a_one on gpu"]),
    ((), ["gpu"], ["add member ann to a_one"]),
    ((), [""], []),
]


@pytest.mark.parametrize(("wanted", "there", "lines"), PARTITIONS)
def test_members_are_added_on_the_partitions_that_are_missing(
    wanted: tuple[str, ...], there: list[str], lines: list[str]
) -> None:
    standing = replace(
        cluster(TREE), associations=frozenset(Association("a_one", "ann", name) for name in there)
    )
    spec = replace(SPEC, limits={}, members=("ann",), partitions=wanted)
    assert rendered(accounts.building(spec, standing, "")) == lines


ALL_STEPS = [CREATE_C, CREATE_P, CREATE_A, "QoS", "QoS", SET_BOTH, ADD_ANN, ADD_BOB]


@pytest.mark.parametrize(
    "done",
    [set(some) for size in range(len(ALL_STEPS) + 1) for some in combinations(range(len(ALL_STEPS)), size)],
)
def test_an_allocation_is_finished_from_every_half_made_state(done: set[int]) -> None:
    """Every subset of the steps may have been carried out by the passes before."""
    spec = replace(WITH_QOS, own_qos=OwnQos("a_one", "NoDecay"))
    steps = accounts.building(spec, cluster({"root": None}), "")
    assert len(steps) == len(ALL_STEPS)
    half = applied(cluster({"root": None}), [step for number, step in enumerate(steps) if number in done])
    whole = applied(half, accounts.building(spec, half, ""))
    assert accounts.building(spec, whole, "") == []
    assert whole == applied(cluster({"root": None}), steps)


REMOVE_ANN, REMOVE_BOB = "remove member ann from a_one", "remove member bob from a_one"
DELETE = "delete account a_one below p_proj"
BLOCK = "block submission a_one"
WIDE = {**TREE, "a_two": "p_proj", "home": "root"}
IN_TWO = [*MEMBERS, ("a_two", "ann")]

REMOVAL: dict[str, tuple[Snapshot, dict[str, Any], list[str]]] = {
    "empty": (cluster(TREE), {}, [DELETE]),
    "members without another account lose their default": (
        cluster(TREE, MEMBERS, defaults={"ann": "a_one", "bob": "a_one"}),
        {},
        [REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "who has another account gets it as default": (
        cluster(WIDE, IN_TWO, defaults={"ann": "a_one"}),
        {},
        ["move default account of ann from a_one to a_two", REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "the site's default account is preferred where it takes no jobs": (
        cluster(WIDE, [*IN_TWO, ("home", "ann")], defaults={"ann": "a_one"}, blocked=["home"]),
        {"default_account": "home"},
        ["move default account of ann from a_one to home", REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "also where only an account above it takes none": (
        cluster(
            {**WIDE, "closed": "root", "home": "closed"},
            [*IN_TWO, ("home", "ann")],
            defaults={"ann": "a_one"},
            blocked=["closed"],
        ),
        {"default_account": "home"},
        ["move default account of ann from a_one to home", REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "one that takes jobs, which count for no allocation, is not": (
        cluster(WIDE, [*IN_TWO, ("home", "ann"), ("root", "ann")], defaults={"ann": "a_one"}),
        {"default_account": "home"},
        ["move default account of ann from a_one to a_two", REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "root, where nothing is limited, comes after every other account": (
        cluster(
            {**WIDE, "z_last": "p_proj"},
            [*MEMBERS, ("z_last", "ann"), ("root", "ann")],
            defaults={"ann": "a_one"},
        ),
        {},
        ["move default account of ann from a_one to z_last", REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "where they are in nothing else, they keep the one association that they have": (
        cluster(WIDE, [*MEMBERS, ("root", "ann")], defaults={"ann": "a_one"}),
        {},
        ["move default account of ann from a_one to root", REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "an account that goes as well is no default account": (
        cluster({**WIDE, "a_three": "p_proj"}, [*IN_TWO, ("a_three", "ann")], defaults={"ann": "a_one"}),
        {"leaving": {"a_one", "a_three"}},
        ["move default account of ann from a_one to a_two", REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "no default account is left": (
        cluster(WIDE, IN_TWO, defaults={"ann": "a_one"}),
        {"leaving": {"a_one", "a_two"}},
        [REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "a default elsewhere stays": (
        cluster(WIDE, IN_TWO, defaults={"ann": "a_two"}),
        {},
        [REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "active jobs": (
        cluster(TREE, MEMBERS, jobs={"a_one": 3}),
        {},
        [BLOCK, "cancel jobs of a_one (3 active)", REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "active jobs of people who are members no more": (
        cluster(TREE, jobs={"a_one": 3}),
        {},
        [BLOCK, "cancel jobs of a_one (3 active)", DELETE],
    ),
    "jobs not read: they may be active": (
        without(cluster(TREE, MEMBERS), Part.JOBS),
        {},
        [BLOCK, "cancel jobs of a_one", REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "jobs read, of other accounts only": (
        cluster(TREE, MEMBERS, jobs={"a_two": 0}),
        {},
        [BLOCK, "cancel jobs of a_one", REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "jobs not read, but no member who could have some": (without(cluster(TREE), Part.JOBS), {}, [DELETE]),
    "own QoS": (cluster(TREE, qos={"a_one": ["a_one"]}), {}, [DELETE, "delete QoS a_one"]),
    "a QoS of that name that the account never had": (
        replace(cluster(TREE), qos=frozenset({"normal", "a_one"})),
        {},
        [DELETE],
    ),
    "a QoS of that name that others have too": (
        cluster(WIDE, qos={"a_one": ["a_one"], "a_two": ["a_one"]}),
        {},
        [DELETE],
    ),
    "QoS not read": (without(cluster(TREE, qos={"a_one": ["a_one"]}), Part.QOS), {}, [DELETE]),
    "default accounts not read, no member has another account": (
        without(cluster(TREE, MEMBERS), Part.DEFAULT_ACCOUNTS),
        {},
        [REMOVE_ANN, REMOVE_BOB, DELETE],
    ),
    "default accounts not read: no removal": (
        without(cluster(WIDE, IN_TWO, defaults={"ann": "a_one"}), Part.DEFAULT_ACCOUNTS),
        {},
        [BLOCK],
    ),
    "associations on two partitions are one membership": (
        replace(
            cluster(TREE),
            associations=frozenset({Association("a_one", "ann", "gpu"), Association("a_one", "ann", "main")}),
        ),
        {},
        [REMOVE_ANN, DELETE],
    ),
}


@pytest.mark.parametrize("what", REMOVAL)
def test_removal(what: str) -> None:
    snapshot, options, lines = REMOVAL[what]
    found = accounts.removal("a_one", snapshot, reason="test", **{"default_account": "root", **options})
    assert rendered(found) == lines


@pytest.mark.parametrize("what", REMOVAL)
def test_emptying_is_removal_without_the_end(what: str) -> None:
    snapshot, options, lines = REMOVAL[what]
    found = accounts.emptying("a_one", snapshot, reason="test", **{"default_account": "root", **options})
    assert rendered(found) == [line for line in lines if not line.startswith("delete")]


@pytest.mark.parametrize("what", REMOVAL)
def test_after_a_removal_there_is_nothing_left_to_empty(what: str) -> None:
    snapshot, options, lines = REMOVAL[what]
    after = applied(
        snapshot, accounts.removal("a_one", snapshot, reason="", **{"default_account": "root", **options})
    )
    if DELETE in lines:
        assert "a_one" not in after.accounts
        assert not after.users_of("a_one")
    for user, account in after.default_accounts.items():
        assert account in after.accounts_of(user)


def test_removal_waits_where_a_default_account_may_be_lost() -> None:
    snapshot = without(cluster(WIDE, IN_TWO), Part.DEFAULT_ACCOUNTS)
    assert accounts.obstacle("a_one", snapshot) == "the default accounts of ann were not read"
    assert accounts.obstacle("a_one", cluster(WIDE, IN_TWO)) == ""
    assert accounts.obstacle("c_cust", snapshot) == ""


NEEDS: Mapping[str, tuple[Part, ...]] = {
    "building": (Part.ACCOUNTS, Part.ASSOCIATIONS),
    "emptying": (Part.ACCOUNTS, Part.ASSOCIATIONS),
    "removal": (Part.ACCOUNTS, Part.ASSOCIATIONS),
    "limits": (Part.ACCOUNTS,),
}
CALLS = {
    "building": lambda snapshot: accounts.building(SPEC, snapshot, ""),
    "emptying": lambda snapshot: accounts.emptying("a_one", snapshot, default_account="root", reason=""),
    "removal": lambda snapshot: accounts.removal("a_one", snapshot, default_account="root", reason=""),
    "limits": lambda snapshot: accounts.limits("a_one", {"cpu": 1}, snapshot, ""),
}


@pytest.mark.parametrize(("call", "part"), [(call, part) for call, parts in NEEDS.items() for part in parts])
def test_nothing_is_decided_on_a_part_that_was_not_read(call: str, part: Part) -> None:
    with pytest.raises(BackendUnavailable, match=f"cluster test: {part.value} could not be read"):
        CALLS[call](without(cluster(TREE, MEMBERS), part))


def test_a_qos_is_given_with_its_default_in_one_step() -> None:
    found = [a for a in accounts.building(WITH_QOS, cluster({"root": None}), "") if isinstance(a, SetQos)]
    assert [(change.before, change.after, change.default) for change in found] == [
        (("normal",), ("normal", "a_one", "extra"), "a_one")
    ]
