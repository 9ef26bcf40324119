# SPDX-License-Identifier: MIT
"""Who gets in, who sees what, and who may do what."""

from __future__ import annotations

import pytest
import requests

from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario, populate
from tests.simulator.caller import Caller
from tests.simulator.conftest import StartWaldur


def _status(waldur: SimulatedWaldur, header: str | None, path: str = "users/me/") -> int:
    headers = {"Authorization": header} if header else {}
    return requests.get(waldur.url + path, headers=headers, timeout=600).status_code


@pytest.mark.parametrize(
    "header", [None, "Token", "Token x y", "Token nonsense", "Bearer nonsense", "Basic x"]
)
def test_no_entry(waldur: SimulatedWaldur, header: str | None) -> None:
    headers = {"Authorization": header} if header else {}
    answer = requests.get(waldur.url + "marketplace-orders/", headers=headers, timeout=600)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Token")


def test_ways_in(waldur: SimulatedWaldur) -> None:
    token = waldur.token()
    assert _status(waldur, f"Token {token}") == 200
    assert _status(waldur, f"tOkEn {token}") == 200
    assert _status(waldur, None, f"users/me/?x-auth-token=Token%20{token}") == 200
    assert _status(waldur, None, "configuration/") == 200
    waldur.store.users.where("username", "agent")[0].is_active = False
    assert _status(waldur, f"Token {token}") == 401


@pytest.mark.parametrize(("username", "status"), [("agent", 403), ("staff", 200), ("support", 200)])
def test_version_is_for_staff_and_support(waldur: SimulatedWaldur, username: str, status: int) -> None:
    assert Caller(waldur, username).get("version/").status_code == status


def _oidc_token(waldur: SimulatedWaldur, **form: str) -> requests.Response:
    data = {"grant_type": "client_credentials", "client_id": "agent", "client_secret": "secret", **form}
    return requests.post(f"{waldur.root_url}/oidc/token/", data=data, timeout=600)


def test_oidc_tokens_work_until_they_expire(waldur: SimulatedWaldur) -> None:
    waldur.site.configure(oidc_expires_in_s=60)
    answer = _oidc_token(waldur).json()
    assert (answer["token_type"], answer["expires_in"]) == ("Bearer", 60)
    header = f"Bearer {answer['access_token']}"
    assert _status(waldur, header) == 200
    assert _status(waldur, f"Token {answer['access_token']}") == 401
    waldur.site.advance(61)
    assert _status(waldur, header) == 401


def test_oidc_refusals(waldur: SimulatedWaldur) -> None:
    assert _oidc_token(waldur, client_secret="wrong").status_code == 401
    assert _oidc_token(waldur, grant_type="password").status_code == 400
    basic = requests.post(
        f"{waldur.root_url}/oidc/token/",
        data={"grant_type": "client_credentials"},
        auth=("agent", "secret"),
        timeout=600,
    )
    assert basic.status_code == 200


def test_the_token_endpoint_can_fail_too(waldur: SimulatedWaldur) -> None:
    waldur.inject(Fault(path="/oidc/token/", status=502))
    assert [_oidc_token(waldur).status_code for _ in range(2)] == [502, 200]
    assert waldur.request_counts() == {"POST oidc/token/": 2}


def test_bearer_tokens_came_with_8(start: StartWaldur) -> None:
    old = start("2024")
    assert _status(old, f"Bearer {_oidc_token(old).json()['access_token']}") == 401


def test_providers_do_not_see_each_other(waldur: SimulatedWaldur) -> None:
    other = Scenario(provider_name="Other", offering_name="Other HPC", agent_username="other")
    theirs = populate(waldur.store, other)
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "mine")
    other_provider = Caller(waldur, "other")
    assert other_provider.read("marketplace-orders/") == []
    for path in (
        f"marketplace-orders/{order}/",
        f"marketplace-provider-offerings/{waldur.seed.offering_uuid}/",
        f"marketplace-provider-resources/{waldur.order(order).resource_uuid}/",
        f"marketplace-plans/{waldur.seed.plan_uuids[0]}/",
    ):
        assert other_provider.get(path).status_code == 404
    assert (
        other_provider.get(f"marketplace-service-providers/{waldur.seed.provider_uuid}/keys/").status_code
        == 403
    )
    assert other_provider.get(f"marketplace-provider-offerings/{theirs.offering_uuid}/").status_code == 200


def test_permission_comes_before_state(waldur: SimulatedWaldur) -> None:
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "mine")
    assert Caller(waldur, "consumer").move(order, "set_state_done") == 403
    assert Caller(waldur, "agent").move(order, "set_state_done") == 409


def test_an_offering_manager_approves_nothing_but_names_backends(waldur: SimulatedWaldur) -> None:
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "mine")
    manager = Caller(waldur, "agent-offering-manager")
    assert manager.move(order, "approve_by_provider", {}) == 403
    resource = waldur.order(order).resource_uuid
    path = f"marketplace-provider-resources/{resource}/"
    assert manager.post(f"{path}set_backend_id/", {"backend_id": "x"}).status_code == 200
    assert manager.post(f"{path}set_backend_metadata/", {"backend_metadata": {}}).status_code == 403


def test_a_permission_can_be_taken_away(waldur: SimulatedWaldur, agent: Caller) -> None:
    path = f"marketplace-service-providers/{waldur.seed.provider_uuid}/project_permissions/"
    assert agent.get(path).status_code == 200
    waldur.people.deny("agent", "PROVIDER.LIST_PERMISSIONS")
    assert agent.get(path).status_code == 403
    waldur.people.allow("agent", "PROVIDER.LIST_PERMISSIONS")
    assert agent.get(path).status_code == 200


def test_expired_roles_are_gone(waldur: SimulatedWaldur, agent: Caller) -> None:
    project = waldur.seed.project_uuids[0]
    order = waldur.place_create_order(project, "mine")
    expires = waldur.store.clock.now().replace(microsecond=0)
    waldur.people.add_member(project, "guest", account="guest1", expiration_time=expires)
    team = agent.read(f"marketplace-provider-resources/{waldur.order(order).resource_uuid}/team/")
    assert "guest" not in {member["username"] for member in team}


@pytest.mark.parametrize("age", ["2024", "8.0", "8.1"])
def test_roles_are_listed_with_their_permissions_to_any_token(start: StartWaldur, age: str) -> None:
    waldur = start(age)
    waldur.people.add_provider_user("custom", "SITE.ROLE", permissions=["RESOURCE.SET_USAGE"])
    listed = {role["name"]: role for role in Caller(waldur, "consumer").read("roles/", page_size=300)}
    assert listed["SITE.ROLE"]["permissions"] == ["RESOURCE.SET_USAGE"]
    assert not listed["SITE.ROLE"]["is_system_role"] and listed["CUSTOMER.OWNER"]["is_system_role"]
    assert "ORDER.APPROVE" in listed["CUSTOMER.OWNER"]["permissions"]
    # As the server defines it: no order, whatever its scope.
    manager = set(listed["OFFERING.MANAGER"]["permissions"])
    assert "RESOURCE.SET_USAGE" in manager and not {"ORDER.APPROVE", "ORDER.REJECT"} & manager
    (grant,) = Caller(waldur, "custom").read("users/me/")["permissions"]
    assert grant["role_uuid"] == listed["SITE.ROLE"]["uuid"]
    assert listed["SITE.ROLE"]["users_count"] == (1 if age == "2024" else None)
