# SPDX-License-Identifier: MIT
"""What every backend keeps: read whole, write once, tell the truth about each action, harm nothing unknown.

A committing command costs half a second: one batch makes the accounts of all tests, and each uses its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from agent.core.actions import (
    AddMember,
    AllowSubmission,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    CreateQos,
    DeleteAccount,
    DeleteQos,
    MoveAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetQos,
)
from agent.core.errors import CommandFailed, NotEmpty, PlanRefused
from agent.core.model import AccountSpec, AllocationSpec, AssociationWishes, Part, Snapshot
from agent.core.plans import Outcome
from agent.plan import accounts
from backends.base import BULK_PARTS, Backend, Scope
from tests.backends.conftest import Connect

KINDS = ["slurm", "slurm-emulator"]
EVERYTHING = {"read": 3}
TREE = Scope(frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
PROJECT = "p_proj"
FIELD = (
    "a_limits", "a_in", "a_out", "a_part", "a_block1", "a_block2", "a_move", "a_stay", "a_go", "p_go", "p_full",
    "a_many0", "a_many1", "a_many2", "a_mix",
)  # fmt: skip
BELOW = {"p_go": ("a_go1", "a_go2"), "p_full": ("a_below",)}


@dataclass(frozen=True)
class Site:
    """A backend under contract. `tree_writes`: what a new allocation with its two tiers and members costs it."""

    kind: str
    connect: Connect
    tree_writes: int


@pytest.fixture(scope="module", params=KINDS)
def site(request: pytest.FixtureRequest) -> Site:
    if request.param == "slurm":
        return Site("slurm", request.getfixturevalue("on_slurm"), tree_writes=2)  # one asks, one loads
    return Site("slurm-emulator", request.getfixturevalue("on_emulator"), tree_writes=6)


def new(name: str, parent: str = PROJECT) -> CreateAccount:
    return CreateAccount(account=name, parent=parent, description="d", organization="o")


def join(name: str, user: str, **options: object) -> AddMember:
    return AddMember(account=name, user=user, **options)  # type: ignore[arg-type]


def leave(name: str, user: str, *, default: bool = False) -> RemoveMember:
    return RemoveMember(account=name, user=user, is_default=default)


def done(outcomes: Sequence[Outcome]) -> None:
    assert [(o.action.render(), str(o.error)) for o in outcomes if o.error] == []


def users(snapshot: Snapshot, *names: str) -> list[set[str]]:
    return [set(snapshot.users_of(name)) for name in names]


def limits(snapshot: Snapshot, *names: str) -> list[dict[str, int]]:
    return [dict(snapshot.accounts[name].limits) for name in names]


@pytest.fixture(scope="module")
def backend(site: Site) -> Backend:
    """On a cluster with the accounts of all tests, and ann in each of them."""
    connected = site.connect()
    connected.observe()
    tiers = [new("c_cust", "root"), new(PROJECT, "c_cust"), *map(new, FIELD)]
    below = [new(name, parent) for parent, names in BELOW.items() for name in names]
    done(connected.apply([*tiers, *below, *(join(name, "ann") for name in FIELD if name not in BELOW)]))
    return connected


# Reading ------------------------------------------------------------------------------------------


def test_an_empty_cluster_is_read_whole(site: Site) -> None:
    empty = site.connect()
    snapshot = empty.observe()
    assert empty.executed == EVERYTHING
    assert set(snapshot.accounts) == {"root"}
    assert snapshot.accounts["root"].parent is None
    assert snapshot.users_of("root") == {"root"}
    assert snapshot.default_accounts == {"root": "root"}
    assert {"cpu", "mem", "gres/gpu"} <= snapshot.tres
    assert snapshot.complete == BULK_PARTS - {Part.QOS}
    assert snapshot.cluster == empty.cluster == "test"


def test_a_grown_cluster_is_read_at_the_same_cost(site: Site, backend: Backend) -> None:
    fresh = site.connect()
    snapshot = fresh.observe()
    assert fresh.executed == EVERYTHING
    assert set(snapshot.accounts) == {
        "root",
        "c_cust",
        PROJECT,
        *FIELD,
        *(n for names in BELOW.values() for n in names),
    }
    assert snapshot.accounts_of("ann") == set(FIELD) - set(BELOW)
    assert snapshot.default_accounts["ann"] in FIELD


def test_a_backend_is_healthy_or_says_what_is_wrong(site: Site) -> None:
    health = site.connect().check()
    assert health.version[0].isdigit()
    assert (health.cluster, health.problems, health.warnings) == ("test", (), ())
    assert site.connect(default_account="gone", root_account="root").check().problems


SETTINGS: list[dict[str, object]] = [
    {},
    {"default_account_policy": "individual", "qos_management": {"enabled": True}},
    {"parent_account": "root", "default_partition": "main"},
    {"qos_enforcement_enabled": True, "enforce_offering_qos": True},
]


@pytest.fixture(scope="module")
def known_tres(site: Site) -> Snapshot:
    return site.connect().observe(Scope(frozenset({Part.TRES})))


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_spelling_of_a_wish_is_final(
    site: Site, known_tres: Snapshot, settings: Mapping[str, object]
) -> None:
    wish = replace(
        spec_of("A_New", "Ann", "b,c", cpu=5, bogus=7),
        wishes=AssociationWishes(qos="fast", partition="main"),
    )
    configured = site.connect(**settings)
    once = configured.canonical(wish, known_tres)
    assert configured.canonical(once, known_tres) == once
    assert (once.account.name, once.members, once.limits) == ("a_new", ("ann",), {"cpu": 5})
    assert len(once.notes) == 2


# Building -----------------------------------------------------------------------------------------


def spec_of(name: str, *members: str, **wanted: int) -> AllocationSpec:
    return AllocationSpec(
        account=AccountSpec(name, "p_tree", f"Allocation {name}", "p_tree"),
        ancestors=(
            AccountSpec("c_tree", "", "Customer", "c"),
            AccountSpec("p_tree", "c_tree", "Project", "p"),
        ),
        limits=wanted,
        members=members,
    )


def test_an_allocation_stands_as_it_was_wished_and_making_it_again_is_harmless(
    site: Site, backend: Backend
) -> None:
    fresh = site.connect()
    before = fresh.observe()
    spec = fresh.canonical(spec_of("a_tree", "eve", "fox", cpu=600, mem=2048), before)
    actions = accounts.building(spec, before, "test")
    done(fresh.apply(actions))
    assert fresh.executed["write"] <= site.tree_writes
    standing = fresh.observe()
    tiers = [standing.accounts[name].parent for name in ("c_tree", "p_tree", "a_tree")]
    assert tiers == ["root", "c_tree", "p_tree"]
    assert limits(standing, "a_tree") == [{"cpu": 600, "mem": 2048}]
    assert users(standing, "a_tree") == [{"eve", "fox"}]
    assert (standing.default_accounts["eve"], standing.default_accounts["fox"]) == ("a_tree", "a_tree")
    assert accounts.building(spec, standing, "test") == []

    done(fresh.apply(actions))
    assert fresh.observe() == standing


def test_limits_are_set_raised_lowered_and_made_zero_each_for_itself(backend: Backend) -> None:
    wanted: dict[str, int] = {}
    for change in (
        {"cpu": 100, "mem": 2000},
        {"cpu": 50},
        {"cpu": 2_000_000, "mem": 1025},
        {"cpu": 0, "gres/gpu": 5},
    ):
        wanted |= change
        done(backend.apply([SetLimits(account="a_limits", after=tuple(change.items()))]))
        assert limits(backend.observe(TREE), "a_limits") == [wanted]


def test_members_come_twice_and_go_twice_and_only_they(backend: Backend) -> None:
    joins = [join("a_in", user) for user in ("ann", "carl", "dora", "x.y@z-0_1")]
    writes = backend.executed["write"]
    done(backend.apply(joins))
    done(backend.apply(joins))
    assert backend.executed["write"] == writes + 2
    standing = backend.observe(TREE)
    assert users(standing, "a_in", "a_out") == [{"ann", "carl", "dora", "x.y@z-0_1"}, {"ann"}]
    leaves = [leave("a_in", "carl", default=True), leave("a_in", "x.y@z-0_1", default=True)]
    done(backend.apply(leaves))
    done(backend.apply(leaves))
    left = backend.observe()
    assert users(left, "a_in", "a_out") == [{"ann", "dora"}, {"ann"}]
    assert not left.default_accounts.keys() & {"carl", "x.y@z-0_1"}


def test_a_member_may_be_on_some_partitions_only(backend: Backend) -> None:
    done(backend.apply([join("a_part", "gil", partitions=("gpu", "main"))]))
    standing = backend.observe(TREE)
    assert {a.partition for a in standing.associations if a.user == "gil"} == {"gpu", "main"}
    done(backend.apply([leave("a_part", "gil", default=True)]))
    assert users(backend.observe(TREE), "a_part") == [{"ann"}]


def test_submission_is_blocked_and_allowed_for_several_accounts_at_once(backend: Backend) -> None:
    names = ("a_block1", "a_block2")
    writes = backend.executed["write"]
    for kind, limit in ((BlockSubmission, 0), (AllowSubmission, None)):
        done(backend.apply([kind(account=name) for name in names]))
        standing = backend.observe(TREE)
        assert [standing.accounts[name].submit_limit for name in names] == [limit, limit]
    assert backend.executed["write"] == writes + 2


def test_an_account_moves_with_its_members(backend: Backend) -> None:
    done(backend.apply([MoveAccount(account="a_move", before=PROJECT, after="c_cust")]))
    standing = backend.observe(TREE)
    assert (standing.accounts["a_move"].parent, users(standing, "a_move")) == ("c_cust", [{"ann"}])


def test_an_account_may_have_a_qos_of_its_own_that_goes_with_it(site: Site, backend: Backend) -> None:
    owning = site.connect(qos_management={"enabled": True, "flags": "NoDecay", "max_jobs": 5})
    before = owning.observe()
    spec = owning.canonical(replace(spec_of("a_qos"), ancestors=()), before)
    spec = replace(spec, account=replace(spec.account, parent=PROJECT))
    done(owning.apply(accounts.building(spec, before, "test")))
    standing = owning.observe()
    account = standing.accounts["a_qos"]
    assert "a_qos" in standing.qos
    assert (account.default_qos, account.qos >= {"a_qos", "normal"}) == ("a_qos", True)
    assert accounts.building(spec, standing, "test") == []
    done(owning.apply(accounts.removal("a_qos", standing, home="root", reason="test")))
    left = owning.observe(Scope(frozenset({Part.ACCOUNTS, Part.QOS})))
    assert "a_qos" not in left.accounts
    assert left.qos == standing.qos - {"a_qos"}


# Removing -----------------------------------------------------------------------------------------


def test_a_removal_leaves_every_member_a_valid_default_account(backend: Backend) -> None:
    """hal is in two accounts and defaults to the one that goes; ida is in no other; jo defaults to the other."""
    done(backend.apply([join("a_go", "hal"), join("a_go", "ida")]))
    done(backend.apply([join("a_stay", "hal"), join("a_stay", "jo")]))
    done(backend.apply([join("a_go", "jo")]))
    standing = backend.observe(Scope(BULK_PARTS, frozenset({"a_go"})))
    assert [standing.default_accounts[user] for user in ("hal", "ida", "jo")] == ["a_go", "a_go", "a_stay"]
    done(backend.apply(accounts.removal("a_go", standing, home="root", reason="test")))
    left = backend.observe()
    assert set(left.accounts) == set(standing.accounts) - {"a_go"}
    assert left.associations == {a for a in standing.associations if a.account != "a_go"}
    assert [left.default_accounts.get(user) for user in ("hal", "ida", "jo")] == ["a_stay", None, "a_stay"]
    assert left.default_accounts["ann"] in left.accounts_of("ann")


def test_a_project_goes_after_its_allocations_in_one_batch(backend: Backend) -> None:
    deletions = [
        DeleteAccount(account="p_go", parent=PROJECT),
        DeleteAccount(account="a_go1", parent="p_go"),
        DeleteAccount(account="a_go2", parent="p_go"),
    ]
    writes = backend.executed["write"]
    done(backend.apply(deletions))
    assert backend.executed["write"] == writes + 2
    assert not backend.observe(TREE).accounts.keys() & {"p_go", "a_go1", "a_go2"}
    done(backend.apply(deletions))


def test_what_stands_below_an_account_never_goes_along_with_it(backend: Backend) -> None:
    before = backend.observe(TREE)
    deletions = [
        DeleteAccount(account=PROJECT, parent="c_cust"),
        DeleteAccount(account="p_full", parent=PROJECT),
        DeleteAccount(account="a_many0", parent=PROJECT),
    ]
    outcomes = backend.apply(deletions)
    assert {type(o.error) for o in outcomes} == {NotEmpty}
    assert backend.observe(TREE) == before


# The truth about each action ----------------------------------------------------------------------

MISSING: list[ClusterAction] = [
    SetLimits(account="a_none", after=(("cpu", 5),)),
    SetQos(account="a_none", after=("normal",), default="normal"),
    BlockSubmission(account="a_none"),
    AllowSubmission(account="a_none"),
    CancelJobs(account="a_none"),
    leave("a_none", "nobody"),
    leave(PROJECT, "nobody"),
    DeleteAccount(account="a_none", parent=PROJECT),
    DeleteQos(account="a_none"),
    MoveDefaultAccount(account=PROJECT, user="nobody", before="a_none"),
]


def test_what_is_not_there_is_nothing_to_change(backend: Backend) -> None:
    before = backend.observe()
    outcomes = backend.apply(MISSING)
    assert {o.action for o in outcomes} == set(MISSING)
    assert backend.observe() == before


def test_each_action_has_one_outcome_in_any_mix(backend: Backend) -> None:
    """The good ones are done, the bad ones are told and change nothing."""
    good: list[ClusterAction] = [
        join("a_mix", "kim"),
        SetLimits(account="a_mix", after=(("cpu", 5),)),
        CreateQos(account="q_mix"),
        CancelJobs(account="a_none"),
        leave("a_none", "kim"),
    ]
    bad: list[ClusterAction] = [
        new("a_orphan", "nosuch"),
        join("a_orphan", "lea"),
        new("a,b"),
        join("a_mix", "x[1-3]"),
        SetLimits(account="a_mix", after=(("bogus", 1), ("cpu", 7))),
        DeleteAccount(account=PROJECT, parent="c_cust"),
    ]
    before = backend.observe()
    outcomes = backend.apply([*bad, *good])
    assert {o.action: o.done for o in outcomes} == {**dict.fromkeys(good, True), **dict.fromkeys(bad, False)}
    assert len(outcomes) == len(good) + len(bad)
    kinds = {type(o.error) for o in outcomes if o.error}
    assert kinds == {CommandFailed, PlanRefused, NotEmpty}
    standing = backend.observe()
    assert (users(standing, "a_mix"), limits(standing, "a_mix")) == ([{"ann", "kim"}], [{"cpu": 5}])
    assert set(standing.accounts) == set(before.accounts)
    assert standing.default_accounts.keys() - before.default_accounts.keys() == {"kim"}


def test_one_bad_action_is_found_among_many_and_the_others_are_done(backend: Backend) -> None:
    """Three accounts of one batch, one of which SLURM refuses: the parent of `a_orphan` is made in no batch."""
    wanted = [new("a_child1"), new("a_child2")]
    orphan = new("a_orphan", "nosuch")
    outcomes = backend.apply([*wanted, orphan])
    assert [o.action for o in outcomes if o.error] == [orphan]
    assert {"a_child1", "a_child2"} <= backend.observe(TREE).accounts.keys()


# Cost ---------------------------------------------------------------------------------------------

MANY = ("a_many0", "a_many1", "a_many2")
COSTS: dict[str, tuple[list[ClusterAction], int]] = {
    "nothing": ([], 0),
    "the same new limits of many accounts": (
        [SetLimits(account=name, after=(("cpu", 9),)) for name in MANY],
        1,
    ),
    "many members of one account": ([join("a_many0", f"m{n}") for n in range(20)], 1),
    "the same members of many accounts": ([join(name, f"m{m}") for name in MANY for m in range(5)], 1),
    "the same leavers of many accounts": ([leave(name, f"m{m}") for name in MANY[1:] for m in range(5)], 1),
    "names that cannot be": ([join("a_many0", "a,b"), new("a b")], 0),
}


@pytest.mark.parametrize("what", COSTS)
def test_writing_costs_one_command_per_kind_of_change(site: Site, backend: Backend, what: str) -> None:
    actions, writes = COSTS[what]
    before = backend.executed["write"]
    outcomes = backend.apply(actions)
    assert backend.executed["write"] == before + writes
    assert all(o.done or isinstance(o.error, PlanRefused) for o in outcomes)
