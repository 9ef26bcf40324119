# SPDX-License-Identifier: MIT
"""Several agents on one offering: two of ours, and one that approves and ends orders as the reference does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import requests

from agent.run import passes
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.orders.conftest import SiteFactory

ORDERS = 8
FOREIGN = "ref_"


@contextmanager
def another_agent(waldur: SimulatedWaldur) -> Iterator[None]:
    """Approve what is pending, name the resource and end the order, again and again, from what one listing said."""
    stopped = threading.Event()

    def work() -> None:
        session = requests.Session()
        session.headers["Authorization"] = f"Token {waldur.token()}"
        listing = f"{waldur.url}marketplace-orders/?offering_uuid={waldur.seed.offering_uuid}"
        while not stopped.is_set():
            for order in session.get(listing, timeout=600).json():
                place = f"{waldur.url}marketplace-orders/{order['uuid']}"
                if order["state"] == "pending-provider":
                    session.post(f"{place}/approve_by_provider/", timeout=600)
                elif order["state"] == "executing":
                    resource = (
                        f"{waldur.url}marketplace-provider-resources/{order['marketplace_resource_uuid']}"
                    )
                    name = {"backend_id": f"{FOREIGN}{order['uuid'][:6]}"}
                    session.post(f"{resource}/set_backend_id/", json=name, timeout=600)
                    session.post(f"{place}/set_state_done/", timeout=600)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def test_each_order_ends_done_and_what_is_named_by_us_is_there(
    waldur: SimulatedWaldur, in_memory: SiteFactory, tmp_path: Path
) -> None:
    one = in_memory()
    two = replace(one, state_dir=tmp_path / "two")
    orders = [
        waldur.place_create_order(waldur.seed.project_uuids[0], f"o{n}", limits={"cpu": 1}, slug=f"o{n}")
        for n in range(ORDERS)
    ]
    waldur.inject(Fault(kind=FaultKind.DELAY, latency_ms=15, times=None))
    with another_agent(waldur):
        for site in (one, two, one, two):
            passes.process_orders(site)
    for site in (one, two):
        report = passes.process_orders(site)
        assert not report.failed
    assert {waldur.order(uuid).state.value for uuid in orders} == {"done"}
    names = {waldur.resource(waldur.order(uuid).resource_uuid).backend_id for uuid in orders}
    made = {name for name in one.backend.state.accounts if name.startswith("a_")}
    assert {name for name in names if not name.startswith(FOREIGN)} <= made
