# SPDX-License-Identifier: MIT
"""What every backend keeps: read whole, write once, tell the truth about each action, harm nothing unknown.

Every case runs for every kind; in what they may differ is in `contract_sites`. A committing command costs half a
second: one batch makes the accounts of all tests, and each uses its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.core.actions import (
    AllowSubmission,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateQos,
    DeleteAccount,
    DeleteQos,
    MoveAccount,
    MoveDefaultAccount,
    SetLimits,
    SetQos,
)
from agent.core.errors import BackendError, NotEmpty, PlanRefused
from agent.core.model import AccountSpec, AllocationSpec, Part, RequestedState, Snapshot
from agent.core.plans import Outcome
from agent.plan import accounts
from backends.base import BULK_PARTS, Backend, Scope
from tests.backends import contract_sites
from tests.backends.contract_sites import MANY, PROJECT, Site, join, leave, new

KINDS = [pytest.param("slurm", marks=pytest.mark.real_part), "slurm-emulator", "moab"]
EVERYTHING = {"read": 3}
TREE = Scope(frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
FIELD = (
    "a_limits", "a_in", "a_out", "a_part", "a_block1", "a_block2", "a_move", "a_stay", "a_go", "p_go", "p_full",
    "a_many0", "a_many1", "a_many2", "a_mix",
)  # fmt: skip
BELOW = {"p_go": ("a_go1", "a_go2"), "p_full": ("a_below",)}


@pytest.fixture(scope="module", params=KINDS)
def site(request: pytest.FixtureRequest) -> Site:
    if request.param == "moab":
        return contract_sites.moab(
            request.getfixturevalue("on_moab"), request.getfixturevalue("on_closed_moab")
        )
    if request.param == "slurm":  # one command asks, one loads
        return contract_sites.slurm("slurm", request.getfixturevalue("on_slurm"), tree=2)
    return contract_sites.slurm(request.param, request.getfixturevalue("on_emulator"), tree=6)


def done(outcomes: Sequence[Outcome]) -> None:
    assert [(o.action.render(), str(o.error)) for o in outcomes if o.error] == []


def told(backend: Backend, action: ClusterAction) -> None:
    """The backend has nothing of the kind: it says so, blames no account for it, and changes nothing."""
    before = backend.observe()
    (outcome,) = backend.apply([action])
    assert isinstance(outcome.error, BackendError) and outcome.error.of_host
    assert "MOAB" in str(outcome.error)
    assert backend.observe() == before


def users(snapshot: Snapshot, *names: str) -> list[set[str]]:
    return [set(snapshot.users_of(name)) for name in names]


def limits(snapshot: Snapshot, *names: str) -> list[dict[str, int]]:
    return [dict(snapshot.accounts[name].limits) for name in names]


@pytest.fixture(scope="module")
def backend(site: Site) -> Backend:
    """On a cluster with the accounts of all tests, and ann in each of them."""
    connected = site.connect()
    connected.observe()
    hierarchy = [new("c_cust", "root"), new(PROJECT, "c_cust"), *map(new, FIELD)]
    below = [new(name, parent) for parent, names in BELOW.items() for name in names]
    done(connected.apply([*hierarchy, *below, *(join(name, "ann") for name in FIELD if name not in BELOW)]))
    return connected


# Reading ------------------------------------------------------------------------------------------


def test_an_empty_cluster_is_read_whole(site: Site) -> None:
    empty = site.connect()
    snapshot = empty.observe()
    assert empty.executed == EVERYTHING
    assert set(snapshot.accounts) == set(site.own)
    for name, people in site.own.items():
        assert snapshot.accounts[name].parent is None
        assert snapshot.users_of(name) == people
    assert snapshot.default_accounts == {user: name for name, people in site.own.items() for user in people}
    assert site.tracked <= snapshot.tres
    assert snapshot.complete == site.complete
    assert snapshot.cluster == empty.cluster == "test"


def test_a_grown_cluster_is_read_at_the_same_cost(site: Site, backend: Backend) -> None:
    fresh = site.connect()
    snapshot = fresh.observe()
    assert fresh.executed == EVERYTHING
    assert set(snapshot.accounts) == {
        *site.own,
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
    assert site.unhealthy().check().problems


@pytest.fixture(scope="module")
def known_tres(site: Site) -> Snapshot:
    return site.connect().observe(Scope(frozenset({Part.TRES})))


@pytest.mark.parametrize("number", range(4))
def test_the_spelling_of_a_desired_state_is_final(site: Site, known_tres: Snapshot, number: int) -> None:
    desired = replace(
        spec_of("A_New", "Ann", "b,c", **{site.limit: 5, "bogus": 7}),
        requested=RequestedState(qos="fast", partition="main"),
    )
    configured = site.connect(**site.settings[number])
    once = configured.canonical(desired, known_tres)
    assert configured.canonical(once, known_tres) == once
    assert (once.account.name, once.members, once.limits) == ("a_new", ("ann",), {site.limit: 5})
    assert len(once.notes) == site.notes


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


def test_an_allocation_stands_as_it_was_desired_and_making_it_again_is_harmless(
    site: Site, backend: Backend
) -> None:
    fresh = site.connect()
    before = fresh.observe()
    spec = fresh.canonical(spec_of("a_tree", "eve", "fox", **site.desired_limits), before)
    actions = accounts.building(spec, before, "test")
    done(fresh.apply(actions))
    assert fresh.executed["write"] <= site.costs.tree
    standing = fresh.observe()
    made = {name: account.parent for name, account in standing.accounts.items() if name.endswith("_tree")}
    assert made == site.hierarchy
    assert limits(standing, "a_tree") == [site.desired_limits]
    assert users(standing, "a_tree") == [{"eve", "fox"}]
    assert (standing.default_accounts["eve"], standing.default_accounts["fox"]) == ("a_tree", "a_tree")
    assert accounts.building(spec, standing, "test") == []

    done(fresh.apply(actions))
    assert fresh.observe() == standing


def test_limits_are_set_raised_lowered_and_made_zero_each_for_itself(site: Site, backend: Backend) -> None:
    wanted: dict[str, int] = {}
    for change in site.changes:
        wanted |= change
        done(backend.apply([SetLimits(account="a_limits", after=tuple(change.items()))]))
        assert limits(backend.observe(TREE), "a_limits") == [wanted]


def test_members_come_twice_and_go_twice_and_only_they(site: Site, backend: Backend) -> None:
    joins = [join("a_in", user) for user in ("ann", "carl", "dora", "x.y@z-0_1")]
    writes = backend.executed["write"]
    done(backend.apply(joins))
    done(backend.apply(joins))
    assert backend.executed["write"] == writes + site.costs.joins
    standing = backend.observe(TREE)
    assert users(standing, "a_in", "a_out") == [{"ann", "carl", "dora", "x.y@z-0_1"}, {"ann"}]
    leaves = [leave("a_in", "carl", default=True), leave("a_in", "x.y@z-0_1", default=True)]
    done(backend.apply(leaves))
    done(backend.apply(leaves))
    left = backend.observe()
    assert users(left, "a_in", "a_out") == [{"ann", "dora"}, {"ann"}]
    assert not left.default_accounts.keys() & {"carl", "x.y@z-0_1"}


def test_a_member_may_be_on_some_partitions_only(site: Site, backend: Backend) -> None:
    if "partitions" not in site.powers:
        told(backend, join("a_part", "gil", partitions=("gpu", "main")))
        return
    done(backend.apply([join("a_part", "gil", partitions=("gpu", "main"))]))
    standing = backend.observe(TREE)
    assert {a.partition for a in standing.associations if a.user == "gil"} == {"gpu", "main"}
    done(backend.apply([leave("a_part", "gil", default=True)]))
    assert users(backend.observe(TREE), "a_part") == [{"ann"}]


def test_submission_is_blocked_and_allowed_for_several_accounts_at_once(site: Site, backend: Backend) -> None:
    names = ("a_block1", "a_block2")
    writes = backend.executed["write"]
    for kind, limit in ((BlockSubmission, 0), (AllowSubmission, None)):
        done(backend.apply([kind(account=name) for name in names]))
        standing = backend.observe(TREE)
        assert [standing.accounts[name].submit_limit for name in names] == [limit, limit]
    assert backend.executed["write"] == writes + site.costs.alike


def test_an_account_moves_with_its_members(site: Site, backend: Backend) -> None:
    move = MoveAccount(account="a_move", before=PROJECT, after="c_cust")
    if "moves" not in site.powers:
        told(backend, move)
        return
    done(backend.apply([move]))
    standing = backend.observe(TREE)
    assert (standing.accounts["a_move"].parent, users(standing, "a_move")) == ("c_cust", [{"ann"}])


def test_an_account_may_have_a_qos_of_its_own_that_goes_with_it(site: Site, backend: Backend) -> None:
    if "qos" not in site.powers:
        told(backend, CreateQos(account="a_mix"))
        told(backend, SetQos(account="a_mix", after=("normal",), default="normal"))
        return
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
    done(owning.apply(accounts.removal("a_qos", standing, default_account="root", reason="test")))
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
    done(backend.apply(accounts.removal("a_go", standing, default_account="root", reason="test")))
    left = backend.observe()
    assert set(left.accounts) == set(standing.accounts) - {"a_go"}
    assert left.associations == {a for a in standing.associations if a.account != "a_go"}
    assert [left.default_accounts.get(user) for user in ("hal", "ida", "jo")] == ["a_stay", None, "a_stay"]
    assert left.default_accounts["ann"] in left.accounts_of("ann")


def test_a_project_goes_after_its_allocations_in_one_batch(site: Site, backend: Backend) -> None:
    deletions = [
        DeleteAccount(account="p_go", parent=PROJECT),
        DeleteAccount(account="a_go1", parent="p_go"),
        DeleteAccount(account="a_go2", parent="p_go"),
    ]
    writes = backend.executed["write"]
    done(backend.apply(deletions))
    assert backend.executed["write"] == writes + site.costs.deletions
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


def test_each_action_has_one_outcome_in_any_mix(site: Site, backend: Backend) -> None:
    """The good ones are done, the bad ones are told and change nothing."""
    before = backend.observe()
    outcomes = backend.apply([*site.bad, *site.good])
    wanted = {**dict.fromkeys(site.good, True), **dict.fromkeys(site.bad, False)}
    assert {o.action: o.done for o in outcomes} == wanted
    assert len(outcomes) == len(wanted)
    assert {type(o.error) for o in outcomes if o.error} == site.errors
    standing = backend.observe()
    assert (users(standing, "a_mix"), limits(standing, "a_mix")) == ([{"ann", "kim"}], [{site.limit: 5}])
    assert set(standing.accounts) == set(before.accounts)
    assert standing.default_accounts.keys() - before.default_accounts.keys() == {"kim"}


def test_one_bad_action_is_found_among_many_and_the_others_are_done(backend: Backend) -> None:
    """Three accounts of one batch, one of which is refused: on SLURM the parent of `a_orphan` is made in no batch."""
    wanted = [new("a_child1"), new("a_child2")]
    orphan = new("a_orphan", "nosuch")
    outcomes = backend.apply([*wanted, orphan])
    assert [o.action for o in outcomes if o.error] == [orphan]
    assert {"a_child1", "a_child2"} <= backend.observe(TREE).accounts.keys()


# Cost ---------------------------------------------------------------------------------------------

WORK = {
    "nothing": [],
    "the same new limits of many accounts": MANY,
    "many members of one account": [join("a_many0", f"m{n}") for n in range(20)],
    "the same members of many accounts": [join(name, f"m{m}") for name in MANY for m in range(5)],
    "the same leavers of many accounts": [leave(name, f"m{m}") for name in MANY[1:] for m in range(5)],
    "names that cannot be": [join("a_many0", "a,b"), new("a|b")],
}
# What stands already, whichever of these tests ran before.
BEFORE = {
    "the same members of many accounts": [join("a_many0", f"m{n}") for n in range(5)],
    "the same leavers of many accounts": [join(name, f"m{m}") for name in MANY[1:] for m in range(5)],
}


@pytest.mark.parametrize("what", WORK)
def test_writing_costs_what_is_known_of_the_kind_of_change(site: Site, backend: Backend, what: str) -> None:
    actions = [
        work if isinstance(work, ClusterAction) else SetLimits(account=work, after=((site.limit, 9),))
        for work in WORK[what]
    ]
    backend.apply(BEFORE.get(what, ()))
    before = backend.executed["write"]
    outcomes = backend.apply(actions)
    assert backend.executed["write"] == before + site.costs.many[what]
    assert all(o.done or isinstance(o.error, PlanRefused) for o in outcomes)
