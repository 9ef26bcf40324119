# SPDX-License-Identifier: MIT
"""Pages, filters and fields: what every list of the API has in common."""

from __future__ import annotations

import re
from typing import Any

import pytest
import requests

from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.simulator.caller import Caller
from tests.simulator.conftest import StartWaldur


@pytest.fixture
def waldur(start: StartWaldur) -> SimulatedWaldur:
    """Twelve resources, of which two are Erred and three have been paused."""
    waldur = start("8.0", scenario=Scenario(projects_per_customer=4, allocations_per_project=3))
    for number, uuid in enumerate(waldur.seed.resource_uuids):
        waldur.site.change("resources", uuid, state="Erred" if number < 2 else "OK", paused=number < 3)
    return waldur


_LIST = "marketplace-provider-resources/"


def _rels(answer: requests.Response) -> dict[str, str]:
    return {rel: url for url, rel in re.findall(r'<([^>]+)>; rel="(\w+)"', answer.headers["Link"])}


@pytest.mark.parametrize(
    ("query", "rows", "rels"),
    [
        ({}, 10, {"first", "next", "last"}),
        ({"page": 2}, 2, {"first", "prev", "last"}),
        ({"page_size": 5, "page": 2}, 5, {"first", "prev", "next", "last"}),
        ({"page_size": 1000}, 12, {"first", "last"}),
        ({"page_size": "nonsense"}, 10, {"first", "next", "last"}),
        ({"page": "last", "page_size": 5}, 2, {"first", "prev", "last"}),
        ({"state": "Terminated"}, 0, {"first", "last"}),
    ],
)
def test_pages(agent: Caller, query: dict[str, Any], rows: int, rels: set[str]) -> None:
    answer = agent.get(_LIST, **query)
    assert (len(answer.json()), set(_rels(answer))) == (rows, rels)


def test_following_next_finds_everything_once(waldur: SimulatedWaldur, agent: Caller) -> None:
    waldur.site.configure(page_size_max=5)
    answer = agent.get(_LIST, offering_uuid=waldur.seed.offering_uuid, page_size=300, field=["uuid"])
    seen = [row["uuid"] for row in answer.json()]
    while "next" in _rels(answer):
        url = _rels(answer)["next"]
        assert url.startswith(waldur.url)
        answer = agent.get(url.removeprefix(waldur.url))
        seen += [row["uuid"] for row in answer.json()]
    assert seen == waldur.seed.resource_uuids
    assert answer.headers["X-Result-Count"] == "12"


@pytest.mark.parametrize("page", ["3", "0", "-1", "nonsense"])
def test_a_page_past_the_end(agent: Caller, page: str) -> None:
    answer = agent.get(_LIST, page=page)
    assert (answer.status_code, answer.json()) == (404, {"detail": "Invalid page."})


def test_head_counts_without_a_body(waldur: SimulatedWaldur, agent: Caller) -> None:
    answer = agent.send("HEAD", f"{_LIST}?state=Erred")
    assert (answer.headers["X-Result-Count"], answer.content) == ("2", b"")


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"state": ["OK", "Erred"]}, 12),
        ({"state": "Erred"}, 2),
        ({"paused": "true"}, 3),
        ({"paused": "False"}, 9),
        ({"paused": "nonsense"}, 12),
        ({"nonsense": "1"}, 12),
        ({"state": ""}, 12),
        ({"query": "allocation 1"}, 4),
        ({"modified": "2000-01-01T00:00:00Z"}, 12),
        ({"modified": "2999-01-01T00:00:00+00:00"}, 0),
        ({"offering_uuid": "00000000000000000000000000000000"}, 0),
    ],
)
def test_filters(agent: Caller, query: dict[str, Any], count: int) -> None:
    assert agent.get(_LIST, **query).headers["X-Result-Count"] == str(count)


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        (_LIST, "state", "ok"),
        (_LIST, "offering_uuid", "nonsense"),
        (_LIST, "modified", "yesterday"),
        ("marketplace-orders/", "state", "sleeping"),
        ("marketplace-orders/", "type", "Borrow"),
        ("marketplace-offering-users/", "state", "ok"),
        ("marketplace-component-usages/", "billing_period", "2026-13-01"),
        ("marketplace-component-usages/", "billing_period_year", "soon"),
    ],
)
def test_malformed_filters(agent: Caller, path: str, name: str, value: str) -> None:
    answer = agent.get(path, **{name: value})
    assert (answer.status_code, list(answer.json())) == (400, [name])


def test_uuids_in_either_spelling(waldur: SimulatedWaldur, agent: Caller) -> None:
    hex_form = waldur.seed.resource_uuids[0]
    parts = (hex_form[:8], hex_form[8:12], hex_form[12:16], hex_form[16:20], hex_form[20:])
    answer = agent.read(f"{_LIST}{'-'.join(parts).upper()}/")
    assert answer["uuid"] == hex_form


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        (["uuid", "state"], {"uuid", "state"}),
        (["uuid", "nonsense"], {"uuid"}),
    ],
)
def test_fields(agent: Caller, fields: list[str], keys: set[str]) -> None:
    assert all(row.keys() == keys for row in agent.read(_LIST, field=fields))
    one = agent.read(_LIST, page_size=1)[0]["uuid"]
    assert agent.read(f"{_LIST}{one}/", field=fields).keys() == keys


def test_only_unknown_fields_give_the_whole_object(agent: Caller) -> None:
    assert len(agent.read(_LIST, field=["nonsense"])[0]) > 50


def test_orders_can_be_sorted(waldur: SimulatedWaldur, agent: Caller) -> None:
    created = [o["created"] for o in agent.read("marketplace-orders/", o="-created")]
    assert created == sorted(created, reverse=True)
    assert [o["created"] for o in agent.read("marketplace-orders/")] == sorted(
        o["created"] for o in agent.read("marketplace-orders/")
    )


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "nonsense/", 404, "text/html"),
        ("POST", "marketplace-orders/0/nonsense/", 404, "text/html"),
        ("GET", "marketplace-orders/nonsense/", 404, "application/json"),
        ("PUT", "marketplace-orders/", 405, "application/json"),
        ("PATCH", "users/me/", 405, "application/json"),
    ],
)
def test_paths_that_lead_nowhere(agent: Caller, method: str, path: str, status: int, kind: str) -> None:
    answer = agent.send(method, path, {})
    assert answer.status_code == status
    assert answer.headers["Content-Type"].startswith(kind)


def test_a_forgotten_slash_is_added(waldur: SimulatedWaldur, agent: Caller) -> None:
    answer = agent.get("marketplace-orders?state=done")
    assert (answer.status_code, answer.headers["Location"]) == (
        301,
        f"{waldur.url}marketplace-orders/?state=done",
    )


def test_a_body_that_is_not_json(waldur: SimulatedWaldur) -> None:
    headers = {"Authorization": f"Token {waldur.token()}"}
    url = f"{waldur.url}marketplace-component-usages/set_usage/"
    answer = requests.post(url, data="{nonsense", headers=headers, timeout=600)
    assert answer.status_code == 400
