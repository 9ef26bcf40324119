# SPDX-License-Identifier: MIT
"""The desired state as MAM can keep it: two levels of accounts, a deposit, members, a state; notes on the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.errors import PlanRefused
from agent.core.model import AccountSpec, AllocationSpec, RequestedState, Snapshot
from backends.moab.canonical import canonical
from backends.moab.schema import MoabSettings

SPEC = AllocationSpec(
    account=AccountSpec("A_One ", "P_Proj", "My\nallocation", "P_Proj"),
    ancestors=(
        AccountSpec("C_Cust", "", "The Customer", "C_Cust"),
        AccountSpec("P_Proj", "C_Cust", "", "P_Proj"),
    ),
    limits={"deposit": 60, "cpu": 5},
    members=("Ann", "bob", "ann ", "a,b", "jüri"),
    default_account="x",
    qos=("x",),
    notes=("from before",),
)


def spelled(spec: AllocationSpec = SPEC, **settings: Any) -> AllocationSpec:
    return canonical(MoabSettings(**settings), spec, Snapshot("moab"))


def test_what_mam_has_nothing_for_is_left_out() -> None:
    spec = spelled(replace(SPEC, requested=RequestedState(qos="fast", partition="main")))
    assert spec.account == AccountSpec("a_one", "p_proj", "My allocation", "P_Proj")
    assert spec.ancestors == (AccountSpec("p_proj", "root", "p_proj", "P_Proj"),)
    assert (spec.limits, spec.members) == ({"deposit": 60}, ("ann", "bob", "jüri"))
    assert (spec.default_account, spec.qos, spec.partitions, spec.own_qos) == ("", (), (), None)
    assert spec.notes == (
        "from before",
        "limit cpu=5 is skipped: MOAB knows no limit but deposit",
        "member 'a,b' is skipped: no name that MOAB can take",
        "QoS and partitions are skipped: MOAB Accounting Manager has neither",
    )


def test_the_top_is_what_the_site_calls_it_and_no_level_is_needed() -> None:
    assert spelled(default_account="users").ancestors[0].parent == "users"
    assert spelled(replace(SPEC, ancestors=())).ancestors == ()


@pytest.mark.parametrize(
    ("settings", "requested", "submission", "noted"),
    [
        ({}, {}, None, []),
        ({}, {"paused": True}, None, ["paused"]),
        ({}, {"paused": True, "downscaled": True}, None, ["paused", "downscaled"]),
        ({"deactivate_when_paused": True}, {}, True, []),
        ({"deactivate_when_paused": True}, {"paused": True}, False, []),
        ({"deactivate_when_paused": True}, {"downscaled": True}, True, ["downscaled"]),
        ({"deactivate_when_downscaled": True}, {"downscaled": True}, False, []),
        ({"deactivate_when_downscaled": True}, {"paused": True}, True, ["paused"]),
    ],
)
def test_a_state_closes_the_account_only_where_the_site_lets_us(
    settings: dict[str, bool], requested: dict[str, bool], submission: bool | None, noted: list[str]
) -> None:
    desired = replace(SPEC, limits={}, members=(), notes=(), requested=RequestedState(**requested))
    spec = spelled(desired, **settings)
    assert spec.state.submission is submission
    assert [note.split()[3].rstrip(",") for note in spec.notes] == noted
    assert all(
        f"deactivate_when_{word} is not set" in note for word, note in zip(noted, spec.notes, strict=True)
    )


@pytest.mark.parametrize("name", ["a,b", "", "-x", "a=b"])
def test_an_allocation_that_cannot_be_named_is_refused(name: str) -> None:
    with pytest.raises(PlanRefused, match="cannot be used in MOAB"):
        spelled(replace(SPEC, account=AccountSpec(name, "p_proj")))
    with pytest.raises(PlanRefused, match="cannot be used in MOAB"):
        spelled(replace(SPEC, account=AccountSpec("a_one", name)))
