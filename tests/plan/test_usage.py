# SPDX-License-Identifier: MIT
"""Usage planned case by case and by properties: what was told is not told again, and nobody is made zero by silence."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.account_names import fold
from agent.core.model import AccountingType, Component, Resource, ResourceState
from agent.core.periods import Month
from agent.core.usage import AccountUsage, Usage, UsageQuery, UsageRecord, UserUsageRecord
from agent.core.usage_actions import ReportUsage
from agent.plan.usage import planning as planner
from agent.plan.usage.planning import Ledger, UsagePlan, UsageRules

MONTH = Month(2026, 11)
HOUR = 3600


def component(name: str, factor: float = 60, **targets: float) -> Component:
    return Component(name, "h", AccountingType.USAGE, name, unit_factor=factor, targets=targets)


CPU, GPU = component("cpu"), component("gres/gpu")
RULES = UsageRules((CPU, GPU), known=frozenset({"a", "b", "c"}))


def resource(uuid: str, account: str, state: ResourceState = ResourceState.OK) -> Resource:
    return Resource(uuid=uuid, name=f"resource {uuid}", slug=uuid, state=state, backend_id=account)


def used(**accounts: Mapping[str, Mapping[str, float]]) -> Usage:
    """Hours by account, user and TRES (`_` for `/`)."""
    found = {}
    for account, users in accounts.items():
        counts = {
            user: {tres.replace("_", "/"): round(hours * HOUR) for tres, hours in had.items()}
            for user, had in users.items()
        }
        names = {tres for had in counts.values() for tres in had}
        total = {tres: sum(had.get(tres, 0) for had in counts.values()) for tres in names}
        found[account] = AccountUsage(total, counts)
    return Usage(UsageQuery(MONTH), found, records=len(found) or 1)


class Holding:
    """What Waldur holds; `take` carries a plan out as Waldur would."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], UsageRecord] = {}
        self.shares: dict[tuple[str, str], UserUsageRecord] = {}

    def total(self, resource: str, component: str, amount: str | None) -> Holding:
        value = None if amount is None else Decimal(amount)
        uuid = f"{resource}-{component}"
        self.records[resource, component] = UsageRecord(uuid, resource, component, value)
        return self

    def share(self, resource: str, component: str, user: str, amount: str | None) -> Holding:
        record = f"{resource}-{component}"
        value = None if amount is None else Decimal(amount)
        self.shares[record, user] = UserUsageRecord(record, user, value)
        return self

    def take(self, plans: Iterable[UsagePlan]) -> None:
        for plan in plans:
            for name, amount in plan.totals.after if plan.totals else ():
                self.total(plan.resource.uuid, name, amount)
            for share in plan.shares:
                for user, amount in share.after:
                    self.share(share.resource, share.component, user, amount)

    def ledger(self) -> Ledger:
        return Ledger.of(self.records.values(), self.shares.values())


def plan(
    resources: Sequence[Resource], usage: Usage, held: Holding | None = None, **rules: Any
) -> list[UsagePlan]:
    ledger = (held or Holding()).ledger()
    return planner.plan_month(resources, usage, ledger, replace(RULES, **rules))


def lines(plans: Iterable[UsagePlan]) -> list[str]:
    """What would be told, and why something is not."""
    found = []
    for each in plans:
        found += [action.render().removeprefix("report ") for action in each.actions]
        found += [f"{each.account}: {each.skipped}"] if each.skipped else []
    return found


ONE = [resource("r", "a")]
ANN = used(a={"ann": {"cpu": 2}})

