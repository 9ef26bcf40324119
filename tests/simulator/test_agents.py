# SPDX-License-Identifier: MIT
"""What the server remembers about the agent itself: identity, heartbeat, subscriptions, policies."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.server.waldur import SimulatedWaldur
from tests.simulator.caller import Caller
from tests.simulator.conftest import StartWaldur

_AREA = "marketplace-site-agent-identities"


@pytest.fixture
def waldur(start: StartWaldur) -> SimulatedWaldur:
    return start("8.1")


def _body(waldur: SimulatedWaldur, **more: Any) -> dict[str, Any]:
    return {"offering": waldur.seed.offering_uuid, "name": "agent-1", "version": "1", **more}


@pytest.fixture
def identity(waldur: SimulatedWaldur, agent: Caller) -> str:
    uuid: str = agent.post(f"{_AREA}/", _body(waldur)).json()["uuid"]
    return uuid


def test_an_identity_is_replaced_not_patched(waldur: SimulatedWaldur, agent: Caller, identity: str) -> None:
    path = f"{_AREA}/{identity}/"
    assert agent.send("PUT", path, _body(waldur, version="2")).json()["version"] == "2"
    assert agent.send("PATCH", path, {"version": "3"}).status_code == 405
    assert [i["uuid"] for i in agent.read(f"{_AREA}/", name="agent-1")] == [identity]
    assert agent.read(f"{_AREA}/", name="agent-2") == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"offering": "0" * 32}, "offering"),
        ({"name": ""}, "name"),
        ({"name": "x" * 151}, "name"),
    ],
)
def test_refused_identities(
    waldur: SimulatedWaldur, agent: Caller, change: dict[str, Any], field: str
) -> None:
    answer = agent.post(f"{_AREA}/", _body(waldur, **change))
    assert (answer.status_code, list(answer.json())) == (400, [field])


def test_services_and_processors_are_found_again(
    waldur: SimulatedWaldur, agent: Caller, identity: str
) -> None:
    service = {"name": "orders", "mode": "order_process"}
    answers = [agent.post(f"{_AREA}/{identity}/register_service/", service) for _ in range(2)]
    assert [a.status_code for a in answers] == [201, 200]
    path = f"marketplace-site-agent-services/{answers[0].json()['uuid']}"
    processor = {"name": "p", "backend_type": "slurm", "backend_version": "22.05"}
    answers = [agent.post(f"{path}/register_processor/", processor) for _ in range(2)]
    assert [a.status_code for a in answers] == [201, 200]
    assert answers[1].json()["last_run"] > answers[0].json()["last_run"]
    assert agent.read("marketplace-site-agent-services/")[0]["state"] == "Active"
    waldur.site.advance(601)
    assert agent.read("marketplace-site-agent-services/")[0]["state"] == "Idle"
    statistics = agent.post(f"{path}/set_statistics/", {"statistics": {"orders": 3}}).json()
    assert statistics["statistics"] == {"orders": 3}


def test_one_subscription_per_user_and_type(waldur: SimulatedWaldur, agent: Caller, identity: str) -> None:
    path = f"{_AREA}/{identity}/register_event_subscription/"
    answers = [agent.post(path, {"observable_object_type": "order"}) for _ in range(2)]
    assert [a.status_code for a in answers] == [201, 200]
    assert agent.post(path, {"observable_object_type": "weather"}).status_code == 400
    uuid = answers[0].json()["uuid"]
    queue = {"offering_uuid": waldur.seed.offering_uuid, "object_type": "order"}
    queues = [agent.post(f"event-subscriptions/{uuid}/create_queue/", queue) for _ in range(2)]
    assert [q.status_code for q in queues] == [201, 200]
    name = f"subscription_{uuid}_offering_{waldur.seed.offering_uuid}_order"
    assert queues[0].json()["queue_name"] == name
    assert Caller(waldur, "consumer").get(f"event-subscriptions/{uuid}/").status_code == 404
    assert agent.send("DELETE", f"event-subscriptions/{uuid}/").status_code == 204
    assert agent.read("event-subscription-queues/") == []


def test_the_unified_queue_has_one_owner(waldur: SimulatedWaldur, agent: Caller, identity: str) -> None:
    path = f"{_AREA}/{identity}/register_queue/"
    first = agent.post(path, {"object_types": ["order"]})
    again = agent.post(path, {})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["observable_object_types"] == ["order"]
    assert agent.post(path, {"object_types": []}).json()["observable_object_types"] == []
    assert Caller(waldur, "agent-offering-manager").post(path, {}).status_code == 409


def test_logs(waldur: SimulatedWaldur, agent: Caller, identity: str) -> None:
    line = {"agent_identity_uuid": identity, "timestamp": 1.0, "level": "INFO", "message": "m", "module": "x"}
    assert agent.post("marketplace-site-agent-logs/", [line, line]).status_code == 201
    assert agent.post("marketplace-site-agent-logs/", [line, {}]).status_code == 400
    assert agent.post("marketplace-site-agent-logs/", line).status_code == 400
    assert [row.message for row in waldur.store.logs] == ["m", "m"]


def test_integration_statuses_need_the_right_user_agent(waldur: SimulatedWaldur) -> None:
    offering = waldur.seed.offering_uuid
    path = "marketplace-integration-statuses/"
    named = Caller(waldur, "agent", user_agent="waldur-site-agent-orders/1")
    Caller(waldur, "agent").get("marketplace-orders/", offering_uuid=offering)
    named.get("marketplace-orders/")
    Caller(waldur, "consumer", user_agent="waldur-site-agent").get(
        "marketplace-orders/", offering_uuid=offering
    )
    assert named.read(path) == []
    named.get("marketplace-orders/", offering_uuid=offering)
    named.get("marketplace-provider-resources/", offering_uuid=offering)
    statuses = {row["agent_type"]: row["status"] for row in named.read(path, offering_uuid=offering)}
    assert statuses == dict.fromkeys(
        ("Order processing", "Event processing", "Usage reporting", "Resource sync"), "Active"
    )
    waldur.site.advance(3601)
    assert {row["status"] for row in named.read(path)} == {"Disconnected"}


def test_command_results(start: StartWaldur) -> None:
    waldur = start("8.0")
    agent = Caller(waldur, "agent")
    policy = waldur.site.add_policy(limit_type="GrpTRES", period=2)
    path = f"marketplace-slurm-periodic-usage-policies/{policy}/"
    body = agent.read(path)
    assert (body["limit_type"], body["period_name"], body["qos_strategy"]) == (
        "GrpTRES",
        "Monthly",
        "threshold",
    )
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one")
    result = {"resource_uuid": waldur.order(order).resource_uuid, "success": False, "error_message": "no"}
    answer = agent.post(f"{path}report-command-result/", result)
    assert (answer.status_code, list(answer.json())) == (200, ["detail"])
    unknown = agent.post(f"{path}report-command-result/", result | {"resource_uuid": "0" * 32})
    assert (unknown.status_code, list(unknown.json())) == (400, ["resource_uuid"])
    assert [(r.success, r.error_message) for r in waldur.store.command_results] == [(False, "no")]
