# SPDX-License-Identifier: MIT
"""Judge 1: the official SDK 8.1.3 drives an 8.1 server through every call an agent makes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from simulator.world.records import OfferingUserState
from simulator.world.seed import Scenario
from tests.simulator.conftest import StartWaldur
from tests.simulator.sdk import Sdk, light_models

_NOW = datetime.now(UTC).isoformat()


@pytest.fixture(scope="module", autouse=True)
def _models() -> Iterator[None]:
    with light_models():
        yield


@pytest.fixture
def world(start: StartWaldur) -> SimpleNamespace:
    scenario = Scenario(members_per_project=3, unnamed_members=1, allocations_per_project=1)
    waldur = start("8.1", scenario=scenario)
    return SimpleNamespace(
        waldur=waldur,
        sdk=Sdk(waldur),
        offering=waldur.seed.offering_uuid,
        project=waldur.seed.project_uuids[0],
        resource=waldur.seed.resource_uuids[0],
    )


def test_session(world: SimpleNamespace) -> None:
    me = world.sdk("users/me_retrieve")
    assert me.username == "agent"
    assert me.permissions[0].role_name == "CUSTOMER.OWNER"
    assert Sdk(world.waldur, "staff")("version/retrieve").version == "8.1.2"


def test_offering(world: SimpleNamespace) -> None:
    sdk, offering = world.sdk, world.offering
    details = sdk("marketplace_provider_offerings/retrieve", offering)
    assert [c.type_ for c in details.components] == ["cpu", "mem", "gpu"]
    assert details.plugin_options.service_provider_can_create_offering_user is True
    config = sdk("marketplace_provider_offerings/user_attribute_config_retrieve", offering)
    assert config.exposed_fields == ["username", "full_name", "email"]
    unique = sdk(
        "marketplace_provider_offerings/check_unique_backend_id", offering, body={"backend_id": "free"}
    )
    assert unique.is_unique is True
    plan = sdk("marketplace_plans/retrieve", world.waldur.seed.plan_uuids[0])
    assert plan.quotas.to_dict() == {"cpu": 0, "mem": 0, "gpu": 0}


def test_offering_components(world: SimpleNamespace) -> None:
    sdk, offering, area = world.sdk, world.offering, "marketplace_provider_offerings"
    new = {"type": "disk", "name": "Disk", "billing_type": "limit", "measured_unit": "GB"}
    assert sdk.detailed(f"{area}/create_offering_component", offering, body=new).status_code == 201
    disk = sdk(f"{area}/retrieve", offering).components[-1]
    change = {**new, "uuid": disk.uuid.hex, "name": "Storage"}
    assert sdk.detailed(f"{area}/update_offering_component", offering, body=change).status_code == 200
    assert sdk(f"{area}/retrieve", offering).components[-1].name == "Storage"


def test_shared_accounts(world: SimpleNamespace) -> None:
    world.waldur.site.add_shared_account(world.project, "svc-one")
    world.waldur.site.add_shared_account(world.project, "course-one", kind="course")
    area = "marketplace_provider_offerings"
    services = world.sdk.all(f"{area}/list_project_service_accounts_list", world.offering)
    courses = world.sdk.all(f"{area}/list_course_accounts_list", world.offering)
    assert [(a.username, str(a.state)) for a in services] == [("svc-one", "OK")]
    assert [a.username for a in courses] == ["course-one"]


def test_service_provider(world: SimpleNamespace) -> None:
    sdk, area = world.sdk, "marketplace_service_providers"
    customer = world.waldur.store.offerings[world.offering].customer_uuid
    provider = sdk(f"{area}/list", customer_uuid=customer)[0].uuid.hex
    assert provider == world.waldur.seed.provider_uuid
    member = world.waldur.seed.members[world.project][0]
    world.waldur.people.add_key(member, "ssh-ed25519 AAAA")
    assert sdk.all(f"{area}/keys_list", provider)[0].public_key == "ssh-ed25519 AAAA"
    projects = sdk.all(f"{area}/projects_list", provider, query=world.project)
    assert [p.uuid.hex for p in projects] == [world.project]
    for uuid in world.waldur.seed.project_uuids:
        # This SDK cannot read a project without an end date here; the recorded server prints null.
        world.waldur.site.change("projects", uuid, end_date="2099-12-31")
    grants = sdk.all(f"{area}/project_permissions_list", provider)
    assert len(grants) == 6
    user = world.waldur.people.account(member).user_uuid
    names = {"user_uuid": user, "username": "renamed"}
    assert sdk.detailed(f"{area}/set_offerings_username", provider, body=names).status_code == 201
    assert world.waldur.people.account(member).username == "renamed"


def test_project_groups(world: SimpleNamespace) -> None:
    world.waldur.site.add_project_group(world.project, "physics", 20001)
    world.waldur.site.add_project_group(world.waldur.people.add_project("other"), "zoo", None)
    listed = "marketplace_service_provider_project_groups/list"
    found = {group.name: group for group in world.sdk(listed, provider_offering_uuid=world.offering)}
    assert (found["physics"].gid, found["zoo"].gid) == (20001, None)
    assert (found["physics"].in_use, found["zoo"].in_use) == (True, False)
    assert [offering.uuid for offering in found["physics"].offerings] == [world.offering]
    # One of the three members has no name.
    assert len(found["physics"].members) == 2
    assert Sdk(world.waldur, "consumer")(listed) == []


def test_order_life(world: SimpleNamespace) -> None:
    sdk, waldur = world.sdk, world.waldur
    uuid = waldur.place_create_order(world.project, "fresh", limits={"cpu": 5})
    listed = sdk.all(
        "marketplace_orders/list", offering_uuid=world.offering, state=[_state("pending-provider")]
    )
    assert [o.uuid.hex for o in listed] == [uuid]
    assert listed[0].limits.to_dict() == {"cpu": 5}
    sdk("marketplace_orders/approve_by_provider", uuid, body={})
    order = sdk("marketplace_orders/retrieve", uuid)
    assert str(order.state) == "executing"
    sdk("marketplace_orders/set_backend_id", uuid, body={"backend_id": "job-1"})
    assert sdk.detailed("marketplace_orders/set_state_done", uuid).status_code == 200
    done = sdk("marketplace_orders/retrieve", uuid)
    assert (str(done.state), done.backend_id) == ("done", "job-1")


def test_order_failures(world: SimpleNamespace) -> None:
    sdk, waldur = world.sdk, world.waldur
    rejected = waldur.place_create_order(world.project, "unwanted")
    body = {"provider_rejection_comment": "no room"}
    assert sdk.detailed("marketplace_orders/reject_by_provider", rejected, body=body).status_code == 200
    erred = waldur.place_create_order(world.project, "broken")
    sdk.detailed("marketplace_orders/set_state_executing", erred)
    texts = {"error_message": "boom", "error_traceback": "trace"}
    assert sdk.detailed("marketplace_orders/set_state_erred", erred, body=texts).status_code == 200
    states = {o.uuid.hex: str(o.state) for o in sdk.all("marketplace_orders/list")}
    assert (states[rejected], states[erred]) == ("rejected", "erred")


def _state(word: str) -> Any:
    from waldur_api_client.models.order_state import OrderState

    return OrderState(word)


def test_resources(world: SimpleNamespace) -> None:
    sdk, area = world.sdk, "marketplace_provider_resources"
    assert len(sdk.all(f"{area}/list", offering_uuid=world.offering)) == 2
    resource = sdk(f"{area}/retrieve", world.resource)
    assert (str(resource.state), resource.limits.to_dict()["cpu"]) == ("OK", 1000)
    team = sdk(f"{area}/team_list", world.resource)
    assert {m.role for m in team} == {"PROJECT.MANAGER", "PROJECT.MEMBER"}
    assert [m.offering_user_username for m in team].count("") == 1
    own = Sdk(world.waldur, "consumer").all("marketplace_resources/list")
    assert {r.uuid.hex for r in own} == set(world.waldur.seed.resource_uuids)


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("set_backend_id", {"backend_id": "hpc_other"}),
        ("set_limits", {"limits": {"cpu": 3}}),
        ("set_backend_metadata", {"backend_metadata": {"node": "login1"}}),
        ("set_endpoints", {"endpoints": [{"name": "ssh", "url": "ssh://login1.example.org"}]}),
        ("submit_report", {"report": [{"header": "h", "body": "b"}]}),
        ("set_as_erred", {"error_message": "m", "error_traceback": "t"}),
        ("set_as_ok", None),
        ("refresh_last_sync", None),
    ],
)
def test_resource_writes(world: SimpleNamespace, action: str, body: dict[str, Any] | None) -> None:
    answer = world.sdk.detailed(f"marketplace_provider_resources/{action}", world.resource, body=body)
    assert answer.status_code == 200
    world.sdk("marketplace_provider_resources/retrieve", world.resource)


def test_membership_statuses_need_the_option(world: SimpleNamespace) -> None:
    offering = world.waldur.store.offerings[world.offering]
    offering.plugin_options["enable_membership_sync_status"] = True
    status = {
        "username": "aarvo1",
        "scope_type": "resource",
        "role_name": "PROJECT.MEMBER",
        "state": "synced",
    }
    answer = world.sdk.detailed(
        "marketplace_provider_resources/set_membership_sync_statuses",
        world.resource,
        body={"statuses": [status]},
    )
    assert answer.status_code == 200


def test_offering_users(world: SimpleNamespace) -> None:
    sdk, area = world.sdk, "marketplace_offering_users"
    users = sdk.all(f"{area}/list", offering_uuid=world.offering, is_restricted=False)
    assert len(users) == 6
    nameless = next(u for u in users if str(u.state) == "Requested").uuid.hex
    assert sdk.detailed(f"{area}/begin_creating", nameless).status_code == 200
    comment = {"comment": "link it", "comment_url": "https://id.example.org/"}
    sdk.detailed(f"{area}/set_pending_account_linking", nameless, body=comment)
    sdk.detailed(f"{area}/set_pending_additional_validation", nameless, body=comment)
    sdk.detailed(f"{area}/set_validation_complete", nameless)
    assert sdk(f"{area}/partial_update", nameless, body={"username": "named"}).username == "named"
    assert (
        sdk.detailed(f"{area}/update_restricted", nameless, body={"is_restricted": True}).status_code == 200
    )


def test_offering_user_error(world: SimpleNamespace) -> None:
    member = world.waldur.seed.members[world.project][2]
    world.waldur.people.set_account(member, "", state=OfferingUserState.CREATING)
    uuid = world.waldur.people.account(member).uuid
    answer = world.sdk.detailed("marketplace_offering_users/set_error_creating", uuid)
    assert answer.status_code == 200


def test_usage(world: SimpleNamespace) -> None:
    sdk, area = world.sdk, "marketplace_component_usages"
    report = {"resource": world.resource, "date": _NOW, "usages": [{"type": "cpu", "amount": "12.50"}]}
    assert sdk.detailed(f"{area}/set_usage", body=report).status_code == 201
    row = sdk.all(f"{area}/list", resource_uuid=world.resource)[0]
    assert float(row.usage) == 12.5
    item = {"username": "aarvo1", "usage": "5.25"}
    assert sdk.detailed(f"{area}/set_user_usage", row.uuid.hex, body=item).status_code == 201
    many = {"usages": [item, {"username": "bberg2", "usage": "7.25"}]}
    assert sdk.detailed(f"{area}/set_user_usages", row.uuid.hex, body=many).status_code == 201
    users = sdk.all("marketplace_component_user_usages/list", resource_uuid=world.resource)
    assert {u.username: float(u.usage) for u in users} == {"aarvo1": 5.25, "bberg2": 7.25}


def test_user_limits_and_policies(world: SimpleNamespace) -> None:
    sdk, waldur = world.sdk, world.waldur
    member = waldur.seed.members[world.project][0]
    waldur.site.add_user_limit(world.resource, member, component_type="cpu", limit=10)
    limits = sdk.all("component_user_usage_limits/list", resource_uuid=world.resource)
    assert [float(row.limit) for row in limits] == [10.0]
    policy = waldur.site.add_policy(period=2)
    assert sdk.all("marketplace_slurm_periodic_usage_policies/list")[0].uuid.hex == policy
    result = {"resource_uuid": world.resource, "success": True, "commands_executed": ["sacctmgr"]}
    answer = sdk.detailed(
        "marketplace_slurm_periodic_usage_policies/report_command_result", policy, body=result
    )
    assert answer.status_code == 200


def test_identity_and_events(world: SimpleNamespace) -> None:
    sdk, area = world.sdk, "marketplace_site_agent_identities"
    body = {
        "offering": world.offering,
        "name": "agent-one",
        "version": "1",
        "last_restarted": _NOW,
        "dependencies": [{"package": "tornado", "version": "6.5"}],
    }
    identity = sdk(f"{area}/create", body=body).uuid.hex
    assert sdk(f"{area}/list", name="agent-one")[0].uuid.hex == identity
    assert sdk(f"{area}/update", identity, body=body).name == "agent-one"
    service = sdk(f"{area}/register_service", identity, body={"name": "orders", "mode": "order_process"})
    processor = sdk(
        "marketplace_site_agent_services/register_processor",
        service.uuid.hex,
        body={"name": "OfferingOrderProcessor", "backend_type": "slurm", "backend_version": "24.05"},
    )
    assert processor.service_name == "orders"
    subscription = sdk(
        f"{area}/register_event_subscription", identity, body={"observable_object_type": "order"}
    )
    queue = sdk(
        "event_subscriptions/create_queue",
        subscription.uuid.hex,
        body={"offering_uuid": world.offering, "object_type": "order"},
    )
    assert queue.vhost == subscription.user_uuid.hex
    assert sdk(f"{area}/register_queue", identity, body={"object_types": []}).queue_name.startswith(
        "consumer_"
    )
    line = {
        "agent_identity_uuid": identity,
        "timestamp": 1.5,
        "level": "INFO",
        "message": "hello",
        "module": "agent",
    }
    assert sdk.detailed("marketplace_site_agent_logs/create", body=[line]).status_code == 201
    assert sdk.detailed("event_subscriptions/destroy", subscription.uuid.hex).status_code == 204


def test_plain_subscription_and_statuses(world: SimpleNamespace) -> None:
    body = {"observable_objects": [{"object_type": "order"}], "description": "plain"}
    assert world.sdk("event_subscriptions/create", body=body).description == "plain"
    world.sdk("marketplace_orders/list", offering_uuid=world.offering)
    statuses = world.sdk.all("marketplace_integration_statuses/list", offering_uuid=world.offering)
    assert {str(s.agent_type) for s in statuses} == {"Order processing", "Event processing"}


def test_projects_and_paging(world: SimpleNamespace, start: StartWaldur) -> None:
    crowd = start("8.1", scenario=Scenario(projects_per_customer=7, allocations_per_project=5))
    crowd.site.configure(page_size_max=4)
    rows = Sdk(crowd).all("marketplace_provider_resources/list")
    assert len({row.uuid for row in rows}) == 35
    assert len(Sdk(world.waldur, "staff").all("projects/list", slug="project-1-1")) == 1


def test_personal_token_as_bearer(world: SimpleNamespace) -> None:
    key = world.waldur.token()
    world.waldur.store.tokens[key].scheme = "Bearer"
    assert Sdk(world.waldur, prefix="Bearer")("users/me_retrieve").username == "agent"
