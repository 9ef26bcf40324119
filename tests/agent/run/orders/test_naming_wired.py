# SPDX-License-Identifier: MIT
"""Whole passes over contested names, lost backend ids and partitions that the offering cannot have meant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.run import passes
from agent.waldur.client import WaldurClient
from simulator.control.experiments import OrderOptions
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.orders.conftest import SiteFactory
from tests.agent.run.orders.test_claims import account_of, allocations_on, name_by_project, place
from tests.agent.run.orders.test_lost_ids import lose, made


class LateClient(WaldurClient):
    """Another pass claims between our look and our claim."""

    before_claim: Callable[[], None] = staticmethod(lambda: None)

    def post(self, path: str, body: Any = None, *, repeatable: bool = False) -> Any:
        if path.endswith("set_backend_id/"):
            self.before_claim()
        return super().post(path, body, repeatable=repeatable)


def test_two_passes_that_choose_one_name_at_once_end_on_two_accounts(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    name_by_project(waldur)
    site = in_memory()
    one, two = place(waldur, "one"), place(waldur, "two")
    rival = waldur.order(one).resource_uuid
    late = LateClient(
        site.offering.access, user_agent="waldur-site-agent-test", offering_uuid=site.offering.uuid
    )
    late.before_claim = lambda: waldur.site.change("resources", rival, backend_id="a_project-1-1")
    assert passes.process_orders(replace(site, client=late), order_uuid=two).counted() == {"retry": 1}
    assert allocations_on(site) == {}
    assert passes.process_orders(site).counted() == {"done": 2}
    names = {account_of(waldur, order) for order in (one, two)}
    assert names == set(allocations_on(site)) == {"a_project-1-1", "a_project-1-1-0"}


@pytest.mark.parametrize("kind", ["terminate", "update"])
def test_an_order_of_a_resource_that_lost_its_id_is_carried_out_on_its_account(
    waldur: SimulatedWaldur, in_memory: SiteFactory, kind: str
) -> None:
    site = in_memory()
    (one,) = made(waldur, site, "one")
    lose(waldur, one)
    if kind == "terminate":
        waldur.orders.place_terminate(one)
    else:
        waldur.orders.place_update(one, {"cpu": 2})
    assert passes.process_orders(site).counted() == {"done": 1}
    assert allocations_on(site) == ({} if kind == "terminate" else {"a_one": {"cpu": 120}})


def test_where_it_is_unknown_which_account_goes_the_order_says_so(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    name_by_project(waldur)
    site = in_memory()
    one, two = made(waldur, site, "one", "two")
    lose(waldur, one, two)
    order = waldur.orders.place_terminate(one)
    (result,) = passes.process_orders(site).orders
    assert result.result == "stuck"
    assert "write it there (set_backend_id)" in result.message
    assert waldur.order(order).state.value == "pending-provider"
    waldur.site.change("resources", one, backend_id="a_project-1-1")
    assert passes.process_orders(site).counted() == {"done": 1}
    assert set(allocations_on(site)) == {"a_project-1-1-0"}


def test_partitions_that_slurm_cannot_name_keep_creations_waiting_and_nothing_else(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    site = in_memory(backend={"enforce_offering_partitions": True})
    (one,) = made(waldur, site, "one")
    with waldur.store.lock:
        waldur.store.offerings[waldur.seed.offering_uuid].partitions = ["big mem"]
    place(waldur, "two")
    waldur.orders.place_terminate(one)
    report = passes.process_orders(site)
    assert {o.type: o.result.value for o in report.orders} == {"Create": "stuck", "Terminate": "done"}


def test_a_qos_that_the_cluster_does_not_have_keeps_its_order_waiting_and_adds_no_member_later(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    backend = {"qos_enforcement_enabled": True, "enforce_offering_qos": True, "qos_default": "absent"}
    site = in_memory(backend=backend)
    order = place(waldur, "one")
    waldur.site.change("resources", waldur.order(order).resource_uuid, attributes={"qos": "absent"})
    (result,) = passes.process_orders(site).orders
    assert result.result == "stuck"
    assert "has no QoS 'absent', which members of the account a_one shall get" in result.message
    waldur.site.change("resources", waldur.order(order).resource_uuid, attributes={})
    assert passes.process_orders(site).counted() == {"done": 1}


def test_an_order_gets_no_qos_and_no_partition_that_its_offering_does_not_have(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    """Waldur's order form shows what there is; a request of one's own may carry any value."""
    site = in_memory(backend={"qos_enforcement_enabled": True, "enforce_offering_qos": True})
    with waldur.store.lock:
        waldur.store.offerings[waldur.seed.offering_uuid].partitions = ["cpu"]
    asked = {
        "one": {"qos": "root_only"},
        "two": {"qos": "normal", "partition": "admins"},
        "three": {"qos": "normal", "partition": "cpu"},
    }
    orders = {
        name: waldur.orders.place_create(
            waldur.seed.project_uuids[0], name, limits={"cpu": 10}, slug=name,
            options=OrderOptions(attributes=dict(attributes)),
        )
        for name, attributes in asked.items()
    }  # fmt: skip
    for name, order in orders.items():
        waldur.site.change("resources", waldur.order(order).resource_uuid, attributes=asked[name])
    report = passes.process_orders(site)
    assert report.counted() == {"failed": 2, "done": 1}
    assert set(allocations_on(site)) == {"a_three"}
    assert "the offering has no QoS 'root_only' in Waldur" in waldur.order(orders["one"]).error_message
    assert "the offering has no partition 'admins'" in waldur.order(orders["two"]).error_message
