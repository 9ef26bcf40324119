# SPDX-License-Identifier: MIT
"""What holds for every membership plan on every cluster: it ends in step, in any order, and guesses nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.actions import Action, ClusterAction, MoveAccount, RemoveMember, SetLimits
from agent.core.associations import Association
from agent.core.errors import BackendUnavailable
from agent.core.members import DesiredMembers
from agent.core.model import (
    Account,
    AccountingType,
    AllocationSpec,
    Component,
    OrderType,
    Part,
    Resource,
    ResourceState,
    Snapshot,
)
from agent.core.waldur_actions import ReportLimits, ReportMetadata
from agent.plan import allocations, membership
from agent.plan.membership import MembershipRules, ResourceCase, ResourcePlan
from agent.plan.shared_limits import LimitRules
from backends.slurm.canonical import canonical
from backends.testing.memory import MemoryBackend, slurm_settings, without
from tests.agent.plan.worlds import CPU, MEM, RULES, TRES

USERS = ("ann", "bob", "eve", "kim")
ACCOUNTS = ("a_one", "a_two", "a_three")
PROJECTS = {"p_proj": "proj", "p_b": "b"}
SETTINGS = slurm_settings(qos_default="normal", qos_paused="stop", qos_downscaled="slow")
GPU = Component("gpu", "GPU-hours", AccountingType.ONE, "GPU", unit_factor=60)
READ = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS, Part.TRES, Part.USER_LIMITS})
QOS = ("", "normal", "slow", "stop", "gold")
MINUTES = st.dictionaries(st.sampled_from(sorted(TRES)), st.integers(0, 200_000), max_size=3)
HOURS = st.dictionaries(
    st.sampled_from(["cpu", "mem", "gpu", "other"]),
    st.one_of(st.integers(0, 5), st.sampled_from([1.5, 0.1, -3, "many", None])),
    max_size=4,
)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Any small cluster: accounts in the wrong place, members without a default, odd QoS and limits."""
    parents: dict[str, str | None] = {"root": None, "c_cust": "root"}
    for name, above in (("p_proj", ("c_cust", "root")), ("p_b", ("c_cust", "root"))):
        if draw(st.booleans()):
            parents[name] = draw(st.sampled_from(above))
    for name in ACCOUNTS:
        if draw(st.sampled_from([True, True, True, False])):
            parents[name] = draw(st.sampled_from(sorted(set(parents) & {"root", *PROJECTS})))
    members = draw(st.sets(st.tuples(st.sampled_from(sorted(parents)), st.sampled_from(USERS)), max_size=9))
    homes = {user: sorted(account for account, who in members if who == user) for user in USERS}
    chosen = {user: draw(st.sampled_from([*several, ""])) for user, several in homes.items() if several}
    accounts = {name: draw(accounts_named(name, parent)) for name, parent in parents.items()}
    limited = draw(st.dictionaries(st.sampled_from(sorted(members)), MINUTES, max_size=2)) if members else {}
    return Snapshot(
        "test",
        accounts=accounts,
        associations=frozenset(Association(account, user) for account, user in members),
        default_accounts={user: home for user, home in chosen.items() if home},
        tres=TRES,
        user_limits={pair: values for pair, values in limited.items() if values},
        complete=READ,
    )


@st.composite
def accounts_named(draw: st.DrawFn, name: str, parent: str | None) -> Account:
    qos = draw(st.sampled_from(QOS))
    return Account(
        name,
        parent,
        limits=draw(MINUTES),
        qos=frozenset({qos} - {""}),
        default_qos=qos,
        submit_limit=draw(st.sampled_from([None, None, 0, 7])),
    )


@st.composite
def desired_members(draw: st.DrawFn) -> DesiredMembers:
    wanted = draw(st.sets(st.sampled_from([*USERS, "a,b"])))
    kept = draw(st.sets(st.sampled_from(USERS), max_size=1))
    return DesiredMembers(
        frozenset(wanted), frozenset(kept), complete=draw(st.sampled_from([True, True, False]))
    )


