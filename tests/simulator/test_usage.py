# SPDX-License-Identifier: MIT
"""Usage reports: what is stored, what is refused, and in which shape."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import ComponentSpec, Scenario
from tests.simulator.caller import Caller
from tests.simulator.conftest import StartWaldur

_AREA = "marketplace-component-usages"
_COMPONENTS = (
    ComponentSpec(type="cpu", name="CPU", measured_unit="h"),
    ComponentSpec(type="gpu", name="GPU", measured_unit="h", billing_type="usage"),
    ComponentSpec(
        type="io", name="IO", measured_unit="TB", billing_type="usage", limit_period="month", limit_amount=10
    ),
    ComponentSpec(type="setup", name="Setup", measured_unit="", billing_type="one"),
)
_NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
_APRIL = "2026-04-10T00:00:00Z"


@pytest.fixture
def waldur(start: StartWaldur) -> SimulatedWaldur:
    waldur = start("8.0", scenario=Scenario(components=_COMPONENTS, allocations_per_project=1))
    waldur.store.clock.freeze(_NOW)
    return waldur


def _report(caller: Caller, waldur: SimulatedWaldur, usages: list[Any], **more: Any) -> Any:
    body = {"resource": waldur.seed.resource_uuids[0], "usages": usages, **more}
    return caller.post(f"{_AREA}/set_usage/", body)


def _item(amount: Any, name: str = "cpu", **more: Any) -> dict[str, Any]:
    return {"type": name, "amount": amount, **more}


def test_values_are_set_not_added(waldur: SimulatedWaldur, agent: Caller) -> None:
    for amount in ("12.5", 3, "7.25"):
        answer = _report(agent, waldur, [_item(amount)])
        assert (answer.status_code, answer.content) == (201, b"")
    rows = agent.read(f"{_AREA}/", resource_uuid=waldur.seed.resource_uuids[0])
    assert [(r["type"], r["usage"], r["billing_period"]) for r in rows] == [("cpu", "7.25", "2026-05-01")]
    assert agent.resource(waldur.seed.resource_uuids[0])["current_usages"] == {"cpu": 7.25}


@pytest.mark.parametrize(
    ("amount", "ok"),
    [
        *((amount, True) for amount in ("1.12", "-1", 0, "9" * 18, "1e3")),
        *((amount, False) for amount in ("1.123", "9" * 19, "x", "", None, True, "NaN")),
    ],
)
def test_amounts(waldur: SimulatedWaldur, agent: Caller, amount: Any, ok: bool) -> None:
    answer = _report(agent, waldur, [_item(1, "gpu"), _item(amount)])
    assert answer.status_code == (201 if ok else 400)
    if not ok:
        empty, problem = answer.json()["usages"]
        assert (empty, list(problem)) == ({}, ["amount"])
        assert agent.read(f"{_AREA}/") == []


@pytest.mark.parametrize(
    ("usages", "key"),
    [
        ([], "usages"),
        ([{"amount": 1}], "usages"),
        ([_item(1, "nothing")], "non_field_errors"),
        ([_item(1), _item(1, "setup")], "non_field_errors"),
        ([_item(11, "io")], "non_field_errors"),
    ],
)
def test_refusals_store_nothing(waldur: SimulatedWaldur, agent: Caller, usages: Any, key: str) -> None:
    answer = _report(agent, waldur, usages)
    assert (answer.status_code, list(answer.json())) == (400, [key])
    assert agent.read(f"{_AREA}/") == []


def test_repeating_a_limited_value_can_fail(waldur: SimulatedWaldur, agent: Caller) -> None:
    assert _report(agent, waldur, [_item(6, "io")]).status_code == 201
    assert _report(agent, waldur, [_item(6, "io")]).status_code == 400


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("OK", 201),
        ("Updating", 201),
        ("Terminating", 201),
        ("Creating", 400),
        ("Erred", 400),
        ("Terminated", 400),
    ],
)
def test_states_that_take_usage(waldur: SimulatedWaldur, agent: Caller, state: str, status: int) -> None:
    waldur.site.change("resources", waldur.seed.resource_uuids[0], state=state)
    assert _report(agent, waldur, [_item(1)]).status_code == status


@pytest.mark.parametrize(
    ("username", "date", "component", "status"),
    [
        ("agent", "2026-05-01T00:00:00Z", "gpu", 201),
        ("agent", _APRIL, "cpu", 201),
        ("agent", _APRIL, "gpu", 400),
        ("agent", "2026-05-21T00:00:00Z", "cpu", 400),
        ("agent", "nonsense", "cpu", 400),
        ("staff", _APRIL, "gpu", 201),
        ("agent-offering-manager", "2026-05-01T00:00:00Z", "cpu", 400),
        ("consumer", "2026-05-01T00:00:00Z", "cpu", 403),
    ],
)
def test_dates(waldur: SimulatedWaldur, username: str, date: str, component: str, status: int) -> None:
    answer = _report(Caller(waldur, username), waldur, [_item(1, component)], date=date)
    assert answer.status_code == status
    if status == 400:
        assert list(answer.json()) == ["date"]


def test_months_are_kept_apart(waldur: SimulatedWaldur, agent: Caller) -> None:
    _report(agent, waldur, [_item(1)], date=_APRIL)
    _report(agent, waldur, [_item(2)])
    waldur.site.advance(timedelta(days=31).total_seconds())
    _report(agent, waldur, [_item(3)])
    april = agent.read(f"{_AREA}/", billing_period="2026-04-01")
    assert [row["usage"] for row in april] == ["1.00"]
    assert len(agent.read(f"{_AREA}/", billing_period_year="2026")) == 3
    assert len(agent.read(f"{_AREA}/", date_after="2026-05-01", date_before="2026-05-31")) == 1


def test_a_plan_period_stands_for_its_resource(waldur: SimulatedWaldur, agent: Caller) -> None:
    base = f"marketplace-provider-resources/{waldur.seed.resource_uuids[0]}"
    period = agent.read(f"{base}/plan_periods/")[0]["uuid"]
    body = {"plan_period": period, "usages": [_item(4)]}
    assert agent.post(f"{_AREA}/set_usage/", body).status_code == 201
    assert agent.post(f"{_AREA}/set_usage/", {"usages": [_item(4)]}).status_code == 400


def test_a_resource_without_plan(waldur: SimulatedWaldur, agent: Caller) -> None:
    waldur.site.change("resources", waldur.seed.resource_uuids[0], plan_uuid=None)
    assert _report(agent, waldur, [_item(4)]).status_code == 400


def _row(waldur: SimulatedWaldur, agent: Caller) -> str:
    _report(agent, waldur, [_item(9)])
    uuid: str = agent.read(f"{_AREA}/")[0]["uuid"]
    return uuid


def test_usage_of_users(waldur: SimulatedWaldur, agent: Caller) -> None:
    row = _row(waldur, agent)
    member = waldur.seed.members[waldur.seed.project_uuids[0]][0]
    account = waldur.people.account(member)
    assert account is not None
    url = f"{waldur.url}marketplace-offering-users/{account.uuid}/"
    item = {"username": account.username, "usage": "5.5", "user": url}
    assert agent.post(f"{_AREA}/{row}/set_user_usage/", item).status_code == 201
    many = {"usages": [item | {"usage": 6}, {"username": "stranger"}]}
    assert agent.post(f"{_AREA}/{row}/set_user_usages/", many).status_code == 201
    users = agent.read("marketplace-component-user-usages/", component_usage__billing_period="2026-05-01")
    assert [(u["username"], u["usage"], u["user"]) for u in users] == [
        (account.username, "6.00", url),
        ("stranger", "0.00", None),
    ]


def test_bulk_usage_of_users_is_all_or_nothing(waldur: SimulatedWaldur, agent: Caller) -> None:
    row = _row(waldur, agent)
    for usages in ([], [{"username": "a", "usage": 1}, {"username": "b", "usage": "1.234"}], [{"usage": 1}]):
        assert agent.post(f"{_AREA}/{row}/set_user_usages/", {"usages": usages}).status_code == 400
    assert agent.read("marketplace-component-user-usages/") == []


def test_limits_of_users_count_what_is_stored(waldur: SimulatedWaldur, agent: Caller) -> None:
    resource, row = waldur.seed.resource_uuids[0], _row(waldur, agent)
    member = waldur.seed.members[waldur.seed.project_uuids[0]][0]
    waldur.site.add_user_limit(resource, member, component_type="cpu", limit=10)
    limit = agent.read("component-user-usage-limits/", resource_uuid=resource)[0]
    assert (limit["limit"], limit["component_type"]) == ("10.00", "cpu")
    item = {"username": "m", "usage": 6, "user": limit["user"]}
    assert agent.post(f"{_AREA}/{row}/set_user_usage/", item).status_code == 201
    assert agent.post(f"{_AREA}/{row}/set_user_usage/", item).status_code == 400


def test_usage_of_users_in_an_earlier_month(waldur: SimulatedWaldur, agent: Caller) -> None:
    row = _row(waldur, agent)
    item = {"username": "m", "usage": 6, "date": _APRIL}
    assert agent.post(f"{_AREA}/{row}/set_user_usage/", item).status_code == 201
    april = agent.read(f"{_AREA}/", billing_period="2026-04-01")
    assert [r["usage"] for r in april] == ["0.00"]


def test_8_1_fills_an_empty_total_from_its_users(start: StartWaldur) -> None:
    waldur = start("8.1", scenario=Scenario(allocations_per_project=1))
    agent = Caller(waldur, "agent")
    _report(agent, waldur, [_item(0)])
    row = agent.read(f"{_AREA}/")[0]["uuid"]
    users = {"usages": [{"username": "a", "usage": 1}, {"username": "b", "usage": "2.5"}]}
    agent.post(f"{_AREA}/{row}/set_user_usages/", users)
    assert agent.read(f"{_AREA}/{row}/")["usage"] == "3.50"


@pytest.mark.parametrize(
    ("zone", "date", "month"),
    [
        ("UTC", "2026-05-01T00:00:00+09:00", "2026-04-01"),
        ("Asia/Tokyo", "2026-05-01T00:00:00+09:00", "2026-05-01"),
        ("America/Chicago", "2026-05-01T00:00:00Z", "2026-04-01"),
        ("America/Chicago", "2026-05-01T12:00:00Z", "2026-05-01"),
    ],
)
def test_a_month_begins_in_the_zone_of_the_server(
    waldur: SimulatedWaldur, agent: Caller, zone: str, date: str, month: str
) -> None:
    waldur.store.clock.zone = ZoneInfo(zone)
    assert _report(agent, waldur, [_item(1)], date=date).status_code == 201
    assert [r["billing_period"] for r in agent.read(f"{_AREA}/")] == [month]
