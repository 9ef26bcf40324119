# SPDX-License-Identifier: MIT
"""Pages are read a few at once, within one bound, and a listing is whole or not used as before."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from agent.core.errors import WaldurAnswerError, WaldurError
from agent.waldur import pool
from agent.waldur.client import WaldurClient
from agent.waldur.listing import AT_ONCE, Bounds
from tests.agent.waldur.clients import QUICK, client_at
from tests.agent.waldur.conftest import StartStandIn
from tests.agent.waldur.stand_in import Answer, Asked, html, in_turn, says

PATH = "marketplace-offering-users/"
SIZE = 10
WAIT_S = 600.0

# Another answer for a page, by its number; None for the usual one.
Odd = Callable[[int], Answer | None]


class Pages:
    """A listing of `count` items in pages of SIZE, whatever size is asked for; notes how many are asked for at once."""

    def __init__(self, count: int, odd: Odd = lambda _: None, **headers: str) -> None:
        self.count = count
        self.odd = odd
        self.headers = {"X_Result_Count": str(count), **headers}
        self.asked: Counter[int] = Counter()
        self.most = 0
        self._open = 0
        self._lock = threading.Lock()
        # The pages between the first and the last are answered once so many are asked for.
        self.gate = threading.Barrier(1)

    def __call__(self, asked: Asked) -> Answer:
        number = int(dict(asked.query).get("page", "1"))
        with self._lock:
            self.asked[number] += 1
            self._open += 1
            self.most = max(self.most, self._open)
        try:
            if 1 < number < math.ceil(self.count / SIZE):
                with suppress(threading.BrokenBarrierError):
                    self.gate.wait(WAIT_S)
            return self.odd(number) or self.page(number)
        finally:
            with self._lock:
                self._open -= 1

    def page(self, number: int, **headers: str) -> Answer:
        first = (number - 1) * SIZE
        items = [{"uuid": f"{n:032x}"} for n in range(first, min(first + SIZE, self.count))]
        if first + SIZE < self.count:
            headers = {"Link": f'</api/x/?page={number + 1}&page_size=300>; rel="next"', **headers}
        return says(items, **{**self.headers, **headers})


def numbers(client: WaldurClient) -> list[int]:
    return [int(item["uuid"], 16) for item in client.pages(PATH)]


def test_pages_after_the_first_are_asked_for_at_once_and_come_in_their_order(stand_in: StartStandIn) -> None:
    pages = Pages(SIZE * (2 * AT_ONCE + 2))
    pages.gate = threading.Barrier(AT_ONCE)
    assert numbers(client_at(stand_in(pages).url)) == list(range(pages.count))
    assert pages.most == AT_ONCE
    assert set(pages.asked.values()) == {1}


def test_listings_at_the_same_time_share_the_bound(stand_in: StartStandIn) -> None:
    pages = Pages(SIZE * 13)
    client = client_at(stand_in(pages).url)
    with pool.calls_in_threads(3) as start:
        found = [start(lambda: numbers(client)) for _ in range(3)]
        assert [each.result() for each in found] == [list(range(pages.count))] * 3
    assert pages.most <= AT_ONCE
    assert set(pages.asked.values()) == {3}


def test_without_a_count_one_page_is_asked_for_after_the_other(stand_in: StartStandIn) -> None:
    pages = Pages(SIZE * 6 - 1, X_Result_Count="")
    assert numbers(client_at(stand_in(pages).url)) == list(range(pages.count))
    assert pages.most == 1
    assert pages.asked.total() == 6


def test_nothing_is_asked_for_before_it_may_be_needed(stand_in: StartStandIn) -> None:
    """Who takes items of the first page only has paid for no other."""
    pages = Pages(SIZE * 6)
    items = client_at(stand_in(pages).url).pages(PATH)
    assert [next(items) for _ in range(SIZE)]
    items.close()
    assert pages.asked == {1: 1}


ODD = {
    "gone": (says({"detail": "Invalid page."}, 404), "became shorter while it was read"),
    "an error of the server": (says({"detail": "down"}, 500), "500: down"),
    "html": (html("<title>Log in</title>"), "the answer is not JSON .*'Log in'"),
    "an object": (says({"results": []}), "not a list of objects"),
    "cut off": (Answer(body=b'[{"uuid": "a"}', sent=7), "Connection broken"),
    "no JSON": (Answer(body=b'[{"uuid": "a"}'), "the answer is not JSON"),
}


@pytest.mark.parametrize(("answer", "words"), ODD.values(), ids=ODD)
def test_one_bad_page_among_many_makes_the_listing_unusable(
    stand_in: StartStandIn, answer: Answer, words: str
) -> None:
    pages = Pages(SIZE * 9, lambda number: answer if number == 4 else None)
    with pytest.raises(WaldurError, match=words):
        numbers(client_at(stand_in(pages).url))


def test_a_page_that_does_not_come_in_time_makes_the_listing_unusable(stand_in: StartStandIn) -> None:
    pages = Pages(
        SIZE * 5, lambda number: Answer(body=b" " * 60_000, trickle="body") if number == 3 else None
    )
    client = client_at(stand_in(pages).url, bounds=Bounds(answer_s=0.3))
    with pytest.raises(WaldurError, match=r"the answer took longer than 0\.3 s"):
        numbers(client)


@pytest.mark.parametrize(
    "fault", [says({}, 503), Answer(hang_up=True), Answer(body=b"[{}]", sent=2)], ids=["503", "gone", "cut"]
)
def test_a_page_that_comes_the_second_time_is_as_good(stand_in: StartStandIn, fault: Answer) -> None:
    failing = in_turn(fault, says([]))
    first = threading.Event()

    def odd(number: int) -> Answer | None:
        if number != 4 or first.is_set():
            return None
        first.set()
        return failing(Asked(method="GET", target="", headers={}, body=b"", connection=("", 0)))

    pages = Pages(SIZE * 9, odd)
    assert numbers(client_at(stand_in(pages).url, attempts=3)) == list(range(pages.count))
    assert pages.asked.total() == 10


@pytest.mark.parametrize("page", [2, 3, 4])
def test_a_list_that_grows_while_it_is_read_comes_with_what_was_added(
    stand_in: StartStandIn, page: int
) -> None:
    pages = Pages(SIZE * 4)

    def odd(number: int) -> Answer | None:
        if number == page:
            pages.count, pages.headers["X_Result_Count"] = SIZE * 7, str(SIZE * 7)
        return None

    pages.odd = odd
    found = numbers(client_at(stand_in(pages).url))
    assert found == list(range(SIZE * 7))


def test_the_last_page_is_asked_for_when_all_others_are_there(stand_in: StartStandIn) -> None:
    pages = Pages(SIZE * 4)
    early: list[int] = []

    def odd(number: int) -> Answer | None:
        if number in (2, 3):
            time.sleep(0.1)
            early.append(pages.asked[4])
        return None

    pages.odd = odd
    assert numbers(client_at(stand_in(pages).url)) == list(range(pages.count))
    assert early == [0, 0]


def test_a_list_that_shrinks_while_it_is_read_is_not_used(stand_in: StartStandIn) -> None:
    """Its end came one page earlier than the count of the first page said."""
    pages = Pages(SIZE * 6)
    pages.odd = lambda number: (
        says([{"uuid": f"{n:032x}"} for n in range(40, 49)], X_Result_Count=str(SIZE * 5 - 1))
        if number == 5
        else None
    )
    with pytest.raises(WaldurAnswerError, match="60 items were announced, 49 came"):
        numbers(client_at(stand_in(pages).url))


def test_pages_that_are_all_the_same_are_no_listing(stand_in: StartStandIn) -> None:
    """A server, or a cache in front of it, that does not heed `page`."""
    pages = Pages(SIZE * 6)
    pages.odd = lambda number: pages.page(1) if number > 1 else None
    with pytest.raises(WaldurAnswerError, match="the pages lead in a circle"):
        numbers(client_at(stand_in(pages).url))


def test_links_that_lead_elsewhere_are_followed_and_little_is_asked_in_vain(stand_in: StartStandIn) -> None:
    pages = Pages(SIZE * 12)
    pages.odd = lambda number: (
        pages.page(number, Link=f'</api/x/?page={number + 1}&cursor=c{number}>; rel="next"')
        if number < 12
        else None
    )
    assert numbers(client_at(stand_in(pages).url)) == list(range(pages.count))
    assert pages.asked.total() <= 12 + AT_ONCE


@pytest.mark.parametrize("count", ["1000000000000000000", "9" * 40])
def test_a_count_beyond_all_measure_starts_no_flood(stand_in: StartStandIn, count: str) -> None:
    pages = Pages(SIZE * 3, X_Result_Count=count)
    with pytest.raises(WaldurAnswerError, match="items were announced, 30 came"):
        numbers(client_at(stand_in(pages).url))
    # It is read once more, as if it had changed in the meantime.
    assert pages.asked.total() <= 2 * (3 + AT_ONCE + 1)


def test_bounds_hold_for_pages_that_are_asked_for_ahead(stand_in: StartStandIn) -> None:
    pages = Pages(SIZE * 40)
    with pytest.raises(WaldurAnswerError, match="it goes on after 3 pages"):
        numbers(client_at(stand_in(pages).url, bounds=Bounds(listing_pages=3)))
    assert max(pages.asked) == 3


def test_a_server_that_throttles_gets_one_request_after_the_other_and_nothing_is_lost(
    stand_in: StartStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that were under way are refused; they come again one by one, and so does what follows."""
    monkeypatch.setattr("agent.http.pace.APART_S", 0.1)
    pages = Pages(SIZE * 9)
    pages.gate = threading.Barrier(AT_ONCE)
    refused: set[int] = set()
    lock = threading.Lock()

    def odd(number: int) -> Answer | None:
        with lock:
            if number == 1 or number in refused or len(refused) == AT_ONCE:
                return None
            refused.add(number)
            if len(refused) == AT_ONCE:
                pages.gate.abort()
                pages.most = 0
        return says({"detail": "Request was throttled."}, 429, Retry_After="1")

    pages.odd = odd
    client = client_at(stand_in(pages).url, attempts=4, timeouts=QUICK)
    assert numbers(client) == list(range(pages.count))
    assert pages.asked.total() == 9 + AT_ONCE == client.sent.total()


def test_a_listing_for_which_no_caller_waits_any_more_ends(stand_in: StartStandIn) -> None:
    begun, failed = threading.Event(), threading.Event()

    def script(asked: Asked) -> Answer:
        number = int(dict(asked.query).get("page", "1"))
        begun.set()
        failed.wait(WAIT_S)
        return says([{"uuid": str(number)}], Link=f'</api/x/?page={number + 1}>; rel="next"')

    client = client_at(stand_in(script).url)
    with suppress(ZeroDivisionError), pool.calls_in_threads(1) as start:
        reading = start(lambda: list(client.pages(PATH)))
        begun.wait(WAIT_S)
        raise ZeroDivisionError
    failed.set()
    with pytest.raises(WaldurAnswerError, match="no caller waits for it any more"):
        reading.result(WAIT_S)
