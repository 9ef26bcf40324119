# SPDX-License-Identifier: MIT
"""What a pass reads of Waldur, and that a fault in one part of it keeps only those orders waiting that need it."""

from __future__ import annotations

from typing import Any

import pytest

from agent.run import passes
from agent.run.site import offering_rules
from agent.waldur import offerings
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import Component
from tests.agent.run.orders.conftest import SiteFactory


def change_component(waldur: SimulatedWaldur, name: str, **values: Any) -> None:
    with waldur.store.lock:
        (component,) = (c for c in components_of(waldur) if c.type == name)
        for field, value in values.items():
            setattr(component, field, value)


def components_of(waldur: SimulatedWaldur) -> list[Component]:
    return waldur.store.offerings[waldur.seed.offering_uuid].components


@pytest.mark.parametrize("path", ["marketplace-offering-users/", "list_project_service_accounts/", "team/"])
def test_who_is_in_a_project_concerns_creations_only(
    waldur: SimulatedWaldur, in_memory: SiteFactory, path: str
) -> None:
    """A token without the right to list offering users kept terminations and updates waiting too."""
    site = in_memory()
    project = waldur.seed.project_uuids[0]
    first, second = (
        waldur.order(waldur.place_create_order(project, name, limits={"cpu": 1})).resource_uuid
        for name in ("one", "two")
    )
    assert passes.process_orders(site).counted() == {"done": 2}
    waldur.inject(
        Fault(path=path, status=403, body='{"detail": "no"}', content_type="application/json", times=None)
    )
    waldur.orders.place_terminate(first)
    waldur.orders.place_update(second, {"cpu": 2})
    waldur.place_create_order(project, "three", limits={"cpu": 1})
    report = passes.process_orders(site)
    assert {o.type: o.result.value for o in report.orders} == {
        "Terminate": "done", "Update": "done", "Create": "stuck",
    }  # fmt: skip
    waldur.faults.clear()
    assert passes.process_orders(site).counted() == {"done": 1}


def test_a_negative_amount_in_waldur_errs_no_order(
    waldur: SimulatedWaldur, in_memory: SiteFactory, caplog: pytest.LogCaptureFixture
) -> None:
    change_component(waldur, "gpu", billing_type="usage", limit_amount=-1)
    site = in_memory()
    waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 1})
    assert passes.process_orders(site).counted() == {"done": 1}
    assert "gpu: its static limit is -1.0, which no limit can be" in caplog.text


@pytest.mark.parametrize("factor", [-1, -60])
def test_a_component_of_waldurs_with_a_factor_that_makes_no_limit_is_skipped(
    waldur: SimulatedWaldur, in_memory: SiteFactory, caplog: pytest.LogCaptureFixture, factor: int
) -> None:
    change_component(waldur, "gpu", unit_factor=factor)
    site = in_memory()
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 1, "gpu": 2})
    assert passes.process_orders(site).counted() == {"done": 1}, waldur.order(order).error_message
    assert "gpu: no such component in backend_components" in caplog.text


def test_components_that_only_waldur_has_count_with_its_factor(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    site = in_memory()
    rules = offering_rules(site, offerings.facts(site.client))
    assert {c.name: c.unit_factor for c in rules.components} == {"cpu": 60, "mem": 61440, "gpu": 60}


def test_default_accounts_go_back_to_where_the_backend_says(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    site = in_memory(backend={"default_account": "Users"})
    assert (
        offering_rules(site, offerings.facts(site.client)).default_account
        == site.backend.default_account
        == "users"
    )
