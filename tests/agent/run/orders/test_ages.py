# SPDX-License-Identifier: MIT
"""The life of an allocation against servers of three ages: what a server lacks is done without."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.run import passes
from agent.run.site import Site, client
from backends.testing.memory import MemoryBackend
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

LACKING = {
    "2024": {
        "set_limits",
        "list_project_service_accounts",
        "list_course_accounts",
        "check_unique_backend_id",
    },
    "8.0": set(),
    "8.1": set(),
}


@pytest.mark.parametrize("age", LACKING)
def test_the_life_of_an_allocation(age: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    components = {
        "cpu": {"measured_unit": "h", "accounting_type": "limit", "label": "CPU", "unit_factor": 60},
        "gpu": {"measured_unit": "h", "accounting_type": "usage", "label": "GPU", "limit": 5,
                "target_components": {"gres/gpu": {"factor": 60}}},
    }  # fmt: skip
    with SimulatedWaldur(age, scenario=Scenario(members_per_project=2)) as waldur:
        path = configuration(
            waldur, tmp_path, backend={"check_backend_id_uniqueness": True}, components=components
        )
        offering = settings_of(path).offerings[0]
        backend = MemoryBackend()
        site = Site(offering, client(offering, Mode.ORDER_PROCESS), backend, tmp_path)
        created = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10})
        resource = waldur.order(created).resource_uuid
        assert passes.process_orders(site).counted() == {"done": 1}
        account = waldur.resource(resource).backend_id
        assert backend.state.accounts[account].limits == {"cpu": 600, "gres/gpu": 300}
        assert len(backend.state.users_of(account)) == 2
        assert waldur.resource(resource).limits == ({"cpu": 10} if age == "2024" else {"cpu": 10, "gpu": 5})
        waldur.orders.place_update(resource, {"cpu": 20})
        assert passes.process_orders(site).counted() == {"done": 1}
        assert backend.state.accounts[account].limits["cpu"] == 1200
        waldur.orders.place_terminate(resource)
        assert passes.process_orders(site).counted() == {"done": 1}
        assert account not in backend.state.accounts
        assert waldur.resource(resource).state.value == "Terminated"
    for feature in LACKING[age]:
        assert caplog.text.count(f"has no {feature} (404): done without it") == 1
    assert caplog.text.count("done without it") == len(LACKING[age])
