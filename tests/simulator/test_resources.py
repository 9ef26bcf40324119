# SPDX-License-Identifier: MIT
"""What a provider may write to a resource and to its offering."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import ResourceState
from simulator.world.seed import Scenario
from tests.simulator.caller import Caller
from tests.simulator.conftest import StartWaldur


@pytest.fixture
def waldur(start: StartWaldur) -> SimulatedWaldur:
    return start("8.0", scenario=Scenario(allocations_per_project=1))


def _post(waldur: SimulatedWaldur, agent: Caller, action: str, body: Any = None) -> Any:
    return agent.post(f"marketplace-provider-resources/{waldur.seed.resource_uuids[0]}/{action}/", body)


def _state(waldur: SimulatedWaldur) -> str:
    return waldur.resource(waldur.seed.resource_uuids[0]).state.value


def test_setting_a_backend_id_twice_is_no_change(waldur: SimulatedWaldur, agent: Caller) -> None:
    answers = [_post(waldur, agent, "set_backend_id", {"backend_id": "x"}).json() for _ in range(2)]
    assert answers[0].keys() == answers[1].keys() == {"status"}
    assert answers[0] != answers[1]
    assert _post(waldur, agent, "set_backend_id", {}).status_code == 400
    assert _post(waldur, agent, "set_backend_id", {"backend_id": "x" * 256}).status_code == 400


def test_backend_ids_may_have_to_be_unique(waldur: SimulatedWaldur, agent: Caller) -> None:
    taken = waldur.resource(waldur.seed.resource_uuids[1]).backend_id
    assert _post(waldur, agent, "set_backend_id", {"backend_id": taken}).status_code == 200
    waldur.site.change("offerings", waldur.seed.offering_uuid, backend_id_rules={"unique": True})
    assert _post(waldur, agent, "set_backend_id", {"backend_id": "free"}).status_code == 200
    assert _post(waldur, agent, "set_backend_id", {"backend_id": taken}).status_code == 400
    path = f"marketplace-provider-offerings/{waldur.seed.offering_uuid}/check_unique_backend_id/"
    body = {"check_all_offerings": True}
    assert agent.post(path, body | {"backend_id": taken}).json()["is_unique"] is False
    assert agent.post(path, body | {"backend_id": "new"}).json()["is_unique"] is True


@pytest.mark.parametrize(
    ("action", "name"), [("set_limits", "limits"), ("set_backend_metadata", "backend_metadata")]
)
def test_maps_are_replaced_whole(waldur: SimulatedWaldur, agent: Caller, action: str, name: str) -> None:
    for value in ({"cpu": 1, "odd": -2.5}, {"mem": 1}):
        assert _post(waldur, agent, action, {name: value}).status_code == 200
        assert agent.resource(waldur.seed.resource_uuids[0])[name] == value
    for body in ({}, {name: 1}, [1]):
        assert _post(waldur, agent, action, body).status_code == 400


def test_erred_and_healed(waldur: SimulatedWaldur, agent: Caller) -> None:
    _post(waldur, agent, "set_as_erred", {"error_message": "m", "error_traceback": "t"})
    _post(waldur, agent, "set_as_erred", {"error_message": ""})
    resource = agent.resource(waldur.seed.resource_uuids[0])
    assert (resource["state"], resource["error_message"], resource["error_traceback"]) == ("Erred", "m", "t")
    assert _post(waldur, agent, "set_state_ok").status_code == 200
    assert _post(waldur, agent, "set_state_ok").status_code == 409
    assert agent.resource(waldur.seed.resource_uuids[0])["error_message"] == "m"
    _post(waldur, agent, "set_as_erred", {})
    assert _post(waldur, agent, "set_as_ok").status_code == 200
    assert _post(waldur, agent, "set_as_ok").status_code == 200
    assert agent.resource(waldur.seed.resource_uuids[0])["error_message"] == ""


@pytest.mark.parametrize("state", list(ResourceState))
def test_set_as_ok_revives_all_but_the_dead(
    waldur: SimulatedWaldur, agent: Caller, state: ResourceState
) -> None:
    waldur.site.change("resources", waldur.seed.resource_uuids[0], state=state)
    answer = _post(waldur, agent, "set_as_ok")
    if state is ResourceState.TERMINATED:
        assert (answer.status_code, _state(waldur)) == (500, "Terminated")
    else:
        assert (answer.status_code, _state(waldur)) == (200, "OK")


def test_last_sync_and_reports(waldur: SimulatedWaldur, agent: Caller) -> None:
    before = agent.resource(waldur.seed.resource_uuids[0])["last_sync"]
    waldur.site.advance(5)
    assert _post(waldur, agent, "refresh_last_sync").content == b""
    report = [{"header": "h", "body": "b"}]
    assert _post(waldur, agent, "submit_report", {"report": report}).status_code == 200
    assert _post(waldur, agent, "submit_report", {"report": []}).status_code == 400
    after = agent.resource(waldur.seed.resource_uuids[0])
    assert (after["last_sync"] > before, after["report"]) == (True, report)


def test_an_unavailable_offering_takes_no_writes(waldur: SimulatedWaldur, agent: Caller) -> None:
    waldur.site.change("offerings", waldur.seed.offering_uuid, state="Unavailable")
    for action, body in (("refresh_last_sync", None), ("set_limits", {"limits": {}})):
        assert _post(waldur, agent, action, body).status_code == 400


def test_an_unfinished_order_shows_on_its_resource(waldur: SimulatedWaldur, agent: Caller) -> None:
    uuid = waldur.seed.resource_uuids[0]
    assert agent.resource(uuid)["order_in_progress"] is None
    order = waldur.orders.place_terminate(uuid)
    resource = agent.resource(uuid)
    assert (resource["order_in_progress"]["uuid"], resource["can_terminate"]) == (order, False)
    listed = agent.read("marketplace-provider-resources/")[0]
    assert not {"order_in_progress", "creation_order"} & listed.keys()


_COMPONENT = {"type": "disk", "name": "Disk", "billing_type": "limit"}


def _components(waldur: SimulatedWaldur, agent: Caller) -> dict[str, dict[str, Any]]:
    path = f"marketplace-provider-offerings/{waldur.seed.offering_uuid}/"
    return {c["type"]: c for c in agent.read(path, field="components")["components"]}


def test_components_are_made_and_changed(waldur: SimulatedWaldur, agent: Caller) -> None:
    base = f"marketplace-provider-offerings/{waldur.seed.offering_uuid}"
    assert agent.post(f"{base}/create_offering_component/", _COMPONENT).content == b""
    assert agent.post(f"{base}/create_offering_component/", _COMPONENT).status_code == 400
    disk = _components(waldur, agent)["disk"]["uuid"]
    assert agent.post(f"{base}/update_offering_component/", {"uuid": disk, "max_value": 9}).status_code == 200
    assert _components(waldur, agent)["disk"]["max_value"] == 9
    unknown = agent.post(f"{base}/update_offering_component/", {"uuid": "0" * 32})
    assert (unknown.status_code, unknown.content) == (404, b"")
    assert list(agent.post(f"{base}/update_offering_component/", {}).json()) == ["details"]
    boolean = {"uuid": disk, "is_boolean": True}
    agent.post(f"{base}/update_offering_component/", boolean)
    assert _components(waldur, agent)["disk"]["max_value"] == 1


@pytest.mark.parametrize("body", [{}, {"type": "a", "name": "b"}, _COMPONENT | {"billing_type": "barter"}])
def test_half_a_component(waldur: SimulatedWaldur, agent: Caller, body: Any) -> None:
    base = f"marketplace-provider-offerings/{waldur.seed.offering_uuid}"
    assert agent.post(f"{base}/create_offering_component/", body).status_code == 400


@pytest.mark.parametrize("name", ["b d", "", "a" * 51, "cpu,mem", "ö"])
def test_a_component_type_is_letters_digits_and_a_few_signs(
    waldur: SimulatedWaldur, agent: Caller, name: str
) -> None:
    base = f"marketplace-provider-offerings/{waldur.seed.offering_uuid}"
    path = f"{base}/create_offering_component/"
    assert "type" in agent.post(path, _COMPONENT | {"type": name}).json()
    assert agent.post(path, _COMPONENT | {"type": "gres/gpu:a100_40-x"}).status_code == 201


def test_components_stay_while_there_are_resources(start: StartWaldur, waldur: SimulatedWaldur) -> None:
    for server, status in ((waldur, 400), (start("8.0"), 200)):
        agent = Caller(server, "agent")
        gpu = _components(server, agent)["gpu"]["uuid"]
        base = f"marketplace-provider-offerings/{server.seed.offering_uuid}"
        answer = agent.post(f"{base}/remove_offering_component/", {"uuid": gpu})
        assert answer.status_code == status


def test_usernames_for_all_offerings(waldur: SimulatedWaldur, agent: Caller) -> None:
    member = waldur.seed.members[waldur.seed.project_uuids[0]][0]
    account = waldur.people.account(member)
    assert account is not None
    path = f"marketplace-service-providers/{waldur.seed.provider_uuid}/set_offerings_username/"
    body = {"user_uuid": account.user_uuid, "username": "renamed"}
    assert agent.post(path, body).status_code == 201
    assert agent.post(path, body | {"user_uuid": "0" * 32}).status_code == 400
    renamed = waldur.people.account(member)
    assert renamed is not None
    assert renamed.username == "renamed"