CASES: dict[str, tuple[list[Resource], Usage, Holding, dict[str, Any], list[str]]] = {
    "the first time": (
        ONE, ANN, Holding(), {},
        ["usage of a in 2026-11: cpu 2.00, gres/gpu 0.00", "usage of users of a in 2026-11, cpu: ann 2.00"],
    ),
    "only what changed": (
        ONE, used(a={"ann": {"cpu": 2}, "bob": {"cpu": 1}}),
        Holding().total("r", "cpu", "2").total("r", "gres/gpu", "0.00").share("r", "cpu", "ann", "2.0"), {},
        ["usage of a in 2026-11: cpu 2 -> 3.00", "usage of users of a in 2026-11, cpu: bob 1.00"],
    ),
    "the same": (
        ONE, ANN, Holding().total("r", "cpu", "2.00").total("r", "gres/gpu", "0").share("r", "cpu", "ann", "2"),
        {}, [],
    ),
    "all components where the server forgets the others": (
        ONE, ANN, Holding().total("r", "cpu", "1").total("r", "gres/gpu", "0"), {"in_full": True, "with_users": False},
        ["usage of a in 2026-11: cpu 1 -> 2.00, gres/gpu 0 -> 0.00"],
    ),
    "a known account without jobs is zero": (
        ONE, used(b={"bob": {"cpu": 1}}), Holding(), {}, ["usage of a in 2026-11: cpu 0.00, gres/gpu 0.00"],
    ),
    "and so are those who had something before": (
        ONE, used(b={"bob": {"cpu": 1}}), Holding().total("r", "cpu", "5").share("r", "cpu", "ann", "5"), {},
        ["usage of a in 2026-11: cpu 5 -> 0.00, gres/gpu 0.00", "usage of users of a in 2026-11, cpu: ann 5 -> 0.00"],
    ),
    "in a past month nothing needs no zero": (
        ONE, used(b={"bob": {"cpu": 1}}), Holding(), {"with_zeros": False}, [],
    ),
    "in a past month what was something is zero": (
        ONE, used(b={"bob": {"cpu": 1}}), Holding().total("r", "cpu", "5"), {"with_zeros": False},
        ["usage of a in 2026-11: cpu 5 -> 0.00"],
    ),
    "an unknown account is never zero": (
        [resource("r", "gone")], ANN, Holding().total("r", "cpu", "5"), {},
        ["gone: account gone is not on the cluster: nothing is known of its usage"],
    ),
    "an account that is gone meanwhile used what it used": (
        [resource("r", "gone")], used(gone={"ann": {"cpu": 1}}), Holding(), {"with_users": False},
        ["usage of gone in 2026-11: cpu 1.00, gres/gpu 0.00"],
    ),
    "the spelling of a name in Waldur does not matter": (
        [resource("r", "A")], ANN, Holding(), {"with_users": False},
        ["usage of a in 2026-11: cpu 2.00, gres/gpu 0.00"],
    ),
    "users are spelled as in Waldur": (
        ONE, used(a={"ann": {"cpu": 2}, "bob": {"cpu": 1}}),
        Holding().total("r", "cpu", "3").total("r", "gres/gpu", "0").share("r", "cpu", "Bob", "0.5"),
        {"names": {"ann": "Ann", "bob": "bob"}},
        ["usage of users of a in 2026-11, cpu: Ann 2.00, Bob 0.5 -> 1.00"],
    ),
    "one who is spelled in two ways counts once": (
        ONE, used(a={"Ann": {"cpu": 2}, "ann": {"cpu": 1}}), Holding(), {"names": {"ann": "ann"}},
        ["usage of a in 2026-11: cpu 3.00, gres/gpu 0.00", "usage of users of a in 2026-11, cpu: ann 3.00"],
    ),
    "who has no name has a part in the total only": (
        ONE, used(a={"": {"cpu": 2}, "bob": {"cpu": 1}}), Holding(), {},
        ["usage of a in 2026-11: cpu 3.00, gres/gpu 0.00", "usage of users of a in 2026-11, cpu: bob 1.00"],
    ),
    "who has too little to be told is not named": (
        ONE, used(a={"ann": {"cpu": 2}, "bob": {"cpu": 0.001}}), Holding(), {},
        ["usage of a in 2026-11: cpu 2.00, gres/gpu 0.00", "usage of users of a in 2026-11, cpu: ann 2.00"],
    ),
    "a figure of Waldur's that is none": (
        ONE, ANN, Holding().total("r", "cpu", None).total("r", "gres/gpu", "0"), {},
        ["a: what Waldur holds of cpu is no number: it is not known whether it would get less"],
    ),
    "a share in Waldur that is no number": (
        ONE, ANN, Holding().total("r", "cpu", "2.00").total("r", "gres/gpu", "0").share("r", "cpu", "bob", None), {},
        ["a: what Waldur holds of cpu is no number: it is not known whether it would get less"],
    ),
    "two resources claim one account": (
        [resource("r", "a"), resource("s", "A")], ANN, Holding(), {},
        2 * ["a: account a is named by several resources: resource r (r), resource s (s); its usage is told of none"],
    ),
    "an erred resource takes none": (
        [resource("r", "a", ResourceState.ERRED)], ANN, Holding(), {},
        ["a: Waldur takes no usage of a resource that is Erred"],
    ),
    "one that is updated or ended does": (
        [resource("r", "a", ResourceState.UPDATING), resource("s", "b", ResourceState.TERMINATING)],
        used(a={"ann": {"cpu": 1}}, b={"bob": {"cpu": 1}}), Holding(), {"with_users": False, "with_zeros": False},
        ["usage of a in 2026-11: cpu 1.00", "usage of b in 2026-11: cpu 1.00"],
    ),
    "a resource without a name has no account": ([resource("r", "")], ANN, Holding(), {}, []),
    "more than Waldur counts": (
        ONE, used(a={"ann": {"cpu": 1e18, "gres_gpu": 1}}), Holding(), {},
        ["a: usage of cpu is more than Waldur counts: check unit_factor"],
    ),
    "as much as Waldur counts": (
        ONE, Usage(UsageQuery(MONTH), {"a": AccountUsage({"cpu": (10**18 - 1) * HOUR})}, 1), Holding(),
        {"with_zeros": False}, [f"usage of a in 2026-11: cpu {10**18 - 1}.00"],
    ),
    "jobs of accounts that no resource names are passed over": (
        ONE, used(a={"ann": {"cpu": 1}}, elsewhere={"zoe": {"cpu": 9}}), Holding(),
        {"with_users": False, "with_zeros": False}, ["usage of a in 2026-11: cpu 1.00"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("resources", "usage", "held", "rules", "expected"), CASES.values(), ids=CASES)
def test_what_is_told(
    resources: list[Resource], usage: Usage, held: Holding, rules: dict[str, Any], expected: list[str]
) -> None:
    assert lines(plan(resources, usage, held, **rules)) == expected


def test_an_answer_without_any_job_says_nothing_of_anybody() -> None:
    held = Holding().total("r", "cpu", "5").share("r", "cpu", "ann", "5")
    assert plan(ONE, Usage(UsageQuery(MONTH)), held) == []


def test_several_records_of_one_component_are_left_to_a_person() -> None:
    """Waldur of 2024 has one for each period of a plan: which one counts?"""
    records = [UsageRecord(uuid, "r", "cpu", Decimal(1)) for uuid in ("x", "y")]
    (found,) = planner.plan_month(ONE, ANN, Ledger.of(records), RULES)
    assert found.skipped == "Waldur holds several records of cpu for one month: none is changed"
    assert found.needs_person
    assert found.actions == ()


def test_a_component_that_gets_less_is_left_out_where_the_site_wants_the_others() -> None:
    held = Holding().total("r", "cpu", "5").share("r", "cpu", "ann", "5").total("r", "gres/gpu", "1")
    usage = used(a={"ann": {"cpu": 2, "gres_gpu": 3}})
    (found,) = plan(ONE, usage, held, omits_lower=True)
    assert found.totals and found.totals.components == ("gres/gpu",)
    assert [share.component for share in found.shares] == ["gres/gpu"]
    assert found.omitted == "usage of a in 2026-11 would get less: cpu from 5 to 2.00"
    for rules in ({"omits_lower": False}, {"omits_lower": True, "in_full": True}):
        (whole,) = plan(ONE, usage, held, **rules)
        assert whole.totals and set(whole.totals.components) == {"cpu", "gres/gpu"} and not whole.omitted


def test_where_all_components_get_less_nothing_is_left_out() -> None:
    held = Holding().total("r", "cpu", "5").total("r", "gres/gpu", "9")
    (found,) = plan(ONE, ANN, held, omits_lower=True)
    assert found.totals and any(found.totals.decreases()) and not found.omitted


def test_what_is_left_out_when_the_rest_is_in_step_is_told_nowhere() -> None:
    held = Holding().total("r", "cpu", "5").total("r", "gres/gpu", "0")
    (found,) = plan(ONE, ANN, held, omits_lower=True)
    assert found.omitted and found.actions == ()


@pytest.mark.parametrize("case", ["two resources claim one account", "more than Waldur counts"])
def test_what_does_not_mend_itself_needs_a_person(case: str) -> None:
    resources, usage, held, rules, _ = CASES[case]
    assert all(each.needs_person for each in plan(resources, usage, held, **rules))


@pytest.mark.parametrize("case", ["an unknown account is never zero", "an erred resource takes none"])
def test_what_mends_itself_waits(case: str) -> None:
    resources, usage, held, rules, _ = CASES[case]
    assert not any(each.needs_person for each in plan(resources, usage, held, **rules))


def test_components_are_told_in_the_units_of_each() -> None:
    mapped = Component("nodes", "h", AccountingType.USAGE, "nodes", targets={"cpu": 120.0, "gres/gpu": 60.0})
    found = plan(ONE, used(a={"ann": {"cpu": 4, "gres_gpu": 1}}), components=(CPU, mapped), with_users=False)
    assert lines(found) == ["usage of a in 2026-11: cpu 2.00, nodes 2.00"]


def test_what_waldur_takes_usage_of() -> None:
    components = [component(name) for name in ("cpu", "mem", "setup", "extra", "nowhere")]
    billing = {"cpu": "usage", "mem": "limit", "setup": "one", "extra": "fixed"}
    taken, missing = planner.accountable(components, billing)
    assert [c.name for c in taken] == ["cpu", "mem"]
    assert missing == ("nowhere",)


def test_what_the_cluster_does_not_track() -> None:
    components = [CPU, GPU, component("hours", 1, cpu=60, node=60)]
    assert planner.untracked(components, frozenset({"cpu"})) == {"gres/gpu": "gres/gpu", "hours": "node"}
    assert planner.untracked(components, frozenset({"cpu", "gres/gpu", "node"})) == {}
    assert planner.counted(used(a={"ann": {"cpu": 1}}, b={"bob": {"gres_gpu": 1}})) == {"cpu", "gres/gpu"}


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
def test_what_was_told_is_not_told_again(
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
def test_nobody_is_told_less_without_being_known(
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


def test_an_action_names_its_resource_month_and_figures() -> None:
    (found,) = plan(ONE, ANN, Holding().total("r", "cpu", "1.5"), with_users=False)
    assert found.totals == ReportUsage(resource="r", account="a", month="2026-11", after=())
    assert found.totals.before == (("cpu", "1.5"), ("gres/gpu", None))
    assert found.totals.after == (("cpu", "2.00"), ("gres/gpu", "0.00"))


def test_a_tres_of_two_components_is_told_once_and_so_are_the_shares_of_users() -> None:
    """The reference tells all of it for each of them."""
    node, gpu = (
        replace(c, accounting_type=AccountingType.LIMIT)
        for c in (component("node", gres_gpu=120), component("gres/gpu"))
    )
    node = replace(node, targets={"gres/gpu": 120})
    rules = replace(RULES, components=(node,), configured=(node, gpu))
    usage = used(a={"u1": {"gres_gpu": 30}, "u2": {"gres_gpu": 60}})
    (plan,) = planner.plan_month(
        [replace(resource("1", "a"), limits={"node": 10, "gres/gpu": 40})], usage, Ledger(), rules
    )
    # A third of 90 hours is the nodes', at two hours each.
    assert plan.totals is not None
    assert plan.totals.after == (("node", "15.00"),)
    assert [share.after for share in plan.shares] == [(("u1", "5.00"), ("u2", "10.00"))]


def test_components_that_share_a_tres_are_left_out_together() -> None:
    """Their parts change with their limits: what one has less the other has more, and would be billed twice."""
    node, gpu = (
        replace(component(name), accounting_type=AccountingType.LIMIT, targets={"gres/gpu": 60})
        for name in ("node", "gpu")
    )
    before = [replace(resource("r", "a"), limits={"node": 10, "gpu": 10})]
    after = [replace(resource("r", "a"), limits={"node": 30, "gpu": 10})]
    usage = used(a={"ann": {"gres_gpu": 100, "cpu": 7}})
    rules = {"components": (CPU, node, gpu), "omits_lower": True, "with_users": False}
    (first,) = plan(before, usage, **rules)
    assert first.totals and dict(first.totals.after) == {"cpu": "7.00", "node": "50.00", "gpu": "50.00"}
    held = Holding().total("r", "cpu", "6").total("r", "node", "50").total("r", "gpu", "50")
    (second,) = plan(after, usage, held, **rules)
    assert second.totals and dict(second.totals.after) == {"cpu": "7.00"}
    assert second.omitted == (
        "usage of a in 2026-11 would get less: gpu from 50 to 25.00; node is left out with it, "
        "for it shares what was used"
    )
