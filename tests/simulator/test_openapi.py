# SPDX-License-Identifier: MIT
"""Judge 2: what an 8.0 server answers against the published description of 8.0.5."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.simulator import schema
from tests.simulator.caller import Caller
from tests.simulator.conftest import StartWaldur
from tests.simulator.facts import openapi_file

pytestmark = pytest.mark.skipif(
    not openapi_file().exists(), reason=f"no {openapi_file()}: set WALDUR_FACTS_DIR"
)


class World:
    """A server with one of everything, and the paths of what is in it."""

    def __init__(self, waldur: SimulatedWaldur) -> None:
        self.waldur, seeded = waldur, waldur.seed
        self.agent = Caller(waldur, "agent", user_agent="waldur-site-agent-judge/1")
        project, resource = seeded.project_uuids[0], seeded.resource_uuids[0]
        member = seeded.members[project][0]
        waldur.people.add_key(member, "ssh-ed25519 AAAA")
        waldur.site.add_shared_account(project, "svc")
        waldur.site.add_shared_account(project, "course", kind="course")
        waldur.site.add_user_limit(resource, member, component_type="cpu", limit=5)
        self.names = {
            "offering": seeded.offering_uuid,
            "project": project,
            "plan": seeded.plan_uuids[0],
            "provider": seeded.provider_uuid,
            "resource": resource,
            "pending": waldur.place_create_order(project, "pending", limits={"cpu": 1}),
            "second": waldur.place_create_order(project, "second"),
            "third": waldur.place_create_order(project, "third"),
            "change": waldur.orders.place_update(resource, {"cpu": 7}),
            "user": waldur.people.account(seeded.members[project][2]).uuid,  # type: ignore[union-attr]
            "policy": waldur.site.add_policy(),
        }

    def send(self, method: str, path: str, body: Any = None) -> Any:
        return self.agent.send(method, path.format(**self.names), _filled(body, self.names))


def _filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        return value.format(**names)
    if isinstance(value, dict):
        return {key: _filled(item, names) for key, item in value.items()}
    return [_filled(item, names) for item in value] if isinstance(value, list) else value


_NOW = datetime.now(UTC).isoformat()
_IDENTITY = {"offering": "{offering}", "name": "agent-1", "version": "1", "last_restarted": _NOW}
_USAGE = {"resource": "{resource}", "usages": [{"type": "cpu", "amount": "1.50"}]}
_READS = (
    "users/me/",
    "configuration/",
    "marketplace-orders/",
    "marketplace-orders/{pending}/",
    "marketplace-orders/{change}/",
    "marketplace-provider-resources/",
    "marketplace-provider-resources/{resource}/",
    "marketplace-provider-resources/{resource}/team/",
    "marketplace-resources/",
    "marketplace-provider-offerings/{offering}/",
    "marketplace-provider-offerings/{offering}/user-attribute-config/",
    "marketplace-provider-offerings/{offering}/list_project_service_accounts/",
    "marketplace-provider-offerings/{offering}/list_course_accounts/",
    "marketplace-plans/{plan}/",
    "marketplace-service-providers/",
    "marketplace-service-providers/{provider}/keys/",
    "marketplace-service-providers/{provider}/projects/",
    "marketplace-offering-users/",
    "marketplace-offering-users/{user}/",
    "marketplace-slurm-periodic-usage-policies/",
    "marketplace-slurm-periodic-usage-policies/{policy}/",
    "component-user-usage-limits/",
    "projects/",
    "event-subscriptions/",
    "event-subscription-queues/",
    "marketplace-robot-accounts/",
    "marketplace-component-usages/",
    "marketplace-component-user-usages/",
    "marketplace-site-agent-identities/",
    "marketplace-site-agent-services/",
    "marketplace-site-agent-processors/",
    "backend-resource-requests/",
    "backend-resources/",
)
_WRITES: tuple[tuple[str, Any, int], ...] = (
    ("marketplace-orders/{pending}/approve_by_provider/", {}, 200),
    ("marketplace-orders/{pending}/set_backend_id/", {"backend_id": "x"}, 200),
    ("marketplace-orders/{pending}/set_state_done/", None, 200),
    ("marketplace-orders/{second}/reject_by_provider/", {"provider_rejection_comment": "no"}, 200),
    ("marketplace-orders/{third}/set_state_executing/", None, 200),
    ("marketplace-orders/{third}/set_state_erred/", {"error_message": "m", "error_traceback": "t"}, 200),
    ("marketplace-provider-resources/{resource}/set_backend_id/", {"backend_id": "y"}, 200),
    ("marketplace-provider-resources/{resource}/set_backend_metadata/", {"backend_metadata": {}}, 200),
    ("marketplace-provider-resources/{resource}/set_limits/", {"limits": {"cpu": 2}}, 200),
    ("marketplace-provider-resources/{resource}/refresh_last_sync/", None, 200),
    ("marketplace-provider-resources/{resource}/set_as_erred/", {"error_message": "m"}, 200),
    ("marketplace-provider-resources/{resource}/set_as_ok/", None, 200),
    (
        "marketplace-provider-resources/{resource}/submit_report/",
        {"report": [{"header": "h", "body": "b"}]},
        200,
    ),
    ("marketplace-provider-offerings/{offering}/check_unique_backend_id/", {"backend_id": "y"}, 200),
    (
        "marketplace-provider-offerings/{offering}/create_offering_component/",
        {"type": "disk", "name": "Disk", "billing_type": "usage"},
        201,
    ),
    ("marketplace-offering-users/{user}/request_deletion/", None, 200),
    ("marketplace-offering-users/{user}/set_deleting/", None, 200),
    ("marketplace-component-usages/set_usage/", _USAGE, 201),
    (
        "marketplace-slurm-periodic-usage-policies/{policy}/report-command-result/",
        {"resource_uuid": "{resource}", "success": True},
        200,
    ),
    ("marketplace-site-agent-identities/", _IDENTITY, 201),
    ("event-subscriptions/", {"observable_objects": [{"object_type": "order"}]}, 201),
    ("backend-resource-requests/", {"offering": "{offering}"}, 201),
    ("backend-resources/", {"name": "old", "project": "{project}", "offering": "{offering}"}, 201),
)


_SCENARIO = Scenario(members_per_project=3, allocations_per_project=1, plan_quotas={"cpu": 10})


@pytest.fixture
def world(start: StartWaldur) -> World:
    return World(start("8.0", scenario=_SCENARIO))


@pytest.fixture(scope="module")
def reported() -> Iterator[World]:
    """A world that has been reported on in every way, for reading only."""
    with SimulatedWaldur("8.0", scenario=_SCENARIO) as waldur:
        world = World(waldur)
        _report_everything(world)
        yield world


def _problems_of(method: str, path: str, answer: Any) -> list[str]:
    """What is wrong with an answer. The description leaves empty bodies out, and calls some objects free."""
    wanted = schema.answer_schema(method, f"/api/{path}", answer.status_code)
    if wanted is None or not answer.content:
        return []
    return schema.problems(wanted, answer.json())


@pytest.mark.parametrize("path", _READS)
def test_read(reported: World, path: str) -> None:
    answer = reported.send("GET", path)
    assert answer.status_code == 200
    assert _problems_of("GET", path, answer) == []


@pytest.mark.parametrize(("path", "body", "status"), _WRITES)
def test_write(world: World, path: str, body: Any, status: int) -> None:
    for earlier, earlier_body, _ in _WRITES[: [w[0] for w in _WRITES].index(path)]:
        if earlier.rsplit("/", 2)[0] == path.rsplit("/", 2)[0]:
            world.send("POST", earlier, earlier_body)
    answer = world.send("POST", path, body)
    assert answer.status_code == status, answer.text
    assert _problems_of("POST", path, answer) == []


def _report_everything(world: World) -> None:
    world.send("POST", "marketplace-component-usages/set_usage/", _USAGE)
    usage = world.agent.read("marketplace-component-usages/")[0]["uuid"]
    world.agent.post(f"marketplace-component-usages/{usage}/set_user_usage/", {"username": "a", "usage": 1})
    identity = world.send("POST", "marketplace-site-agent-identities/", _IDENTITY).json()["uuid"]
    base = f"marketplace-site-agent-identities/{identity}"
    service = world.agent.post(f"{base}/register_service/", {"name": "s", "mode": "m"}).json()["uuid"]
    world.agent.post(
        f"marketplace-site-agent-services/{service}/register_processor/",
        {"name": "p", "backend_type": "slurm"},
    )
    subscription = world.agent.post(
        f"{base}/register_event_subscription/", {"observable_object_type": "order"}
    ).json()["uuid"]
    world.agent.post(
        f"event-subscriptions/{subscription}/create_queue/",
        {"offering_uuid": world.names["offering"], "object_type": "order"},
    )


# Fields of the description that no answer of ours carries, because the object behind them is not there.
_LEFT_OUT = {
    "OrderDetails": set(),
    "Resource": {
        "parent_offering_uuid",
        "parent_offering_name",
        "parent_offering_slug",
        "parent_uuid",
        "parent_name",
        "service_settings_uuid",
    },
    "ProviderOfferingDetails": set(),
}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("OrderDetails", "marketplace-orders/{pending}/"),
        ("Resource", "marketplace-provider-resources/{resource}/"),
        ("ProviderOfferingDetails", "marketplace-provider-offerings/{offering}/"),
    ],
)
def test_described_fields_are_there(reported: World, name: str, path: str) -> None:
    assert schema.undescribed(name, reported.send("GET", path).json()) == _LEFT_OUT[name]
