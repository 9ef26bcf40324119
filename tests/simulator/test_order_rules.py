# SPDX-License-Identifier: MIT
"""How orders move, what their moves do to resources, and the moves that bite agents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from simulator.control.experiments import OrderOptions
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OrderState, ResourceState
from simulator.world.seed import Scenario
from simulator.world.store import Settings
from tests.simulator.caller import Caller
from tests.simulator.conftest import StartWaldur

_TEXTS = {"error_message": "boom", "error_traceback": "trace"}
_WITH_RESOURCE = Scenario(allocations_per_project=1, plan_quotas={"cpu": 10})


@pytest.fixture
def waldur(start: StartWaldur) -> SimulatedWaldur:
    return start("8.0", scenario=_WITH_RESOURCE)


def _place(waldur: SimulatedWaldur, kind: str) -> str:
    """An order of that kind, waiting for the provider."""
    resource = waldur.seed.resource_uuids[0]
    if kind == "Create":
        return waldur.place_create_order(waldur.seed.project_uuids[0], "new", limits={"cpu": 1})
    if kind == "Update":
        return waldur.orders.place_update(resource, {"cpu": 5})
    if kind == "Terminate":
        return waldur.orders.place_terminate(resource)
    waldur.site.change("resources", resource, state="Terminated")
    return waldur.orders.place_restore(resource)


def _states(waldur: SimulatedWaldur, order_uuid: str) -> tuple[str, str]:
    order = waldur.order(order_uuid)
    return order.state.value, waldur.resource(order.resource_uuid).state.value


@pytest.mark.parametrize(
    ("kind", "approved", "done", "erred", "rejected"),
    [
        ("Create", "Creating", "OK", "Erred", "Terminated"),
        ("Update", "Updating", "OK", "Erred", "OK"),
        ("Terminate", "Terminating", "Terminated", "OK", "OK"),
        ("Restore", "Creating", "OK", "Erred", "Terminated"),
    ],
)
def test_moves_of_the_resource(
    start: StartWaldur, kind: str, approved: str, done: str, erred: str, rejected: str
) -> None:
    for end, body, wanted in (
        ("set_state_done", None, ("done", done)),
        ("set_state_erred", _TEXTS, ("erred", erred)),
    ):
        waldur = start("8.0", scenario=_WITH_RESOURCE)
        agent, order = Caller(waldur, "agent"), _place(waldur, kind)
        assert agent.move(order, "approve_by_provider", {}) == 200
        assert _states(waldur, order) == ("executing", approved)
        assert agent.move(order, end, body) == 200
        assert _states(waldur, order) == wanted
    waldur = start("8.0", scenario=_WITH_RESOURCE)
    order = _place(waldur, kind)
    assert Caller(waldur, "agent").move(order, "reject_by_provider", {}) == 200
    assert _states(waldur, order) == ("rejected", rejected)


@pytest.mark.parametrize(
    ("state", "action", "status"),
    [
        (state, action, 200 if state in allowed else 409)
        for action, allowed in {
            "approve_by_provider": {OrderState.PENDING_PROVIDER},
            "reject_by_provider": {OrderState.PENDING_PROVIDER},
            "set_state_done": {OrderState.EXECUTING},
            "set_state_executing": {
                OrderState.PENDING_CONSUMER,
                OrderState.PENDING_PROVIDER,
                OrderState.ERRED,
            },
            "set_state_erred": set(OrderState),
        }.items()
        for state in OrderState
        if state is not OrderState.PENDING_PROJECT
    ],
)
def test_states_allowed(waldur: SimulatedWaldur, state: OrderState, action: str, status: int) -> None:
    order = _place(waldur, "Create")
    waldur.site.change("orders", order, state=state, start_date=None)
    assert Caller(waldur, "agent").move(order, action, _TEXTS) == status


def test_an_update_replaces_all_limits(waldur: SimulatedWaldur, agent: Caller) -> None:
    order = _place(waldur, "Update")
    assert agent.order(order)["attributes"]["old_limits"] == {"cpu": 1000, "mem": 2000, "gpu": 10}
    agent.move(order, "approve_by_provider", {})
    agent.move(order, "set_state_done")
    assert waldur.resource(waldur.seed.resource_uuids[0]).limits == {"cpu": 5}


def test_plan_switch_and_option_change(waldur: SimulatedWaldur, agent: Caller) -> None:
    resource, plans = waldur.seed.resource_uuids[0], waldur.seed.plan_uuids
    for order in (
        waldur.orders.place_plan_switch(resource, plans[1]),
        waldur.orders.place_option_change(resource, {"partition": "long"}),
    ):
        agent.move(order, "approve_by_provider", {})
        agent.move(order, "set_state_done")
    changed = waldur.resource(resource)
    assert changed.plan_uuid == plans[1]
    assert changed.options == {"partition": "long"}
    assert changed.limits["cpu"] == 1000
    assert agent.read(f"marketplace-plans/{plans[1]}/")["quotas"]["cpu"] == 20


@pytest.mark.parametrize("missing", ["error_message", "error_traceback"])
def test_set_state_erred_needs_both_texts(waldur: SimulatedWaldur, agent: Caller, missing: str) -> None:
    order = _place(waldur, "Create")
    body = {name: text for name, text in _TEXTS.items() if name != missing}
    answer = agent.post(f"marketplace-orders/{order}/set_state_erred/", body)
    assert answer.status_code == 500
    assert answer.headers["Content-Type"].startswith("text/html")


def test_erring_a_done_order_breaks_its_healthy_resource(waldur: SimulatedWaldur, agent: Caller) -> None:
    order = _place(waldur, "Create")
    agent.move(order, "approve_by_provider", {})
    agent.move(order, "set_state_done")
    assert agent.move(order, "set_state_erred", _TEXTS) == 200
    assert _states(waldur, order) == ("done", "Erred")
    assert agent.order(order)["error_message"] == "boom"


def test_the_processor_runs_after_the_answer(start: StartWaldur) -> None:
    waldur = start("8.0", scenario=_WITH_RESOURCE, settings=Settings(processor_delay_s=30))
    agent, order = Caller(waldur, "agent"), _place(waldur, "Terminate")
    agent.move(order, "approve_by_provider", {})
    assert _states(waldur, order) == ("executing", "OK")
    waldur.site.advance(31)
    assert _states(waldur, order) == ("executing", "Terminating")


def test_a_processor_that_comes_after_done_changes_nothing(start: StartWaldur) -> None:
    waldur = start("8.0", scenario=_WITH_RESOURCE, settings=Settings(processor_delay_s=30))
    agent, order = Caller(waldur, "agent"), _place(waldur, "Update")
    agent.move(order, "approve_by_provider", {})
    agent.move(order, "set_state_done")
    assert waldur.site.run_background() == 1
    assert _states(waldur, order) == ("done", "OK")


def test_the_processor_may_lose_the_backend_id_once(start: StartWaldur) -> None:
    settings = Settings(processor_delay_s=30, loses_backend_id=True)
    waldur = start("8.0", scenario=_WITH_RESOURCE, settings=settings)
    agent, order = Caller(waldur, "agent"), _place(waldur, "Create")
    path = f"marketplace-provider-resources/{waldur.order(order).resource_uuid}/set_backend_id/"
    agent.move(order, "approve_by_provider", {})
    agent.post(path, {"backend_id": "hpc_new"})
    waldur.site.run_background()
    assert waldur.resource(waldur.order(order).resource_uuid).backend_id == ""
    agent.post(path, {"backend_id": "hpc_new"})
    waldur.site.run_background()
    assert waldur.resource(waldur.order(order).resource_uuid).backend_id == "hpc_new"


def test_a_start_date_ahead_parks_the_order(waldur: SimulatedWaldur, agent: Caller) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()
    order = waldur.orders.place_create(
        waldur.seed.project_uuids[0], "later", options=OrderOptions(start_date=tomorrow)
    )
    agent.move(order, "approve_by_provider", {})
    assert agent.order(order)["state"] == "pending-start-date"
    assert agent.move(order, "set_state_done") == 409
    waldur.site.advance(2 * 86400)
    assert agent.order(order)["state"] == "executing"


def test_a_project_that_starts_later_holds_its_orders(waldur: SimulatedWaldur, agent: Caller) -> None:
    project = waldur.seed.project_uuids[0]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    waldur.site.change("projects", project, start_date=tomorrow)
    order = _place(waldur, "Create")
    assert agent.order(order)["state"] == "pending-project"
    waldur.site.advance(2 * 86400)
    assert agent.order(order)["state"] == "pending-provider"


def test_the_end_date_of_a_resource_orders_its_termination(waldur: SimulatedWaldur, agent: Caller) -> None:
    resource = waldur.seed.resource_uuids[0]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    waldur.site.change("resources", resource, end_date=tomorrow)
    assert agent.read("marketplace-orders/", state="pending-provider") == []
    waldur.site.advance(2 * 86400)
    orders = agent.read("marketplace-orders/", state="pending-provider")
    assert [(o["type"], o["marketplace_resource_uuid"]) for o in orders] == [("Terminate", resource)]


@pytest.mark.parametrize("limits", [{"cpu": 1.5}, {"cpu": -1}, {"cpu": None}, {"nonsense": 1}, {}])
def test_the_control_surface_places_what_no_consumer_could(
    waldur: SimulatedWaldur, agent: Caller, limits: dict[str, Any]
) -> None:
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "odd", limits=limits, slug="a,b")
    assert agent.order(order)["limits"] == limits
    assert agent.resource(waldur.order(order).resource_uuid)["slug"] == "a,b"


def test_approval_may_add_attributes(waldur: SimulatedWaldur, agent: Caller) -> None:
    order = _place(waldur, "Create")
    agent.move(order, "approve_by_provider", {"attributes": {"note": "yes"}})
    assert agent.order(order)["attributes"] == {"name": "new", "note": "yes"}


@pytest.mark.parametrize("action", ["set_state_executing", "set_state_erred", "set_state_done"])
def test_state_actions_are_for_slurm_offerings(start: StartWaldur, action: str) -> None:
    waldur = start("8.0", scenario=Scenario(offering_type="OpenStack.Tenant"))
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "cloud")
    assert Caller(waldur, "agent").move(order, action, _TEXTS) == 405


def test_a_slurm_order_cannot_be_canceled_but_deleted(waldur: SimulatedWaldur) -> None:
    consumer, order = Caller(waldur, "consumer"), _place(waldur, "Create")
    assert consumer.move(order, "cancel", {}) == 405
    assert consumer.send("DELETE", f"marketplace-orders/{order}/").status_code == 204
    assert consumer.get(f"marketplace-orders/{order}/").status_code == 404


def test_a_new_resource_gives_its_members_accounts(waldur: SimulatedWaldur, agent: Caller) -> None:
    newcomer = "late.comer"
    project = waldur.seed.project_uuids[0]
    waldur.people.add_user(newcomer)
    waldur.site.change("resources", waldur.seed.resource_uuids[0], state="Terminated")
    waldur.people.add_member(project, newcomer)
    assert waldur.people.account(newcomer) is None
    order = _place(waldur, "Create")
    agent.move(order, "approve_by_provider", {})
    agent.move(order, "set_state_done")
    account = waldur.people.account(newcomer)
    assert account is not None
    assert (account.username, account.state.value) == ("", "Requested")
    assert waldur.resource(waldur.order(order).resource_uuid).state is ResourceState.OK
