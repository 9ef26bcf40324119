# SPDX-License-Identifier: MIT
"""What each age has and has not."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from simulator.server.waldur import SimulatedWaldur
from simulator.world.ages import Age
from simulator.world.seed import Scenario
from tests.simulator.caller import Caller
from tests.simulator.conftest import StartWaldur

_AGES = ("2024", "8.0", "8.1")
_RESOURCE = "marketplace-provider-resources/{resource}"
_OFFERING = "marketplace-provider-offerings/{offering}"
_OLD = "2024"

# method, path, first age, last age
_ENDPOINTS = [
    ("GET", "marketplace-orders/", _OLD, "8.1"),
    ("GET", f"{_RESOURCE}/team/", _OLD, "8.1"),
    ("POST", f"{_RESOURCE}/set_backend_id/", _OLD, "8.1"),
    ("POST", f"{_RESOURCE}/set_as_erred/", _OLD, "8.1"),
    ("POST", f"{_RESOURCE}/set_limits/", "8.0", "8.1"),
    ("POST", f"{_RESOURCE}/set_as_ok/", "8.0", "8.1"),
    ("POST", f"{_RESOURCE}/refresh_last_sync/", "8.0", "8.1"),
    ("POST", f"{_RESOURCE}/set_endpoints/", "8.1", "8.1"),
    ("POST", f"{_RESOURCE}/set_membership_sync_statuses/", "8.1", "8.1"),
    ("POST", "marketplace-orders/{order}/set_backend_id/", "8.0", "8.1"),
    ("POST", "marketplace-offering-users/{account}/begin_creating/", "8.0", "8.1"),
    ("GET", f"{_OFFERING}/user-attribute-config/", "8.0", "8.1"),
    ("POST", f"{_OFFERING}/check_unique_backend_id/", "8.0", "8.1"),
    ("GET", f"{_OFFERING}/list_project_service_accounts/", "8.0", "8.1"),
    ("GET", f"{_OFFERING}/list_course_accounts/", "8.0", "8.1"),
    ("POST", "marketplace-component-usages/{usage}/set_user_usages/", "8.0", "8.1"),
    ("GET", "component-user-usage-limits/", "8.0", "8.1"),
    ("GET", "marketplace-site-agent-identities/", "8.0", "8.1"),
    ("GET", "event-subscriptions/", "8.0", "8.1"),
    ("GET", "marketplace-slurm-periodic-usage-policies/", "8.0", "8.1"),
    ("POST", "marketplace-site-agent-logs/", "8.1", "8.1"),
    ("POST", "marketplace-site-agent-identities/{identity}/register_queue/", "8.1", "8.1"),
    ("POST", "marketplace-slurm-remote/{resource}/set_state/", _OLD, _OLD),
]


def _names(waldur: SimulatedWaldur) -> dict[str, str]:
    seeded = waldur.seed
    member = waldur.people.account(seeded.members[seeded.project_uuids[0]][0])
    assert member is not None
    return {
        "resource": seeded.resource_uuids[0],
        "offering": seeded.offering_uuid,
        "order": waldur.orders.all()[0].uuid,
        "account": member.uuid,
        "usage": "0" * 32,
        "identity": "0" * 32,
    }


@pytest.fixture(scope="module")
def servers() -> Any:
    scenario = Scenario(allocations_per_project=1)
    worlds = {age: SimulatedWaldur(age, scenario=scenario).start() for age in _AGES}
    yield worlds
    for waldur in worlds.values():
        waldur.stop()


@pytest.mark.parametrize("age", _AGES)
@pytest.mark.parametrize(("method", "path", "first", "last"), _ENDPOINTS)
def test_endpoints(servers: Any, age: str, method: str, path: str, first: str, last: str) -> None:
    waldur = servers[age]
    answer = Caller(waldur, "agent").send(method, path.format(**_names(waldur)))
    is_page = answer.status_code == 404 and answer.headers["Content-Type"].startswith("text/html")
    is_served = Age(age).at_least(Age(first)) and Age(last).at_least(Age(age))
    assert is_page is not is_served


@pytest.mark.parametrize(
    ("path", "since"),
    [
        ("marketplace-orders/?state=pending-start-date", "8.0"),
        ("marketplace-orders/?type=Restore", "8.0"),
        ("marketplace-orders/?state=executing", "2024"),
    ],
)
def test_words_an_age_does_not_know(servers: Any, path: str, since: str) -> None:
    for age, waldur in servers.items():
        status = Caller(waldur, "agent").get(path).status_code
        assert status == (200 if Age(age).at_least(Age(since)) else 400)


def test_filters_an_age_ignores(servers: Any) -> None:
    long_ago = "2000-01-01T00:00:00Z"
    counts = {
        age: len(Caller(waldur, "agent").read("marketplace-orders/", modified_before=long_ago))
        for age, waldur in servers.items()
    }
    assert counts == {"2024": 2, "8.0": 2, "8.1": 0}
    assert len(Caller(servers["2024"], "agent").read("marketplace-offering-users/", state="Requested")) == 6


def test_shapes_that_changed(start: StartWaldur) -> None:
    """The reply to an approval, the role of a member, the object behind a resource, usages as text."""
    seen = {}
    for age in _AGES:
        waldur = start(age)
        agent = Caller(waldur, "agent")
        order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 1})
        reply = agent.post(f"marketplace-orders/{order}/approve_by_provider/", {})
        agent.move(order, "set_state_done")
        body = agent.order(order)
        member = agent.read(f"marketplace-provider-resources/{body['marketplace_resource_uuid']}/team/")[0]
        seen[age] = (
            reply.content != b"",
            member["role"],
            "offering_user_state" in member,
            body["resource_uuid"] is not None,
            "error_traceback" in body,
        )
    modern = (True, "PROJECT.MANAGER", True, False, True)
    assert seen == {"2024": (False, "manager", False, True, False), "8.0": modern, "8.1": modern}


def test_a_2024_provider_may_not_set_states(servers: Any) -> None:
    for age, waldur in servers.items():
        path = f"marketplace-provider-resources/{waldur.seed.resource_uuids[1]}/set_as_erred/"
        assert Caller(waldur, "agent").post(path, {}).status_code == (403 if age == _OLD else 200)
        assert Caller(waldur, "staff").post(path, {}).status_code == 200


def test_2024_ignores_dates_of_usage(start: StartWaldur) -> None:
    waldur = start(_OLD, scenario=Scenario(allocations_per_project=1))
    agent = Caller(waldur, "agent")
    body = {
        "resource": waldur.seed.resource_uuids[0],
        "date": "2000-01-01T00:00:00Z",
        "usages": [{"type": "cpu", "amount": 1}],
    }
    assert agent.post("marketplace-component-usages/set_usage/", body).status_code == 201
    month = waldur.store.clock.today().replace(day=1).isoformat()
    assert agent.read("marketplace-component-usages/")[0]["billing_period"] == month


def set_state(agent: Caller, resource: str, word: str) -> int:
    return agent.post(f"marketplace-slurm-remote/{resource}/set_state/", {"state": word}).status_code


def test_a_2024_update_fails_by_itself_when_the_allocation_is_not_ready(start: StartWaldur) -> None:
    """Each update leaves it scheduled; `ok` is legal then, `creating` is not."""
    waldur = start(_OLD)
    agent = Caller(waldur, "agent")
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 1})
    agent.move(order, "approve_by_provider", {})
    agent.move(order, "set_state_done")
    resource = waldur.order(order).resource_uuid
    for number, (target, refused) in enumerate((("Creation Scheduled", "updating"), ("", "creating")), 5):
        failing = waldur.orders.place_update(resource, {"cpu": 2})
        agent.move(failing, "approve_by_provider", {})
        assert waldur.order(failing).state.value == "erred"
        state = 5 if target else 1
        assert waldur.order(failing).error_message == (
            f"Can't switch from state '{state}' using method 'schedule_updating'"
        )
        assert set_state(agent, resource, refused) == 409
        assert set_state(agent, resource, "ok") == 200
        working = waldur.orders.place_update(resource, {"cpu": number})
        agent.move(working, "approve_by_provider", {})
        agent.move(working, "set_state_done")
        assert waldur.order(working).state.value == "done"
        assert waldur.resource(resource).limits == {"cpu": number}


def test_only_an_owner_moves_a_2024_allocation(start: StartWaldur) -> None:
    """A role with the permissions for orders, members and reports does all else."""
    waldur = start(_OLD)
    waldur.people.add_provider_user("custom", "CUSTOMER.SITE_AGENT")
    custom = Caller(waldur, "custom")
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 1})
    assert custom.move(order, "approve_by_provider", {}) == 200
    resource = waldur.order(order).resource_uuid
    for word, status in (("ok", 403), ("creating", 403)):
        assert set_state(custom, resource, word) == status
    path = f"marketplace-provider-resources/{resource}/"
    assert custom.post(f"{path}set_backend_id/", {"backend_id": "x"}).status_code == 200
    assert custom.post(f"{path}set_backend_metadata/", {"backend_metadata": {}}).status_code == 200
    assert custom.move(order, "set_state_done") == 200


def test_an_edit_of_the_offering_blanks_the_usernames_in_2024_alone(start: StartWaldur) -> None:
    for age in _AGES:
        waldur = start(age)
        before = {row.uuid: row.username for row in waldur.store.offering_users}
        waldur.site.change("offerings", waldur.seed.offering_uuid, name="renamed")
        assert {row.uuid: row.username for row in waldur.store.offering_users} == before
        options = waldur.store.offerings[waldur.seed.offering_uuid].plugin_options
        waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options={**options, "x": 1})
        after = {row.uuid: row.username for row in waldur.store.offering_users}
        assert after == (dict.fromkeys(before, "") if age == _OLD else before)


def test_an_upgrade_brings_states_slugs_and_options(start: StartWaldur) -> None:
    waldur = start(_OLD, scenario=Scenario(allocations_per_project=1, unnamed_members=1))
    agent = Caller(waldur, "agent")
    before = agent.read("marketplace-provider-resources/")[0]
    waldur.site.upgrade("8.1")
    after = agent.read("marketplace-provider-resources/")[0]
    assert "project_slug" not in before
    assert after["project_slug"] == waldur.store.projects[after["project_uuid"]].slug
    states = {(bool(row["username"]), row["state"]) for row in agent.read("marketplace-offering-users/")}
    assert states == {(True, "OK"), (False, "Requested")}
    offering = agent.get(f"marketplace-provider-offerings/{waldur.seed.offering_uuid}/").json()
    assert offering["plugin_options"]["service_provider_can_create_offering_user"] is True


def test_the_server_of_2024_closes_idle_connections() -> None:
    with SimulatedWaldur("2024", idle_s=Age.A2024.keep_alive_s) as waldur:
        host, port = urlsplit(waldur.root_url).netloc.split(":")
        with socket.create_connection((host, int(port)), timeout=600) as connection:
            connection.sendall(f"GET /api/version/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1")
            while connection.recv(65536):
                pass  # until it is closed, with no other request
