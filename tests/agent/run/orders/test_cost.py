# SPDX-License-Identifier: MIT
"""What passes cost on the real SLURM, counted: reads, writes, requests. Seconds are measured in benchmarks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.run import passes
from agent.state import ledger
from agent.waldur.listing import PAGE_SIZE
from rig.site import configuration, site_of
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

pytestmark = [pytest.mark.cost, pytest.mark.every_slurm(one_of=1)]

ORDERS = 10
MEMBERS = 5
# The tree, the default accounts and the TRES; once more for what was made.
READS_AT_MOST = 4
WRITES_PER_ORDER = 3
# A team for each project; is the name free, approved, claimed, done. The rest is shared.
REQUESTS_PER_ORDER = 5
SHARED_REQUESTS = 10


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    scenario = Scenario(customers=2, projects_per_customer=ORDERS // 2, members_per_project=MEMBERS)
    with SimulatedWaldur(scenario=scenario) as server:
        yield server


@pytest.mark.by_commands
def test_create_orders_share_their_reads_and_writes(
    slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    """Each order in a project of its own: the most that a batch of this size can cost."""
    for project in waldur.seed.project_uuids:
        waldur.place_create_order(project, f"order in {project[:4]}", limits={"cpu": 10, "mem": 2})
    report = passes.process_orders(site_of(configuration(waldur, tmp_path)))
    assert report.counted() == {"done": ORDERS}
    shared_writes = len(waldur.seed.customer_uuids) + 1
    assert report.effort.commands["read"] <= READS_AT_MOST + slurm.refused_reads
    assert report.effort.commands["write"] <= WRITES_PER_ORDER * ORDERS + shared_writes
    assert report.effort.requests.total() <= REQUESTS_PER_ORDER * ORDERS + SHARED_REQUESTS


@pytest.mark.by_commands
def test_a_new_process_knows_how_this_release_shows_its_tree(
    slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    """The first on a host has a read refused where it cannot know it yet."""
    path = configuration(waldur, tmp_path)
    for name, refused in (("one", slurm.refused_reads), ("two", 0)):
        waldur.place_create_order(waldur.seed.project_uuids[0], name, limits={"cpu": 10})
        report = passes.process_orders(site_of(path))
        assert report.counted() == {"done": 1}
        assert report.effort.commands["read"] == READS_AT_MOST + refused


def test_of_a_large_offering_only_the_people_of_the_order_are_read(
    slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    """All pages would be more requests: the offering named so many accounts when it was last looked at."""
    site = site_of(configuration(waldur, tmp_path))
    names = frozenset({"root", *(f"a{number}" for number in range(MEMBERS * PAGE_SIZE))})
    ledger.write_named(site.state_dir, site.backend.cluster, site.offering, names, None)
    waldur.place_create_order(waldur.seed.project_uuids[0], "new", limits={"cpu": 10})
    report = passes.process_orders(site)
    assert report.counted() == {"done": 1}
    (order,) = report.orders
    assert len(site.backend.observe().users_of(order.account)) == MEMBERS
    assert report.effort.requests["GET /api/marketplace-offering-users/"] == MEMBERS


def test_a_pass_with_nothing_to_do_asks_for_the_orders_and_nothing_else(
    waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    path = configuration(waldur, tmp_path)
    passes.process_orders(site_of(path))
    waldur.requests.reset()
    report = passes.process_orders(site_of(path))
    assert (report.effort.commands.total(), waldur.request_counts()) == (0, {"GET marketplace-orders/": 1})
    assert report.effort.requests == {"GET /api/marketplace-orders/": 1}


def test_a_pass_with_nothing_to_do_opens_the_state_file_twice(
    waldur: SimulatedWaldur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = configuration(waldur, tmp_path)
    passes.process_orders(site_of(path))
    opened = []
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **options: opened.append(args) or connect(*args, **options)
    )
    passes.process_orders(site_of(path))
    assert len(opened) == 2, "to connect to the cluster, and in the pass"
