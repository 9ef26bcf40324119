# SPDX-License-Identifier: MIT
"""One account belongs to one resource: names that others claimed, races for a name, offerings that share a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.errors import PlanRefused, WaldurError
from agent.core.model import Account
from agent.core.waldur_actions import ReleaseAccount
from agent.run import passes
from agent.run.orders import naming
from agent.run.orders.facts import PlannedOrders
from agent.run.orders.naming import NameContested
from agent.run.site import Site, client
from agent.state import journal
from agent.state.journal import Query
from agent.waldur import resources
from agent.waldur.actions import REQUESTS
from backends.testing.memory import MemoryBackend
from rig.site import configuration, settings_of
from simulator.control.experiments import OrderOptions
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import ResourceState
from simulator.world.seed import Scenario
from tests.agent.run.orders.conftest import SiteFactory
from tests.one_mode import planned_orders

BY_PROJECT = {"account_name_generation_policy": "project_slug"}
SECOND_OFFERING = "ab" * 16
EVERYWHERE = {"check_backend_id_uniqueness": True, "check_all_offerings": True}


def name_by_project(waldur: SimulatedWaldur, *offerings: str) -> None:
    for uuid in offerings or (waldur.seed.offering_uuid,):
        waldur.site.change("offerings", uuid, plugin_options=BY_PROJECT)


def place(waldur: SimulatedWaldur, slug: str) -> str:
    return waldur.place_create_order(waldur.seed.project_uuids[0], slug, limits={"cpu": 10}, slug=slug)


def account_of(waldur: SimulatedWaldur, order: str) -> str:
    return waldur.resource(waldur.order(order).resource_uuid).backend_id


def half_made(site: Site, plan: PlannedOrders) -> str:
    """Put the account of this plan on the cluster, with those above it; its name."""
    (one,) = plan.plans
    assert one.spec is not None and isinstance(site.backend, MemoryBackend)
    hierarchy = (*one.spec.ancestors, one.spec.account)
    accounts = {"root": Account("root", None), **{t.name: Account(t.name, t.parent) for t in hierarchy}}
    site.backend.state = replace(site.backend.state, accounts=accounts)
    return one.account


def allocations_on(site: Site) -> dict[str, Mapping[str, int]]:
    return {
        name: dict(account.limits)
        for name, account in site.backend.observe().accounts.items()
        if name.startswith("a_")
    }


# Names that are claimed but not built yet ---------------------------------------------------------


@pytest.mark.parametrize("names", ["by project", "cut"])
def test_a_name_that_waits_for_its_account_is_no_other_resources(
    waldur: SimulatedWaldur, in_memory: SiteFactory, names: str
) -> None:
    """Two resources ended on one account: the first had claimed the name when slurmdbd went away."""
    site = in_memory(backend={"allocation_name_max_len": 8} if names == "cut" else {})
    if names == "by project":
        name_by_project(waldur)
    first, second = (place(waldur, slug) for slug in ("allocation-1", "allocation-2"))
    assert isinstance(site.backend, MemoryBackend)
    site.backend.outage = lambda call: call == "apply"
    for order in (first, second):
        assert passes.process_orders(site, order_uuid=order).counted() == {"retry": 1}
    site.backend.outage = lambda _: False
    assert passes.process_orders(site).counted() == {"done": 2}
    assert len({account_of(waldur, order) for order in (first, second)}) == 2
    assert set(allocations_on(site)) == {account_of(waldur, order) for order in (first, second)}


def test_a_name_of_ones_own_that_another_resource_has_fails_the_order(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    site = in_memory()
    other, order = place(waldur, "other"), place(waldur, "one")
    uuid = waldur.order(other).resource_uuid
    waldur.site.change("resources", uuid, backend_id="a_one")
    report = passes.process_orders(site, order_uuid=order)
    assert report.counted() == {"failed": 1}
    assert waldur.order(order).error_message == f"account name a_one belongs to resource {uuid}"
    assert allocations_on(site) == {}


def test_the_name_of_an_ended_resource_is_free_again(waldur: SimulatedWaldur, in_memory: SiteFactory) -> None:
    site = in_memory()
    ended, order = waldur.order(place(waldur, "other")).resource_uuid, place(waldur, "one")
    waldur.site.change("resources", ended, backend_id="a_one", state=ResourceState.TERMINATED)
    assert passes.process_orders(site, order_uuid=order).counted() == {"done": 1}
    assert account_of(waldur, order) == "a_one"


# Two that chose a name at once ---------------------------------------------------------------------


def planned(site: Site, order: str) -> PlannedOrders:
    return planned_orders(site, order=order or "")


def claim(site: Site, plan: PlannedOrders) -> None:
    (one,) = plan.plans
    resources.set_backend_id(site.client, one.case.resource.uuid, one.account)


def verdicts(site: Site, plan: PlannedOrders) -> list[str]:
    """Give up what is to be given up, and return why the orders wait."""
    contests = naming.contested(site, plan.plans)
    for contest in contests:
        if contest.release is not None:
            REQUESTS[ReleaseAccount](site.client, contest.release)
    return [str(contest.error) for contest in contests]


def test_of_two_claims_the_younger_gives_way_and_the_older_waits_for_it(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    name_by_project(waldur)
    site = in_memory()
    older, younger = place(waldur, "one"), place(waldur, "two")
    waldur.site.change(
        "resources",
        waldur.order(older).resource_uuid,
        created=waldur.resource(waldur.order(younger).resource_uuid).created.replace(year=2020),
    )
    plans = [planned(site, order) for order in (older, younger)]
    assert {plan.plans[0].account for plan in plans} == {"a_project-1-1"}
    claim(site, plans[0])
    assert verdicts(site, plans[0]) == []
    claim(site, plans[1])
    (waits,) = verdicts(site, plans[0])
    assert waits.endswith("waiting until that one has given it up")
    assert account_of(waldur, older) == "a_project-1-1"
    (gives_up,) = verdicts(site, plans[1])
    assert gives_up.endswith("given up, another name is looked for")
    assert account_of(waldur, younger) == ""
    assert verdicts(site, plans[0]) == []
    assert planned(site, younger).plans[0].account == "a_project-1-1-0"


def test_an_existing_resource_keeps_its_account_whatever_its_age(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    site = in_memory()
    order, other = place(waldur, "one"), place(waldur, "other")
    plan = planned(site, order)
    claim(site, plan)
    waldur.site.change(
        "resources", waldur.order(other).resource_uuid, backend_id="a_one", state=ResourceState.OK
    )
    (contest,) = naming.contested(site, plan.plans)
    assert isinstance(contest.error, NameContested) and contest.error.retryable
    assert len(verdicts(site, plan)) == 1
    assert account_of(waldur, order) == ""
    (again,) = planned(site, order).plans
    assert "a_one belongs to resource" in again.refusal


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_is_given_up_in_a_pass_is_in_the_journal(
    waldur: SimulatedWaldur, in_memory: SiteFactory, is_refused: bool
) -> None:
    site = in_memory()
    order, other = place(waldur, "one"), place(waldur, "other")
    claim(site, planned(site, order))
    waldur.site.change(
        "resources", waldur.order(other).resource_uuid, backend_id="a_one", state=ResourceState.OK
    )
    if is_refused:
        refusal = Fault(method="POST", path="set_backend_id/", status=503, body="{}", times=None)
        waldur.inject(refusal)
    assert passes.process_orders(site, order_uuid=order).counted() == {"retry": 1}
    assert allocations_on(site) == {}
    released = [
        line
        for line in journal.read(site.state_dir, Query(order=order))
        if line["action"]["action"] == "ReleaseAccount"
    ]
    assert [line["outcome"] for line in released] == (["failed"] if is_refused else ["done"])
    assert account_of(waldur, order) == ("a_one" if is_refused else "")


def test_who_has_not_claimed_gives_nothing_up(waldur: SimulatedWaldur, in_memory: SiteFactory) -> None:
    site = in_memory()
    order, other = place(waldur, "one"), place(waldur, "other")
    plan = planned(site, order)
    waldur.site.change(
        "resources", waldur.order(other).resource_uuid, backend_id="a_one", state=ResourceState.OK
    )
    waldur.requests.reset()
    assert len(verdicts(site, plan)) == 1
    assert waldur.requests.count("POST *") == 0


def test_an_ended_resource_contests_nothing(waldur: SimulatedWaldur, in_memory: SiteFactory) -> None:
    site = in_memory()
    order, other = place(waldur, "one"), place(waldur, "other")
    plan = planned(site, order)
    claim(site, plan)
    waldur.site.change(
        "resources", waldur.order(other).resource_uuid, backend_id="a_one", state=ResourceState.TERMINATED
    )
    assert verdicts(site, plan) == []


def test_who_cannot_look_does_not_build(waldur: SimulatedWaldur, in_memory: SiteFactory) -> None:
    site = in_memory()
    order, other = place(waldur, "one"), place(waldur, "other")
    plan = planned(site, order)
    claim(site, plan)
    waldur.site.change(
        "resources", waldur.order(other).resource_uuid, backend_id="a_one", state=ResourceState.OK
    )
    path = "marketplace-provider-resources/"
    waldur.inject(
        Fault(method="GET", path=path, status=403, body="{}", content_type="application/json", times=None)
    )
    (contest,) = naming.contested(site, plan.plans)
    assert isinstance(contest.error, WaldurError) and contest.release is None


@pytest.mark.parametrize(("count", "requests"), [(3, 3), (9, 1)])
def test_many_claims_are_looked_at_with_one_listing(
    waldur: SimulatedWaldur, in_memory: SiteFactory, count: int, requests: int
) -> None:
    site = in_memory()
    for number in range(count):
        place(waldur, f"n{number}")
    plan = planned_orders(site)
    waldur.site.change(
        "resources",
        waldur.order(place(waldur, "other")).resource_uuid,
        backend_id="a_n1",
        state=ResourceState.OK,
    )
    waldur.requests.reset()
    assert [each.plan.account for each in naming.contested(site, plan.plans)] == ["a_n1"]
    assert waldur.requests.count("GET *") == requests


# Offerings that share a cluster --------------------------------------------------------------------


def both_offerings(waldur: SimulatedWaldur, folder: Path, **backend: Any) -> tuple[Site, Site]:
    """Two offerings of one provider, on the same cluster."""
    with waldur.store.lock:
        second = deepcopy(waldur.store.offerings[waldur.seed.offering_uuid])
        second.uuid, second.slug = SECOND_OFFERING, "second"
        waldur.store.offerings.add(second)
    cluster = MemoryBackend()
    sites = []
    for uuid in (waldur.seed.offering_uuid, SECOND_OFFERING):
        path = configuration(waldur, folder, backend=backend, waldur_offering_uuid=uuid)
        offering = settings_of(path).offerings[0]
        sites.append(Site(offering, client(offering, Mode.ORDER_PROCESS), cluster, folder))
    return sites[0], sites[1]


def place_at_second(waldur: SimulatedWaldur, name: str) -> str:
    options = OrderOptions(offering_uuid=SECOND_OFFERING)
    return waldur.orders.place_create(waldur.seed.project_uuids[0], name, limits={"cpu": 20}, options=options)


@pytest.mark.parametrize("backend", [{}, EVERYWHERE], ids=["plain", "everywhere"])
@pytest.mark.parametrize("age", ["2024", "8.0"])
@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
def test_an_offering_does_not_take_over_the_account_of_another_one(
    tmp_path: Path, age: str, backend: dict[str, Any], begun: bool
) -> None:
    with SimulatedWaldur(age, scenario=Scenario(members_per_project=2)) as waldur:
        first, second = both_offerings(waldur, tmp_path, **backend)
        name_by_project(waldur, waldur.seed.offering_uuid, SECOND_OFFERING)
        one = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10})
        assert passes.process_orders(first).counted() == {"done": 1}
        other = place_at_second(waldur, "other")
        if begun:
            second.client.post(f"marketplace-orders/{other}/approve_by_provider/")
        assert passes.process_orders(second).counted() == {"done": 1}
        theirs, ours = account_of(waldur, one), account_of(waldur, other)
        assert ours == f"{theirs}-0"
        assert allocations_on(first) == {theirs: {"cpu": 600}, ours: {"cpu": 1200}}


def test_a_claim_of_another_offering_counts_where_names_are_checked_everywhere(
    waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    first, second = both_offerings(waldur, tmp_path, **EVERYWHERE)
    name_by_project(waldur, waldur.seed.offering_uuid, SECOND_OFFERING)
    one = place(waldur, "one")
    plan = planned(first, one)
    other = place_at_second(waldur, "other")
    rival = planned(second, other)
    claim(first, plan)
    claim(second, rival)
    assert len(verdicts(second, rival)) == 1


# Half-made accounts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "begun", "ours"),
    [("8.0", True, True), ("8.0", False, True), ("2024", True, True), ("2024", False, False)],
)
def test_a_standing_account_without_a_resource_is_ours_where_it_can_be(
    tmp_path: Path, age: str, begun: bool, ours: bool
) -> None:
    """A server of 2024 cannot say what offerings have that we do not see: there only a begun order explains it."""
    with SimulatedWaldur(age, scenario=Scenario(members_per_project=2)) as waldur:
        offering = settings_of(configuration(waldur, tmp_path)).offerings[0]
        site = Site(offering, client(offering, Mode.ORDER_PROCESS), MemoryBackend(), tmp_path)
        order = place(waldur, "one")
        account = half_made(site, planned(site, order))
        if begun:
            site.client.post(f"marketplace-orders/{order}/approve_by_provider/")
        report = passes.process_orders(site)
        assert report.counted() == {"done" if ours else "failed": 1}, report.as_json()
        assert account_of(waldur, order) == (account if ours else "")
        if not ours:
            sentence = f"account {account} exists already, and was not made for this order"
            assert waldur.order(order).error_message == sentence


def test_a_name_is_refused_with_the_last_reason(waldur: SimulatedWaldur, in_memory: SiteFactory) -> None:
    name_by_project(waldur)
    site = in_memory(backend={"backend_id_max_retries": 1})
    holder = waldur.order(place(waldur, "other")).resource_uuid
    waldur.site.change("resources", holder, backend_id="a_project-1-1", state=ResourceState.OK)
    order = place(waldur, "one")
    (plan,) = planned(site, order).plans
    assert plan.refusal == f"account name a_project-1-1 belongs to resource {holder}"
    assert PlanRefused.retryable is False
