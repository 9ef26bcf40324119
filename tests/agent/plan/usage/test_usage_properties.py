# SPDX-License-Identifier: MIT
"""Usage planned, by properties: what was reported is not reported again, silence makes no zero."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from agent.core.account_names import fold
from agent.core.model import Resource, ResourceState
from agent.core.usage import Usage
from agent.plan.usage import planning as planner
from agent.plan.usage.planning import Ledger
from tests.agent.plan.usage.reported_usage import RULES, Holding, lines, plan, resource, used

NAMES = st.sampled_from(["a", "b", "c", "A", "gone", "other"])
USERS = st.sampled_from(["ann", "bob", "cy", "Dora"])
HOURS = st.floats(0, 10**6, allow_nan=False).map(lambda hours: round(hours, 4))
COUNTS = st.fixed_dictionaries({}, optional={"cpu": HOURS, "gres_gpu": HOURS})
USAGES = st.builds(
    lambda accounts: used(**{fold(name): users for name, users in accounts.items()}),
    st.dictionaries(NAMES, st.dictionaries(USERS, COUNTS, min_size=1), max_size=5),
)
STATES = st.sampled_from([ResourceState.OK, ResourceState.ERRED, ResourceState.UPDATING])
RESOURCES = st.lists(st.tuples(NAMES, STATES), max_size=6).map(
    lambda listed: [resource(f"r{n}", name, state) for n, (name, state) in enumerate(listed)]
)
CENTS = st.one_of(st.none(), st.integers(0, 10**8).map(lambda cents: f"{Decimal(cents) / 100:.2f}"))


@st.composite
def holdings(draw: st.DrawFn) -> Holding:
    held = Holding()
    for number in range(draw(st.integers(0, 4))):
        for name in draw(st.sets(st.sampled_from(["cpu", "gres/gpu"]))):
            held.total(f"r{number}", name, draw(CENTS))
            for user in draw(st.sets(USERS)):
                held.share(f"r{number}", name, user, draw(CENTS))
    return held


@given(resources=RESOURCES, usage=USAGES, held=holdings(), zeros=st.booleans(), full=st.booleans())
def test_what_was_reported_is_not_reported_again(
    resources: list[Resource], usage: Usage, held: Holding, zeros: bool, full: bool
) -> None:
    held.take(plan(resources, usage, held, with_zeros=zeros, in_full=full))
    again = plan(resources, usage, held, with_zeros=zeros, in_full=full)
    assert [action for each in again for action in each.actions] == []


@given(resources=RESOURCES, usage=USAGES, held=holdings(), seed=st.integers())
def test_the_order_of_what_was_read_does_not_matter(
    resources: list[Resource], usage: Usage, held: Holding, seed: int
) -> None:
    chance = random.Random(seed)
    shuffled = chance.sample(resources, len(resources))
    accounts = dict(chance.sample(list(usage.accounts.items()), len(usage.accounts)))
    records, shares = list(held.records.values()), list(held.shares.values())
    ledger = Ledger.of(chance.sample(records, len(records)), chance.sample(shares, len(shares)))
    other = planner.plan_month(shuffled, replace(usage, accounts=accounts), ledger, RULES)
    assert lines(other) == lines(plan(resources, usage, held))


@given(resources=RESOURCES, usage=USAGES, held=holdings())
def test_no_usage_is_reported_lower_without_being_known(
    resources: list[Resource], usage: Usage, held: Holding
) -> None:
    """An account that the cluster does not have and that had no job keeps what Waldur holds."""
    for each in plan(resources, usage, held):
        if each.account not in RULES.known and each.account not in usage.accounts:
            assert each.actions == ()
        if sum(fold(r.backend_id) == each.account for r in resources) > 1:
            assert each.actions == ()


@given(resources=RESOURCES, usage=USAGES, held=holdings())
def test_each_resource_has_one_plan_and_its_total_covers_its_users(
    resources: list[Resource], usage: Usage, held: Holding
) -> None:
    plans = plan(resources, usage, held)
    assert sorted(each.resource.uuid for each in plans) == sorted(r.uuid for r in resources if r.backend_id)
    held.take(plans)
    for each in plans:
        if each.skipped:
            continue
        for name in ("cpu", "gres/gpu"):
            total = held.records[each.resource.uuid, name].amount
            shares = [s.amount for s in held.shares.values() if s.record == f"{each.resource.uuid}-{name}"]
            known = [amount for amount in shares if amount is not None]
            assert total is not None and abs(sum(known, Decimal(0)) - total) <= Decimal("0.005") * (
                len(known) + 1
            )


@given(usage=USAGES, held=holdings(), blocked=st.sets(st.integers(0, 3)))
def test_what_is_kept_back_leaves_the_rest(usage: Usage, held: Holding, blocked: set[int]) -> None:
    resources = [resource(f"r{n}", name) for n, name in enumerate(("a", "b", "c", "other"))]
    plans = plan(resources, usage, held)
    stopped = {action for n in blocked if n < len(plans) for action in plans[n].actions}
    left = {action for each in plans for action in each.without(stopped).actions}
    assert left == {action for each in plans for action in each.actions} - stopped
