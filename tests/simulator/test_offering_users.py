# SPDX-License-Identifier: MIT
"""The accounts of members: states and their moves, names, creation, and what Waldur shows of a person."""

from __future__ import annotations

import pytest

from simulator.rules.offering_user_rules import TRANSITIONS
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OfferingUserState
from simulator.world.seed import Scenario
from tests.simulator.caller import Caller
from tests.simulator.conftest import StartWaldur

_AREA = "marketplace-offering-users"


def _account(waldur: SimulatedWaldur, state: OfferingUserState, username: str = "") -> str:
    member = waldur.seed.members[waldur.seed.project_uuids[0]][0]
    return waldur.people.set_account(member, username, state=state).uuid


@pytest.mark.parametrize("action", TRANSITIONS)
def test_moves(waldur: SimulatedWaldur, agent: Caller, action: str) -> None:
    target, sources = TRANSITIONS[action]
    for state in OfferingUserState:
        uuid = _account(waldur, state)
        answer = agent.post(f"{_AREA}/{uuid}/{action}/", {})
        if state in sources:
            assert (answer.status_code, answer.content) == (200, b"")
            assert agent.read(f"{_AREA}/{uuid}/")["state"] == target.value
        else:
            assert answer.status_code == 400
            assert str(state.number) in answer.json()["detail"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Requested", "OK"),
        ("Creating", "OK"),
        ("Error creating", "OK"),
        ("Pending account linking", "OK"),
        ("Deleting", "Deleting"),
    ],
)
def test_a_name_moves_the_account_to_ok(
    waldur: SimulatedWaldur, agent: Caller, before: str, after: str
) -> None:
    uuid = _account(waldur, OfferingUserState(before))
    assert agent.send("PATCH", f"{_AREA}/{uuid}/", {"username": ""}).json()["state"] == before
    answer = agent.send("PATCH", f"{_AREA}/{uuid}/", {"username": "someone"}).json()
    assert (answer["username"], answer["state"]) == ("someone", after)
    assert agent.send("PATCH", f"{_AREA}/{uuid}/", {"username": "x" * 101}).status_code == 400


def test_comments_come_and_go(waldur: SimulatedWaldur, agent: Caller) -> None:
    uuid = _account(waldur, OfferingUserState.CREATING)
    comment = {"comment": "link it", "comment_url": "https://id.example.org/"}
    agent.post(f"{_AREA}/{uuid}/set_pending_account_linking/", comment)
    row = agent.read(f"{_AREA}/{uuid}/")
    assert (row["service_provider_comment"], row["service_provider_comment_url"]) == tuple(comment.values())
    agent.post(f"{_AREA}/{uuid}/set_validation_complete/")
    assert agent.read(f"{_AREA}/{uuid}/")["service_provider_comment"] == ""


def test_restriction_filters_the_list(waldur: SimulatedWaldur, agent: Caller) -> None:
    uuid = _account(waldur, OfferingUserState.OK, "someone")
    agent.post(f"{_AREA}/{uuid}/update_restricted/", {"is_restricted": True})
    assert [u["uuid"] for u in agent.read(f"{_AREA}/", is_restricted="true")] == [uuid]
    assert uuid not in {u["uuid"] for u in agent.read(f"{_AREA}/", is_restricted="false")}


def test_creation(waldur: SimulatedWaldur, agent: Caller) -> None:
    user = waldur.people.add_user("new.one").uuid
    body = {"user_uuid": user, "offering_uuid": waldur.seed.offering_uuid, "username": "newone"}
    answer = agent.post(f"{_AREA}/", body)
    assert (answer.status_code, answer.json()["state"]) == (201, "OK")
    assert "non_field_errors" in agent.post(f"{_AREA}/", body).json()
    both = body | {"user": f"{waldur.url}users/{user}/"}
    assert "user" in agent.post(f"{_AREA}/", both).json()
    options = waldur.store.offerings[waldur.seed.offering_uuid].plugin_options
    options["service_provider_can_create_offering_user"] = False
    other = body | {"user_uuid": waldur.people.add_user("new.two").uuid}
    assert agent.post(f"{_AREA}/", other).status_code == 400


def test_only_exposed_fields_are_there(waldur: SimulatedWaldur, agent: Caller) -> None:
    waldur.site.change("offerings", waldur.seed.offering_uuid, exposed_fields=["username", "nationality"])
    row = agent.read(f"{_AREA}/")[0]
    personal = {name for name in row if name.startswith("user_")}
    assert personal == {"user_uuid", "user_username", "user_nationality"}
    config = agent.read(f"marketplace-provider-offerings/{waldur.seed.offering_uuid}/user-attribute-config/")
    assert (config["exposed_fields"], config["expose_email"]) == (["username", "nationality"], False)


def test_those_who_did_not_consent_are_hidden(waldur: SimulatedWaldur, agent: Caller) -> None:
    uuid = _account(waldur, OfferingUserState.OK, "someone")
    waldur.site.change("offering_users", uuid, has_consent=False)
    assert agent.get(f"{_AREA}/{uuid}/").status_code == 200
    waldur.site.change("offerings", waldur.seed.offering_uuid, enforces_consent=True)
    assert agent.get(f"{_AREA}/{uuid}/").status_code == 404
    assert uuid not in {row["uuid"] for row in agent.read(f"{_AREA}/")}


def test_members_leave_but_their_accounts_stay(start: StartWaldur) -> None:
    waldur = start("8.0", scenario=Scenario(allocations_per_project=1))
    agent, project = Caller(waldur, "agent"), waldur.seed.project_uuids[0]
    member = waldur.seed.members[project][0]
    waldur.people.remove_member(project, member)
    team = agent.read(f"marketplace-provider-resources/{waldur.seed.resource_uuids[0]}/team/")
    assert member not in {row["username"] for row in team}
    assert waldur.people.account(member) is not None


def test_other_policies_name_accounts_themselves(start: StartWaldur) -> None:
    scenario = Scenario(
        allocations_per_project=1, plugin_options={"username_generation_policy": "waldur_username"}
    )
    waldur = start("8.0", scenario=scenario)
    waldur.people.add_member(waldur.seed.project_uuids[0], "late.comer")
    account = waldur.people.account("late.comer")
    assert account is not None
    assert (account.username, account.state.value) == ("late.comer", "OK")
