# SPDX-License-Identifier: MIT
"""The control API over HTTP and from other threads, the seed, and the server's own life."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import requests

from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OfferingUserState
from simulator.world.seed import ComponentSpec, Scenario
from tests.simulator.caller import Caller
from tests.simulator.conftest import StartWaldur


class Remote:
    def __init__(self, waldur: SimulatedWaldur) -> None:
        self._url = f"{waldur.root_url}/control/"

    def __call__(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = requests.request(method, self._url + path, json=body, timeout=600)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture
def control(waldur: SimulatedWaldur) -> Remote:
    return Remote(waldur)


def test_every_kind_of_order(waldur: SimulatedWaldur, control: Remote) -> None:
    seeded = control("GET", "seed")
    body = {
        "project_uuid": seeded["project_uuids"][0],
        "name": "odd",
        "slug": "a,b",
        "limits": {"cpu": None},
        "start_date": "2999-01-01",
    }
    order = control("GET", f"orders/{control('POST', 'orders', body)['order_uuid']}")
    assert (order["type"], order["state"], order["limits"]) == ("Create", "pending-provider", {"cpu": None})
    resource = order["resource_uuid"]
    assert control("GET", f"resources/{resource}")["slug"] == "a,b"
    for more in (
        {"type": "Update", "limits": {"cpu": -1}},
        {"type": "Update", "new_options": {"a": 1}},
        {"type": "Update", "plan_uuid": seeded["plan_uuids"][1]},
        {"type": "Terminate", "is_approved": False},
        {"type": "Restore"},
    ):
        uuid = control("POST", "orders", {"resource_uuid": resource, **more})["order_uuid"]
        assert waldur.order(uuid).type.value == more["type"]
    assert len(control("GET", "state")["orders"]) == 6


@pytest.mark.parametrize("limits", [{"cpu": True}, {"cpu": False}, [1], "many"], ids=str)
def test_limits_that_no_client_can_send_are_refused(control: Remote, limits: Any) -> None:
    seeded = control("GET", "seed")
    body = {"project_uuid": seeded["project_uuids"][0], "name": "odd", "limits": limits}
    assert "limit" in control("POST", "orders", body, status=400)["detail"]
    update = {"type": "Update", "resource_uuid": "0" * 32, "limits": limits}
    assert "limit" in control("POST", "orders", update, status=400)["detail"]
    assert control("GET", "state")["orders"] == []


@pytest.mark.parametrize("body", [[1], "x", 5])
def test_a_body_that_is_no_object_is_refused(control: Remote, body: Any) -> None:
    assert control("POST", "orders", body, status=400)["detail"] == "the body must be one JSON object"


def test_people(waldur: SimulatedWaldur, control: Remote) -> None:
    project = control("POST", "projects", {"name": "Fresh", "slug": "x'; y"})["project_uuid"]
    member = {"username": "new.one", "role": "PROJECT.ADMIN", "account": "newone"}
    control("POST", f"projects/{project}/members", member)
    account = waldur.people.account("new.one")
    assert account is not None
    assert (account.username, account.state) == ("newone", OfferingUserState.OK)
    changed = control("PUT", "accounts/new.one", {"account": "other", "state": "Creating"})
    assert (changed["username"], changed["state"]) == ("other", "Creating")
    control("DELETE", f"projects/{project}/members/new.one")
    control("DELETE", "accounts/new.one")
    assert waldur.people.account("new.one") is None
    assert waldur.store.projects[project].slug == "x'; y"


def test_flags_settings_and_time(waldur: SimulatedWaldur, control: Remote) -> None:
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one")
    resource = waldur.order(order).resource_uuid
    control("PATCH", f"resources/{resource}", {"paused": True, "state": "OK", "end_date": "2999-01-01"})
    changed = waldur.resource(resource)
    assert (changed.paused, changed.state.value, str(changed.end_date)) == (True, "OK", "2999-01-01")
    control("PATCH", "settings", {"processor_delay_s": 60, "page_size_max": 7})
    before = waldur.store.clock.now()
    control("POST", "clock", {"advance_s": 3600})
    assert (waldur.store.clock.now() - before).total_seconds() >= 3600
    Caller(waldur, "agent").move(order, "approve_by_provider", {})
    assert control("GET", "state")["background_jobs"] == 1
    assert control("POST", "background") == {"jobs": 1}


def test_rows_only_a_provider_makes(waldur: SimulatedWaldur, control: Remote) -> None:
    project = waldur.seed.project_uuids[0]
    resource = waldur.order(waldur.place_create_order(project, "one")).resource_uuid
    member = waldur.seed.members[project][0]
    control("POST", "shared-accounts", {"project_uuid": project, "username": "svc"})
    limit = {"resource_uuid": resource, "username": member, "component_type": "cpu", "limit": 1.5}
    control("POST", "user-limits", limit)
    control("POST", "policies", {"period": 4})
    control("POST", "denials", {"username": "agent", "permission": "ORDER.APPROVE"})
    state = control("GET", "state")
    assert [len(state[name]) for name in ("accounts", "user_limits", "policies")] == [1, 1, 1]
    order = waldur.orders.all()[0].uuid
    agent = Caller(waldur, "agent")
    assert agent.move(order, "approve_by_provider", {}) == 403
    control("DELETE", "denials", {"username": "agent", "permission": "ORDER.APPROVE"})
    assert agent.move(order, "approve_by_provider", {}) == 200


def test_faults_and_requests(waldur: SimulatedWaldur, agent: Caller, control: Remote) -> None:
    control("POST", "faults", {"kind": "answer", "status": 504, "path": "users"})
    assert agent.get("users/me/").status_code == 504
    assert control("GET", "faults")[0]["struck"] == 1
    control("DELETE", "faults")
    assert control("GET", "faults") == []
    agent.get("users/me/")
    seen = control("GET", "requests?pattern=GET%20users/*")
    assert (seen["total"], seen["counts"]) == (2, {"GET users/me/": 2})
    assert [entry["status"] for entry in seen["entries"]] == [504, 200]
    control("DELETE", "requests")
    assert control("GET", "requests")["total"] == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "nonsense", None, 404),
        ("POST", "orders", {}, 400),
        ("POST", "orders", {"type": "Borrow", "resource_uuid": "x"}, 400),
        ("PATCH", "nonsense/0", {}, 400),
        ("PATCH", "settings", {"nonsense": 1}, 400),
        ("GET", "orders/0", None, 400),
        ("POST", "faults", {"nonsense": 1}, 400),
    ],
)
def test_useless_requests(control: Remote, method: str, path: str, body: Any, status: int) -> None:
    assert "detail" in control(method, path, body, status)


def test_what_is_returned_is_a_copy(waldur: SimulatedWaldur) -> None:
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 1})
    copy = waldur.order(order)
    copy.limits["cpu"] = 99
    assert waldur.order(order).limits == {"cpu": 1}


def test_many_threads_at_once(waldur: SimulatedWaldur) -> None:
    """Python calls and requests from eight threads: no order is lost, none is seen half made."""
    project, failures = waldur.seed.project_uuids[0], []

    def work(number: int) -> None:
        agent = Caller(waldur, "agent")
        for index in range(5):
            order = waldur.place_create_order(project, f"t{number}-{index}")
            steps = [agent.move(order, step, {}) for step in ("approve_by_provider", "set_state_done")]
            if steps != [200, 200] or waldur.order(order).state.value != "done":
                failures.append((number, index, steps))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(waldur.orders.all()) == 40
    assert waldur.requests.count("POST *") == 80


def test_a_scenario_is_what_it_says(start: StartWaldur) -> None:
    scenario = Scenario(
        offering_name="Fir HPC",
        offering_uuid="5f1c8e0a-7b2d-4c19-a6e3-d0f4b7c82a11",
        components=(
            ComponentSpec(type="cpu", name="CPU", measured_unit="h"),
            ComponentSpec(type="fee", name="Fee", measured_unit="", billing_type="one", is_prepaid=True),
        ),
        plan_quotas={"cpu": 7},
        customers=2,
        projects_per_customer=3,
        members_per_project=4,
        unnamed_members=1,
        unnamed_state=OfferingUserState.PENDING_ACCOUNT_LINKING,
        allocations_per_project=2,
    )
    waldur = start("8.0", scenario=scenario)
    agent = Caller(waldur, "agent")
    offering = agent.read("marketplace-provider-offerings/5f1c8e0a7b2d4c19a6e3d0f4b7c82a11/")
    assert (offering["name"], [c["is_prepaid"] for c in offering["components"]]) == ("Fir HPC", [False, True])
    assert [p["quotas"]["cpu"] for p in offering["plans"]] == [7, 14]
    assert (len(waldur.seed.customer_uuids), len(waldur.seed.project_uuids)) == (2, 6)
    resources = agent.read("marketplace-provider-resources/", page_size=300)
    assert len({r["backend_id"] for r in resources}) == 12
    assert len({r["project_slug"] for r in resources}) == 6
    users = agent.read("marketplace-offering-users/", page_size=300)
    assert len({u["username"] for u in users if u["username"]}) == 18
    assert {u["state"] for u in users if not u["username"]} == {"Pending account linking"}
    team = agent.read(f"marketplace-provider-resources/{resources[0]['uuid']}/team/")
    assert [m["role"] for m in team] == ["PROJECT.MANAGER", *["PROJECT.MEMBER"] * 3]


def test_two_runs_of_a_scenario_are_the_same() -> None:
    one, two = (SimulatedWaldur("8.0", scenario=Scenario(allocations_per_project=1)).seed for _ in range(2))
    assert one == two


def test_a_server_that_went_down_comes_back_with_its_memory(start: StartWaldur) -> None:
    waldur = start("8.0")
    agent, url = Caller(waldur, "agent"), waldur.url
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one")
    waldur.stop()
    with pytest.raises(requests.exceptions.ConnectionError):
        agent.get("users/me/")
    waldur.start()
    assert waldur.url == url
    assert agent.order(order)["state"] == "pending-provider"


def test_a_port_that_is_taken(waldur: SimulatedWaldur) -> None:
    port = int(waldur.root_url.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        SimulatedWaldur("8.0", port=port).start()