@st.composite
def resource_cases(draw: st.DrawFn, number: int = 0) -> ResourceCase:
    flags = {name: draw(st.booleans()) for name in ("paused", "downscaled", "restrict_member_access")}
    resource = Resource(
        f"resource{number}",
        f"Resource {number}",
        f"slug{number}",
        draw(st.sampled_from([ResourceState.OK, ResourceState.ERRED])),
        backend_id=draw(st.sampled_from([*ACCOUNTS, "A_One", "root"])),
        project_slug=draw(st.sampled_from([*PROJECTS.values()])),
        customer_slug="cust",
        limits=draw(HOURS),
        **flags,
    )
    named = draw(st.sampled_from(["", "", "", "offering X"]))
    limits = draw(st.none() | st.dictionaries(st.sampled_from(USERS), HOURS, max_size=2))
    orders = draw(st.sampled_from([frozenset(), frozenset(), frozenset({OrderType.UPDATE})]))
    return ResourceCase(resource, draw(desired_members()), orders, limits, named)


@dataclass(frozen=True)
class Pass:
    """The resources of one offering, planned as the run layer does."""

    cases: tuple[ResourceCase, ...]
    rules: MembershipRules

    def plans(self, snapshot: Snapshot) -> list[ResourcePlan]:
        specs = {
            case.resource.uuid: self._spec(case, snapshot)
            for case in self.cases
            if not membership.skip(case, self.rules, snapshot)
        }
        return membership.plans(self.cases, specs, self.rules, snapshot)

    def actions(self, snapshot: Snapshot) -> tuple[Action, ...]:
        return membership.in_order(action for plan in self.plans(snapshot) for action in plan.actions)

    def cluster_actions(self, snapshot: Snapshot) -> list[ClusterAction]:
        return [action for action in self.actions(snapshot) if isinstance(action, ClusterAction)]

    def reported(self, actions: Iterable[Action]) -> Pass:
        """The resources as Waldur has them after these."""
        resources = {case.resource.uuid: case.resource for case in self.cases}
        for action in actions:
            if isinstance(action, ReportLimits):
                resources[action.resource] = replace(resources[action.resource], limits=dict(action.limits))
            if isinstance(action, ReportMetadata):
                before = resources[action.resource]
                metadata = {**before.backend_metadata, **json.loads(action.metadata)}
                resources[action.resource] = replace(before, backend_metadata=metadata)
        cases = (replace(case, resource=resources[case.resource.uuid]) for case in self.cases)
        return replace(self, cases=tuple(cases))

    def _spec(self, case: ResourceCase, snapshot: Snapshot) -> AllocationSpec:
        members = tuple(sorted(case.members.wanted))
        desired = allocations.allocation(
            case.resource, self.rules.offering, case.account, snapshot, members=members
        )
        return canonical(SETTINGS, desired, snapshot)


@st.composite
def passes(draw: st.DrawFn) -> Pass:
    number = draw(st.integers(1, 4))
    limits = LimitRules(
        (CPU, MEM, GPU), from_waldur=draw(st.booleans()), periodic=draw(st.sampled_from([False, False, True]))
    )
    return Pass(
        tuple(draw(resource_cases(n)) for n in range(number)),
        MembershipRules(replace(RULES, components=limits.components), limits),
    )


def after(snapshot: Snapshot, actions: Sequence[ClusterAction]) -> Snapshot:
    """The cluster after these; nothing that a plan holds may be refused."""
    backend = MemoryBackend(state=replace(snapshot, qos=frozenset(QOS)))
    outcomes = backend.apply(actions)
    assert [f"{o.action.render()}: {o.error}" for o in outcomes if o.error] == []
    return backend.state


PROPERTIES: list[Callable[[Snapshot, Pass], None]] = []


def always(check: Callable[[Snapshot, Pass], None]) -> Callable[[Snapshot, Pass], None]:
    """Have `test_every_pass` check this, too."""
    PROPERTIES.append(check)
    return check


def removals(actions: Iterable[Action]) -> list[Action]:
    return [action for action in actions if isinstance(action, RemoveMember)]


@always
def what_is_planned_can_be_done_and_leaves_nothing_to_do(snapshot: Snapshot, wanted: Pass) -> None:
    actions = wanted.actions(snapshot)
    done = after(snapshot, [a for a in actions if isinstance(a, ClusterAction)])
    wanted = wanted.reported(actions)
    again = wanted.actions(done)
    if any(isinstance(action, MoveAccount) for action in actions):
        # The QoS of the new place, which the account inherits there, is reported by the next pass.
        assert {type(action) for action in again} <= {ReportMetadata}
        again = wanted.reported(again).actions(done)
    assert [a.render() for a in again] == []


def the_order_of_resources_makes_no_difference(snapshot: Snapshot, wanted: Pass, data: Any) -> None:
    shuffled = replace(wanted, cases=tuple(data.draw(st.permutations(wanted.cases))))
    assert set(wanted.actions(snapshot)) == set(shuffled.actions(snapshot))


