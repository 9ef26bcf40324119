# SPDX-License-Identifier: MIT
"""Every area of the API against every age of server: what a server lacks is noted once and done without."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from agent.core.errors import WaldurAnswerError, WaldurError, WaldurLacks
from agent.core.model import OrderState, OrderType, ResourceState
from agent.waldur import members, offerings, orders, pool, resources
from agent.waldur.client import WaldurClient
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.waldur.clients import client_at, client_of
from tests.agent.waldur.conftest import StartStandIn, StartWaldur
from tests.agent.waldur.stand_in import Answer, Asked, html, says

AGES = ("2024", "8.0", "8.1")
MODERN = AGES[1:]
SCENARIO = Scenario(plan_quotas={"cpu": 100}, unnamed_members=1, allocations_per_project=1)


@pytest.fixture(params=AGES)
def waldur(request: pytest.FixtureRequest, start: StartWaldur) -> SimulatedWaldur:
    return start(request.param, scenario=SCENARIO)


@pytest.fixture
def client(waldur: SimulatedWaldur) -> Iterator[WaldurClient]:
    made = client_of(waldur)
    yield made
    made.close()


def age_of(waldur: SimulatedWaldur) -> str:
    return str(waldur.store.age.value)


def place(waldur: SimulatedWaldur, name: str = "One") -> str:
    return waldur.place_create_order(waldur.seed.project_uuids[0], name, limits={"cpu": 5}, slug=name.lower())


def notes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "done without it" in record.getMessage()]


def test_an_offering(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    facts = offerings.facts(client)
    assert facts.uuid == waldur.seed.offering_uuid
    assert {component.type for component in facts.components} == {"cpu", "mem", "gpu"}
    assert facts.components[0].fields["measured_unit"] == "core-hours"
    assert facts.customer_uuid == waldur.store.offerings[facts.uuid].customer_uuid


@pytest.mark.parametrize("number", [resources.LIST_ALL_FROM - 1, resources.LIST_ALL_FROM])
def test_the_accounts_of_many_resources_come_from_one_listing(start: StartWaldur, number: int) -> None:
    server = start(
        scenario=Scenario(projects_per_customer=30, members_per_project=0, allocations_per_project=1)
    )
    wanted = server.seed.resource_uuids[:number]
    server.site.change("resources", wanted[0], state="Terminated")
    client = client_of(server)
    found = resources.accounts_of(client, wanted)
    assert found == {uuid: server.resource(uuid).backend_id for uuid in wanted}
    assert client.sent.total() == (1 if number >= resources.LIST_ALL_FROM else number)


def test_components_are_made_and_changed(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    offerings.create_component(client, {"type": "node", "name": "Nodes", "billing_type": "limit"})
    made = next(c for c in offerings.facts(client).components if c.type == "node")
    offerings.update_component(client, {"uuid": made.uuid, "name": "Whole nodes", "limit_amount": 7})
    changed = next(c for c in offerings.facts(client).components if c.type == "node")
    assert (changed.fields["name"], changed.fields["limit_amount"]) == ("Whole nodes", 7)


def test_quotas_of_a_plan(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    small, large = waldur.seed.plan_uuids
    assert offerings.plan_quotas(client, small) == {"cpu": 100}
    assert offerings.plan_quotas(client, large) == {"cpu": 200}


def test_is_a_name_free(
    waldur: SimulatedWaldur, client: WaldurClient, caplog: pytest.LogCaptureFixture
) -> None:
    taken = waldur.resource(waldur.seed.resource_uuids[0]).backend_id
    caplog.set_level(logging.INFO, logger="agent")
    is_modern = age_of(waldur) in MODERN
    answers = [offerings.name_is_free(client, name, all_offerings=True) for name in ("free", taken, taken)]
    assert answers == ([True, False, False] if is_modern else [True, True, True])
    assert len(notes(caplog)) == (0 if is_modern else 1)
    assert waldur.requests.count("POST *") == (3 if is_modern else 1)


@pytest.mark.parametrize("answer", [says([]), says("yes"), Answer(body=b"", status=200)])
def test_an_answer_about_a_name_that_says_nothing_is_no_answer(
    stand_in: StartStandIn, answer: Answer
) -> None:
    with pytest.raises(WaldurAnswerError):
        offerings.name_is_free(client_at(stand_in(lambda _: answer).url), "a", all_offerings=False)


def test_an_order_from_its_placing_to_its_end(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    uuid = place(waldur)
    (order,) = orders.actionable(client)
    assert (order.uuid, order.type, order.state) == (uuid, OrderType.CREATE, OrderState.PENDING_PROVIDER)
    assert (order.resource_name, dict(order.limits)) == ("One", {"cpu": 5})
    assert order.resource_uuid == waldur.order(uuid).resource_uuid
    assert order.created is not None
    assert order.created.tzinfo is not None
    orders.approve(client, uuid)
    assert orders.get(client, uuid).state is OrderState.EXECUTING
    orders.complete(client, uuid)
    assert orders.get(client, uuid).state is OrderState.DONE
    assert orders.actionable(client) == []


def test_steps_that_were_carried_out_though_the_answer_was_lost(
    waldur: SimulatedWaldur, client: WaldurClient
) -> None:
    """The second try meets a 409 and finds the order where it should be."""
    uuid = place(waldur)
    for step in (orders.approve, orders.complete):
        waldur.inject(Fault(method="POST", status=502, carried_out=True))
        with pytest.raises(WaldurError, match="502"):
            step(client, uuid)
        step(client, uuid)
    assert waldur.order(uuid).state.value == "done"


def test_a_409_for_another_reason_stays_an_error(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    uuid = place(waldur)
    orders.approve(client, uuid)
    orders.fail(client, uuid, "No.")
    with pytest.raises(WaldurError) as caught:
        orders.complete(client, uuid)
    assert caught.value.status == 409


def test_an_order_that_is_done_is_not_failed(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    """Waldur would take it, and turn the healthy resource to Erred."""
    uuid = place(waldur)
    orders.approve(client, uuid)
    orders.complete(client, uuid)
    with pytest.raises(WaldurError, match=f"order {uuid} is done now: not failed") as caught:
        orders.fail(client, uuid, "No.")
    assert (caught.value.status, caught.value.retryable) == (409, False)
    assert waldur.resource(waldur.order(uuid).resource_uuid).state.value == "OK"


@pytest.mark.parametrize("traceback", ["", "Traceback ..."])
def test_an_order_is_failed_with_both_texts(
    waldur: SimulatedWaldur, client: WaldurClient, traceback: str
) -> None:
    uuid = place(waldur)
    orders.approve(client, uuid)
    orders.fail(client, uuid, "The limit is too high.", traceback)
    order = waldur.order(uuid)
    assert (order.state.value, order.error_message, order.error_traceback) == (
        "erred",
        "The limit is too high.",
        traceback,
    )


def test_the_people_of_a_project(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    team = members.team(client, waldur.seed.resource_uuids[0])
    named = [person for person in team if person.username]
    assert len(team) == 3
    assert len(named) == 2
    users = {user.user_uuid: user.username for user in members.offering_users(client)}
    assert {person.user_uuid: person.username for person in team}.items() <= users.items()


def test_accounts_without_a_person(
    waldur: SimulatedWaldur, client: WaldurClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="agent")
    project = waldur.seed.project_uuids[0]
    waldur.site.add_shared_account(project, "robot")
    waldur.site.add_shared_account(project, "course", kind="course")
    found = [members.project_accounts(client) for _ in range(3)]
    is_modern = age_of(waldur) in MODERN
    assert found == [{project: frozenset({"robot", "course"})} if is_modern else {}] * 3
    assert len(notes(caplog)) == (0 if is_modern else 2)
    assert waldur.requests.count() == (6 if is_modern else 2)


def test_a_resource(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    uuid = waldur.seed.resource_uuids[0]
    there = waldur.resource(uuid)
    resource = resources.get(client, uuid)
    assert (resource.uuid, resource.state, resource.backend_id) == (uuid, ResourceState.OK, there.backend_id)
    assert resource.project_uuid == there.project_uuid
    assert dict(resource.limits) == there.limits
    assert [r.uuid for r in resources.listed(client, [ResourceState.OK])] == waldur.seed.resource_uuids
    assert [r.uuid for r in resources.holders_of(client, there.backend_id)] == [uuid]
    assert resources.holders_of(client, "nobody") == []


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_resources_by_uuid_cost_one_list_where_there_are_many(
    waldur: SimulatedWaldur, client: WaldurClient, count: int
) -> None:
    wanted = [waldur.order(place(waldur, f"R{n}")).resource_uuid for n in range(count)]
    assert set(resources.by_uuid(client, wanted)) == set(wanted)
    assert waldur.requests.count() == (count if count < resources.LIST_FROM else 1)


def test_a_resource_that_has_gone_does_not_hide_the_others(
    waldur: SimulatedWaldur, client: WaldurClient
) -> None:
    missing = "0" * 31 + "1"
    read = resources.by_uuid(client, [*waldur.seed.resource_uuids, missing])
    assert isinstance(read[missing], WaldurError)
    assert {uuid for uuid, r in read.items() if not isinstance(r, WaldurError)} == set(
        waldur.seed.resource_uuids
    )


def test_the_name_of_an_account(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    resource = waldur.order(place(waldur)).resource_uuid
    resources.set_backend_id(client, resource, "a_one")
    assert resources.get(client, resource).backend_id == "a_one"


def test_limits_are_reported_where_the_server_can(
    waldur: SimulatedWaldur, client: WaldurClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="agent")
    first, second = waldur.seed.resource_uuids
    before = dict(waldur.resource(first).limits)
    is_modern = age_of(waldur) in MODERN
    for uuid in (first, second, first):
        with nullcontext() if is_modern else pytest.raises(WaldurLacks):
            resources.set_limits(client, uuid, {"cpu": 42})
    assert waldur.resource(first).limits == ({"cpu": 42} if is_modern else before)
    assert waldur.requests.count("POST *") == (3 if is_modern else 1)
    assert len(notes(caplog)) == (0 if is_modern else 1)


@pytest.mark.parametrize("is_set_ok", [True, False])
def test_the_allocation_behind_a_resource_of_2024(start: StartWaldur, is_set_ok: bool) -> None:
    """That server fails the next update by itself where the allocation was never set to OK."""
    old = start("2024", scenario=SCENARIO)
    client = client_of(old)
    order = place(old)
    orders.approve(client, order)
    resource = old.order(order).resource_uuid
    assert resources.get(client, resource).has_allocation
    if is_set_ok:
        resources.mark_allocation_ok(client, resource)
    else:
        orders.complete(client, order)
    assert old.order(order).state.value == "done"
    update = old.orders.place_update(resource, {"cpu": 7})
    orders.approve(client, update)
    assert old.order(update).state.value == ("executing" if is_set_ok else "erred")


def test_a_missing_endpoint_is_noted_once_by_many_threads(
    stand_in: StartStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    client = client_at(stand_in(lambda _: html("<title>Not Found</title>", 404)).url)
    caplog.set_level(logging.INFO, logger="agent")
    pool.each(range(40), lambda n: offerings.name_is_free(client, f"a{n}", all_offerings=False))
    assert len(notes(caplog)) == 1


@pytest.mark.parametrize(
    ("answer", "is_noted"),
    [
        (html("<title>Not Found</title>", 404), True),
        (says({"detail": 'Method "POST" not allowed.'}, 405), True),
        (says({"detail": "Not found."}, 404), True),
        (says({"detail": "No Offering matches the given query."}, 404), False),
        (says({"detail": "You do not have permission to perform this action."}, 403), False),
        (says({"detail": "Oops."}, 500), False),
    ],
)
def test_only_what_is_missing_is_done_without(stand_in: StartStandIn, answer: Answer, is_noted: bool) -> None:
    """A refusal, an outage or an object that is not there say nothing about the endpoint."""
    client = client_at(stand_in(lambda _: answer).url)
    if is_noted:
        assert offerings.name_is_free(client, "a", all_offerings=False)
    else:
        with pytest.raises(WaldurError):
            offerings.name_is_free(client, "a", all_offerings=False)
    assert client.if_supported("check_unique_backend_id") is not is_noted


def test_lists_are_asked_for_with_few_fields(
    waldur: SimulatedWaldur, client: WaldurClient, stand_in: StartStandIn
) -> None:
    def script(asked: Asked) -> Answer:
        return says([]) if asked.target.partition("?")[0].count("/") == 3 else says({})

    server = stand_in(script)
    asking = client_at(server.url)
    orders.actionable(asking)
    resources.listed(asking, [ResourceState.OK])
    members.offering_users(asking)
    offerings.facts(asking)
    for asked in server.asked:
        assert [value for name, value in asked.query if name == "field"], asked.target
    by_offering = [asked for asked in server.asked if "/marketplace-provider-offerings/" not in asked.target]
    assert all(("offering_uuid", asking.offering_uuid) in asked.query for asked in by_offering)
