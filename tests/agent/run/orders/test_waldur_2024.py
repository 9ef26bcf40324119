# SPDX-License-Identifier: MIT
"""Orders of a server of October 2024: the allocation object behind a resource, and orders that it errs by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.actions import ClusterAction
from agent.core.plans import Outcome
from agent.run import passes
from agent.run.site import Site, client
from backends.testing.memory import MemoryBackend
from rig.site import configuration, settings_of
from simulator.rules import allocations
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import Allocation
from simulator.world.seed import Scenario


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur("2024", scenario=Scenario(members_per_project=2)) as server:
        yield server


def site_of(waldur: SimulatedWaldur, folder: Path, backend: MemoryBackend, **keys: str) -> Site:
    offering = settings_of(configuration(waldur, folder, **keys)).offerings[0]
    return Site(offering, client(offering, Mode.ORDER_PROCESS), backend, folder)


def made(waldur: SimulatedWaldur, site: Site) -> str:
    """Place and process a create order; the uuid of its resource."""
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 1}, slug="one")
    assert passes.process_orders(site).counted() == {"done": 1}
    return waldur.order(order).resource_uuid


def test_updates_in_a_row_are_done(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    backend = MemoryBackend()
    site = site_of(waldur, tmp_path, backend)
    resource = made(waldur, site)
    for cpu in (2, 3, 4):
        order = waldur.orders.place_update(resource, {"cpu": cpu})
        assert passes.process_orders(site).counted() == {"done": 1}
        assert waldur.order(order).state.value == "done"
        assert waldur.resource(resource).limits == {"cpu": cpu}
        assert backend.state.accounts["a_one"].limits == {"cpu": 60 * cpu}


def test_an_update_that_was_left_half_done_is_finalised_before_the_next_is_approved(
    waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    """An older agent has completed the order, and left the allocation object scheduled."""
    site = site_of(waldur, tmp_path, MemoryBackend())
    resource = made(waldur, site)
    waldur.site.change("resources", resource, allocation=half_updated(waldur, resource))
    waldur.requests.reset()
    waldur.orders.place_update(resource, {"cpu": 2})
    assert passes.process_orders(site).counted() == {"done": 1}
    order = [entry.endpoint for entry in waldur.requests.entries("POST *")]
    assert [name.rpartition("}/")[2] for name in order] == [
        "set_state/",
        "approve_by_provider/",
        "set_state_done/",
        "set_state/",
    ]


def half_updated(waldur: SimulatedWaldur, resource: str) -> Allocation:
    allocation = waldur.resource(resource).allocation
    assert allocation is not None
    return replace(allocation, state=allocations.UPDATE_SCHEDULED)


def test_a_token_that_may_not_set_the_allocation_ok_approves_no_update_that_waldur_would_err(
    waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    backend = MemoryBackend()
    owner = site_of(waldur, tmp_path, backend)
    resource = made(waldur, owner)
    token = waldur.people.add_provider_user("custom", "CUSTOMER.SITE_AGENT")
    site = site_of(waldur, tmp_path, backend, waldur_api_token=token)
    waldur.orders.place_update(resource, {"cpu": 2})
    # The object is OK: nothing is in the way of this one. It leaves the object scheduled.
    assert passes.process_orders(site).counted() == {"done": 1}
    order = waldur.orders.place_update(resource, {"cpu": 3})
    report = passes.process_orders(site)
    assert report.counted() == {"stuck": 1}
    assert "lacks the role of an owner (CUSTOMER.OWNER) of the provider" in report.orders[0].message
    assert waldur.order(order).state.value == "pending-provider"
    assert backend.state.accounts["a_one"].limits == {"cpu": 120}
    assert passes.process_orders(owner).counted() == {"done": 1}


def test_limits_are_not_written_before_waldur_has_begun_the_update(
    waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    """It errs an order a moment after the approval; until then the order looks as if it was executing."""
    backend = MemoryBackend()
    site = site_of(waldur, tmp_path, backend)
    resource = made(waldur, site)
    waldur.site.configure(processor_delay_s=3600.0)
    first = waldur.orders.place_update(resource, {"cpu": 2})
    assert passes.process_orders(site).counted() == {"retry": 1}
    assert backend.state.accounts["a_one"].limits == {"cpu": 60}
    waldur.site.change("resources", resource, allocation=half_updated(waldur, resource))
    waldur.site.run_background()
    assert waldur.order(first).state.value == "erred"
    assert passes.process_orders(site).counted() == {}
    assert backend.state.accounts["a_one"].limits == {"cpu": 60}
    second = waldur.orders.place_update(resource, {"cpu": 3})
    assert passes.process_orders(site).counted() == {"retry": 1}
    waldur.site.run_background()
    assert passes.process_orders(site).counted() == {"done": 1}
    assert waldur.order(second).state.value == "done"
    assert backend.state.accounts["a_one"].limits == {"cpu": 180}


class Interrupted(MemoryBackend):
    """A cluster while whose limits are being written Waldur errs an order."""

    waldur: SimulatedWaldur
    erred = ""

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        if self.erred:
            self.waldur.site.change("orders", self.erred, state="erred", error_message="no quota")
        return super().apply(actions)


def test_an_order_that_waldur_errs_while_it_is_built_is_named_so_and_where_limits_differ(
    waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    backend = Interrupted()
    backend.waldur = waldur
    site = site_of(waldur, tmp_path, backend)
    resource = made(waldur, site)
    backend.erred = waldur.orders.place_update(resource, {"cpu": 2})
    report = passes.process_orders(site)
    assert report.counted() == {"failed": 1}
    assert report.orders[0].message == (
        "Waldur itself has set the order erred: no quota. Account a_one has the limits of this order on the cluster "
        "all the same (cpu=120, in its units), and Waldur shows cpu=1: place the update again"
    )


def test_an_order_that_waldur_errs_with_the_approval_is_failed_and_nothing_is_written(
    waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    """A server that says `ok` and does not mean it: the object is scheduled again at once."""
    backend = MemoryBackend()
    site = site_of(waldur, tmp_path, backend)
    resource = made(waldur, site)
    waldur.site.change("resources", resource, allocation=half_updated(waldur, resource))
    waldur.inject(Fault(path="slurm-remote/.*/set_state", status=200, body='{"detail": "done"}'))
    waldur.orders.place_update(resource, {"cpu": 2})
    report = passes.process_orders(site)
    assert report.counted() == {"failed": 1}
    assert "Can't switch from state '1' using method 'schedule_updating'" in report.orders[0].message
    assert backend.state.accounts["a_one"].limits == {"cpu": 60}


def test_a_role_with_the_listed_rights_is_enough_for_orders_members_and_reports(
    waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    token = waldur.people.add_provider_user("custom", "CUSTOMER.SITE_AGENT")
    keys = {"membership_sync_backend": "slurm", "reporting_backend": "slurm", "waldur_api_token": token}
    site = site_of(waldur, tmp_path, MemoryBackend(), **keys)
    resource = made(waldur, site)
    assert passes.sync_members(site).error is None
    assert passes.PASSES[Mode.REPORT](site).error is None
    waldur.orders.place_terminate(resource)
    assert passes.process_orders(site).counted() == {"done": 1}
    refused = {
        entry.path.partition("?")[0].split("/")[-2]
        for entry in waldur.requests.entries()
        if entry.status == 403
    }
    # The object of 2024, and one listing of all teams, which a request for each project replaces.
    assert refused <= {"set_state", "project_permissions"}