@always
def no_removal_from_what_was_not_read_whole(snapshot: Snapshot, wanted: Pass) -> None:
    assert removals(wanted.actions(without(snapshot, Part.DEFAULT_ACCOUNTS))) == []


@pytest.mark.parametrize("part", [Part.ACCOUNTS, Part.ASSOCIATIONS])
def test_there_is_no_plan_without_the_tree(part: Part) -> None:
    resource = Resource(
        "r", "R", "r", ResourceState.OK, backend_id="a_one", project_slug="proj", customer_slug="cust"
    )
    wanted = Pass((ResourceCase(resource, DesiredMembers()),), MembershipRules(RULES, LimitRules(())))
    accounts = {"root": Account("root", None), "a_one": Account("a_one", "root")}
    snapshot = Snapshot("test", accounts=accounts, tres=TRES, complete=READ)
    with pytest.raises(BackendUnavailable):
        wanted.plans(without(snapshot, part))


@always
def no_removal_from_an_account_whose_people_are_not_known(snapshot: Snapshot, wanted: Pass) -> None:
    cases = [replace(case, members=replace(case.members, complete=False)) for case in wanted.cases]
    assert removals(replace(wanted, cases=tuple(cases)).actions(snapshot)) == []
    cases = [replace(case, also_named_by="offering X") for case in wanted.cases]
    assert removals(replace(wanted, cases=tuple(cases)).actions(snapshot)) == []
    waiting = replace(wanted.rules, no_removal_reason="an offering has not reported")
    assert removals(replace(wanted, rules=waiting).actions(snapshot)) == []


@always
def who_leaves_is_wanted_by_no_resource_that_names_the_account(snapshot: Snapshot, wanted: Pass) -> None:
    for action in removals(wanted.actions(snapshot)):
        assert isinstance(action, RemoveMember)
        naming = [case for case in wanted.cases if case.account == action.account]
        assert naming
        for case in naming:
            assert action.user not in case.members.wanted | case.members.kept
            assert case.members.complete
            assert not case.also_named_by


@always
def whoever_had_a_default_account_and_has_an_association_still_has_one_of_them(
    snapshot: Snapshot, wanted: Pass
) -> None:
    done = after(snapshot, wanted.cluster_actions(snapshot))
    for user in {association.user for association in done.associations}:
        if user in snapshot.default_accounts or not snapshot.accounts_of(user):
            assert done.default_accounts.get(user) in done.accounts_of(user)


@always
def accounts_that_no_resource_names_keep_members_limits_and_state(snapshot: Snapshot, wanted: Pass) -> None:
    done = after(snapshot, wanted.cluster_actions(snapshot))
    named = {case.account for case in wanted.cases}
    for name, account in snapshot.accounts.items():
        if name not in named:
            assert done.users_of(name) == snapshot.users_of(name)
            assert replace(done.accounts[name], parent=account.parent) == account


@always
def limits_have_one_owner_and_never_come_back(snapshot: Snapshot, wanted: Pass) -> None:
    """Whichever side counts: what it says is copied once, and nothing is ever copied the other way."""
    owner = wanted.rules.limits.from_waldur
    for _ in range(3):
        actions = wanted.actions(snapshot)
        to_waldur = [a for a in actions if isinstance(a, ReportLimits)]
        to_cluster = [a for a in actions if isinstance(a, SetLimits)]
        assert not (to_waldur if owner else to_cluster)
        snapshot = after(snapshot, [a for a in actions if isinstance(a, ClusterAction)])
        wanted = wanted.reported(actions)
    assert not to_waldur
    assert not to_cluster


@always
def nothing_moves_twice_and_nothing_is_deleted(snapshot: Snapshot, wanted: Pass) -> None:
    actions = wanted.cluster_actions(snapshot)
    moved = [action.account for action in actions if isinstance(action, MoveAccount)]
    assert len(moved) == len(set(moved))
    assert not [action for action in actions if action.verb.startswith("delete")]


@given(snapshot=clusters(), wanted=passes(), data=st.data())
def test_every_pass(snapshot: Snapshot, wanted: Pass, data: st.DataObject) -> None:
    """All properties of each case: to draw it takes longer than to plan it."""
    for check in PROPERTIES:
        check(snapshot, wanted)
    the_order_of_resources_makes_no_difference(snapshot, wanted, data)
