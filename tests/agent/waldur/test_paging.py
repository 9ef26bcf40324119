# SPDX-License-Identifier: MIT
"""Lists come whole or not at all: pages of any size, odd headers, lists that change while they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent.core.errors import WaldurAnswerError, WaldurError
from agent.core.model import ResourceState
from agent.waldur import members, orders, resources, teams
from agent.waldur.client import OLDEST_FIRST, WaldurClient
from agent.waldur.listing import PAGE_SIZE, Bounds
from simulator.control.experiments import OrderOptions
from simulator.server.waldur import SimulatedWaldur
from tests.agent.waldur.clients import TOKEN, client_at
from tests.agent.waldur.conftest import StartStandIn
from tests.agent.waldur.stand_in import Answer, Asked, html, says

PATH = "marketplace-orders/"


def place(waldur: SimulatedWaldur, count: int) -> list[str]:
    project = waldur.seed.project_uuids[0]
    return [waldur.place_create_order(project, f"Order {n}", limits={"cpu": 1}) for n in range(count)]


@pytest.mark.parametrize(
    ("page_size", "count", "requests"),
    [
        (10, 0, 1), (10, 10, 1), (10, 11, 2), (10, 35, 4), (100, 99, 1), (100, 101, 2), (300, 300, 1),
        (300, 301, 2),
    ],
)  # fmt: skip
def test_every_order_comes_once_whatever_the_servers_page_size(
    waldur: SimulatedWaldur, client: WaldurClient, page_size: int, count: int, requests: int
) -> None:
    waldur.site.configure(page_size_max=page_size)
    placed = place(waldur, count)
    assert [order.uuid for order in orders.actionable(client)] == placed
    assert waldur.requests.count("GET marketplace-orders/") == requests == client.sent.total()


def test_the_first_page_is_asked_for_with_the_largest_size_and_the_fields(
    waldur: SimulatedWaldur, client: WaldurClient
) -> None:
    waldur.site.configure(page_size_max=10)
    place(waldur, 11)
    orders.actionable(client)
    first, second = waldur.requests.entries("GET marketplace-orders/")
    for asked in (first.path, second.path):
        assert f"page_size={PAGE_SIZE}" in asked
        assert "field=uuid" in asked
        assert "state=executing" in asked
        assert f"offering_uuid={waldur.seed.offering_uuid}" in asked
    assert "page=2" in second.path


ITEM = {"uuid": "a"}
COMPLETE = [
    pytest.param({}, id="no headers"),
    pytest.param({"X_Result_Count": "1"}, id="a count, no link"),
    pytest.param({"Link": '<http://x/api/list/?page=1>; rel="first"'}, id="a link to the first page only"),
    pytest.param({"Link": ""}, id="an empty link"),
    pytest.param({"Link": "garbage, <<>>;;; rel"}, id="a link that is none"),
    pytest.param({"X_Result_Count": "many"}, id="a count in words"),
    pytest.param({"X_Result_Count": "-1"}, id="a negative count"),
    pytest.param({"X_Result_Count": "\u00b2"}, id="a count in superscript"),
    pytest.param({"X_Result_Count": "0"}, id="a count too small"),
    pytest.param({"X_Result_Count": ""}, id="an empty count"),
]


@pytest.mark.parametrize("headers", COMPLETE)
def test_a_page_without_a_next_link_is_the_last(stand_in: StartStandIn, headers: dict[str, str]) -> None:
    server = stand_in(lambda _: says([ITEM], **headers))
    assert list(client_at(server.url).pages(PATH)) == [ITEM]
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "link",
    [
        "<{own}?page=2>; rel=next",
        '<{own}?page=2>; rel="next"',
        '<{own}?page=1>; rel="first", <{own}?page=2>; rel="next", <{own}?page=2>; rel="last"',
        '</api/marketplace-orders/?page=2>; rel="next"',
        '<https://127.0.0.1/waldur/api/marketplace-orders/?page=2>; rel="next"',
    ],
)
def test_next_links_in_all_spellings(stand_in: StartStandIn, link: str) -> None:
    def script(asked: Asked) -> Answer:
        if ("page", "2") in asked.query:
            return says([{"uuid": "b"}])
        return says([ITEM], Link=link.format(own=f"{server.url}{PATH}"))

    server = stand_in(script)
    assert [item["uuid"] for item in client_at(server.url).pages(PATH)] == ["a", "b"]
    assert {asked.target.partition("?")[0] for asked in server.asked} == {f"/api/{PATH}"}


def test_a_next_link_to_another_host_gets_no_request_and_no_token(stand_in: StartStandIn) -> None:
    """A Waldur behind a proxy that hides the host prints such links: their query is asked of our own address."""
    elsewhere = stand_in(lambda _: says([{"uuid": "stolen"}]))

    def script(asked: Asked) -> Answer:
        if ("page", "2") in asked.query:
            return says([{"uuid": "b"}], X_Result_Count="2")
        return says([ITEM], X_Result_Count="2", Link=f'<{elsewhere.url}{PATH}?page=2>; rel="next"')

    server = stand_in(script)
    assert [item["uuid"] for item in client_at(server.url).pages(PATH)] == ["a", "b"]
    assert elsewhere.asked == []
    assert all(asked.headers["Authorization"] == f"Token {TOKEN}" for asked in server.asked)


def test_lists_are_asked_for_in_an_order(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    orders.actionable(client)
    resources.listed(client, [ResourceState.OK])
    resources.holders_of(client, "lab")
    members.offering_users(client)
    provider = teams.provider_uuid(client, waldur.store.offerings[waldur.seed.offering_uuid].customer_uuid)
    before = len(waldur.requests.entries())
    teams.of_projects(client, provider)
    asked = [entry for entry in waldur.requests.entries() if entry.method == "GET"]
    del asked[before - 1]  # the provider: one
    assert len(asked) == 5
    assert all(f"o={OLDEST_FIRST}" in entry.path for entry in asked)


def test_a_server_that_cannot_sort_so_is_asked_without_and_once_only(stand_in: StartStandIn) -> None:
    def script(asked: Asked) -> Answer:
        if dict(asked.query).get("o"):
            return says({"o": ["Select a valid choice. created is not one of the available choices."]}, 400)
        return says([ITEM], X_Result_Count="1")

    server = stand_in(script)
    client = client_at(server.url)
    for _ in range(2):
        assert list(client.pages(PATH, order=OLDEST_FIRST)) == [ITEM]
    assert [dict(asked.query).get("o") for asked in server.asked] == ["created", None, None]


def test_another_refusal_is_not_taken_for_one_of_the_order(stand_in: StartStandIn) -> None:
    server = stand_in(lambda _: says({"offering_uuid": ["Enter a valid UUID."]}, 400))
    with pytest.raises(WaldurError, match=r"offering_uuid: Enter a valid UUID\."):
        list(client_at(server.url).pages(PATH, order=OLDEST_FIRST))
    assert len(server.asked) == 1


def paged(*pages: list[dict[str, str]], **headers: str) -> Callable[[Asked], Answer]:
    """Pages by number, each but the last with a link to the next."""

    def script(asked: Asked) -> Answer:
        number = int(dict(asked.query).get("page", "1"))
        link = {"Link": f'</api/x/?page={number + 1}>; rel="next"'} if number < len(pages) else {}
        return says(pages[number - 1], **link, **headers)

    return script


def test_an_item_that_comes_twice_stands_for_no_other(stand_in: StartStandIn) -> None:
    """One came before the first while the list was read: the second page begins with what the first ended with."""
    a, b, c = ({"uuid": name} for name in "abc")
    client = client_at(stand_in(paged([a, b], [b, c], X_Result_Count="4")).url)
    with pytest.raises(WaldurAnswerError, match="4 items were announced, 3 came"):
        list(client.pages(PATH))
    harmless = client_at(stand_in(paged([a, b], [b, c], X_Result_Count="3")).url)
    assert list(harmless.pages(PATH)) == [a, b, c]


def test_items_without_uuid_are_distinguished_by_what_they_hold(stand_in: StartStandIn) -> None:
    roles = [{"user_uuid": "a", "role": "admin"}, {"user_uuid": "a", "role": "member"}]
    client = client_at(stand_in(lambda _: says(roles, X_Result_Count="2")).url)
    assert list(client.pages("permissions/")) == roles
    twice = client_at(stand_in(lambda _: says([roles[0], roles[0]], X_Result_Count="2")).url)
    with pytest.raises(WaldurAnswerError, match="2 items were announced, 1 came"):
        list(twice.pages("permissions/"))


@pytest.mark.parametrize("size", [10, 100, 300, 301])
def test_a_full_page_without_a_count_is_not_taken_for_the_last(stand_in: StartStandIn, size: int) -> None:
    items = [{"uuid": str(n)} for n in range(size)]
    bare = client_at(stand_in(lambda _: says(items)).url)
    with pytest.raises(WaldurAnswerError, match=rf"its last page is full \({size} items\).*proxy"):
        list(bare.pages(PATH))
    counted = client_at(stand_in(lambda _: says(items, X_Result_Count=str(size))).url)
    assert list(counted.pages(PATH)) == items


@pytest.mark.parametrize("size", [10, 300, 301])
def test_a_team_comes_whole_and_has_no_count(stand_in: StartStandIn, size: int) -> None:
    people = [{"uuid": f"{n:032x}"} for n in range(size)]
    assert len(members.team(client_at(stand_in(lambda _: says(people)).url), "a")) == size


def test_pages_without_end(stand_in: StartStandIn) -> None:
    def script(asked: Asked) -> Answer:
        number = int(dict(asked.query).get("page", "1"))
        return says([{"uuid": str(number)}], Link=f'</api/x/?page={number + 1}>; rel="next"')

    server = stand_in(script)
    for bounds, words in (
        (Bounds(listing_pages=7), "it goes on after 7 pages"),
        (Bounds(listing_bytes=50), r"it goes on after \d+ pages with \d+ bytes"),
        (Bounds(listing_s=-1), "it goes on after -1 s"),
    ):
        with pytest.raises(WaldurAnswerError, match=words):
            list(client_at(server.url, bounds=bounds).pages(PATH))


INCOMPLETE = [
    pytest.param(says([ITEM], X_Result_Count="2"), "2 items were announced, 1 came", id="too few"),
    pytest.param(says([], X_Result_Count="5"), "5 items were announced, 0 came", id="none"),
    pytest.param(
        says([ITEM], Link='</api/x/?page=2>; rel="next"'), "the pages lead in a circle", id="a circle"
    ),
    pytest.param(says([ITEM], Link='</api/x/>; rel="next"'), "names no page", id="a link without a page"),
    pytest.param(says({"results": []}), "not a list of objects", id="an object"),
    pytest.param(says(None), "not a list of objects", id="null"),
    pytest.param(says([1]), "not a list of objects", id="numbers"),
    pytest.param(says([ITEM, None]), "not a list of objects", id="one null among objects"),
    pytest.param(html("<title>Log in</title>"), "not JSON (text/html; charset=utf-8): 'Log in'", id="html"),
    pytest.param(Answer(body=b""), "the answer is not JSON", id="nothing"),
    pytest.param(Answer(body=b"\xff\xfe\x00\xd8"), "the answer is not JSON", id="bytes"),
    pytest.param(Answer(body=b"[" * 100_000), "it is nested in more than 64 levels", id="nested too deeply"),
    pytest.param(Answer(body=b'[{"uuid": "a"}', headers={}), "not JSON (no type)", id="no type"),
]


@pytest.mark.parametrize(("answer", "words"), INCOMPLETE)
def test_half_a_list_is_an_error(stand_in: StartStandIn, answer: Answer, words: str) -> None:
    server = stand_in(lambda _: answer)
    with pytest.raises(WaldurAnswerError) as caught:
        list(client_at(server.url).pages(PATH))
    assert words in str(caught.value)
    assert f"GET {PATH}" in str(caught.value)
    assert caught.value.retryable


@pytest.mark.parametrize("answer", [says([]), says("text"), says(None), says(7)])
def test_an_object_is_expected_where_one_thing_is_asked_for(stand_in: StartStandIn, answer: Answer) -> None:
    server = stand_in(lambda _: answer)
    with pytest.raises(WaldurAnswerError, match="the answer is not an object"):
        client_at(server.url).get("marketplace-plans/1/")


def test_a_list_from_which_an_order_leaves_while_it_is_read_is_read_once_more(
    waldur: SimulatedWaldur, client: WaldurClient
) -> None:
    """Those behind it move one place forward, over the edge of a page that was read already."""
    waldur.site.configure(page_size_max=10)
    placed = place(waldur, 25)
    pages = client.pages(PATH, [("state", "pending-provider")])
    seen = [next(pages)]
    waldur.site.change("orders", placed[3], state="canceled")
    found = [item["uuid"] for item in [*seen, *pages]]
    assert sorted(found) == sorted(placed)


def test_a_list_that_changes_while_it_is_read_once_more_is_incomplete(
    waldur: SimulatedWaldur, client: WaldurClient
) -> None:
    waldur.site.configure(page_size_max=10)
    placed = place(waldur, 35)
    pages = client.pages(PATH, [("state", "pending-provider")])
    next(pages)
    waldur.site.change("orders", placed[3], state="canceled")
    with pytest.raises(WaldurAnswerError, match="34 items were announced, 33 came"):  # noqa: PT012  a change in between
        for item in pages:
            # The one that the first reading has missed.
            if item["uuid"] == placed[10]:
                waldur.site.change("orders", placed[12], state="canceled")


def test_an_order_that_comes_while_the_list_is_read_does_no_harm(
    waldur: SimulatedWaldur, client: WaldurClient
) -> None:
    waldur.site.configure(page_size_max=10)
    placed = place(waldur, 15)
    pages = client.pages(PATH, [("state", "pending-provider")])
    seen = [next(pages)]
    placed += place(waldur, 10)
    assert [item["uuid"] for item in [*seen, *pages]] == placed


def test_a_page_that_has_gone_is_not_a_missing_endpoint(
    waldur: SimulatedWaldur, client: WaldurClient
) -> None:
    """Waldur answers 404 beyond the last page: the listing is to be read again, the endpoint is there."""
    waldur.site.configure(page_size_max=10)
    placed = place(waldur, 11)
    pages = client.pages(PATH, [("state", "pending-provider")])
    next(pages)
    waldur.site.change("orders", placed[0], state="canceled")
    assert {item["uuid"] for item in pages} == set(placed[1:])


def test_a_page_that_has_gone_does_not_switch_a_feature_off(
    waldur: SimulatedWaldur, client: WaldurClient, stand_in: StartStandIn
) -> None:
    def script(asked: Asked) -> Answer:
        if ("page", "2") in asked.query:
            return says({"detail": "Invalid page."}, 404)
        return says([], Link='</api/x/?page=2>; rel="next"')

    late = client_at(stand_in(script).url)
    with pytest.raises(WaldurAnswerError):
        members.project_accounts(late)
    assert all(late.if_supported(listing) for listing in members.ACCOUNT_LISTS)


@pytest.mark.parametrize("read", ["actionable", "offering_users", "project_accounts"])
def test_no_area_makes_do_with_half_a_list(stand_in: StartStandIn, read: str) -> None:
    calls: dict[str, Any] = {
        "actionable": orders.actionable,
        "offering_users": members.offering_users,
        "project_accounts": members.project_accounts,
    }
    server = stand_in(lambda _: says([], X_Result_Count="1"))
    with pytest.raises(WaldurAnswerError, match="the listing is incomplete and not used"):
        calls[read](client_at(server.url))


def test_approved_orders_are_listed_too(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    (uuid,) = place(waldur, 1)
    orders.approve(client, uuid)
    waiting = waldur.orders.place_create(
        waldur.seed.project_uuids[0], "Unapproved", options=OrderOptions(is_approved=False, author="consumer")
    )
    assert [order.uuid for order in orders.actionable(client)] == [uuid]
    assert waldur.order(waiting).state.value == "pending-consumer"
