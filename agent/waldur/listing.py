# SPDX-License-Identifier: MIT
"""Judge whether the pages of a listing are all of it: a part is never taken for the whole. The client asks it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl

from agent.core.bounded_json import values_in
from agent.core.errors import WaldurAnswerError
from agent.http import client
from agent.http.answers import Answer
from agent.waldur import pool

PAGE_SIZE = 300
# What servers make of `page_size`, or of none: such a page may have others behind it.
PAGE_SIZES = frozenset({10, 100, PAGE_SIZE})

# Pages of fewer values (300 resources with all their fields have 92,000) are counted with the commas in their texts.
COUNTED_ROUGHLY = 100_000

# Pages asked for before the one in front of them is read, over all listings of a client.
AT_ONCE = 4
PAGE = "page"

Query = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Bounds(client.Bounds):
    """How much is taken from Waldur: of one answer, and of a listing's pages together."""

    listing_s: float = 900.0
    listing_bytes: int = 512 * 2**20
    listing_values: int = 10_000_000
    listing_pages: int = 5000


class ListingChanged(WaldurAnswerError):
    """Fewer items came than were announced: some came or went while the pages were read."""


class Listing:
    """The pages of one listing so far. Every method raises WaldurAnswerError where the listing is not to be used,
    ListingChanged where it may be whole when it is read again.

    `is_paged` is false where Waldur sends the whole at once, without a count. `before`: what an earlier reading of the
    same listing has found, which is not returned again.
    """

    def __init__(self, path: str, bounds: Bounds, *, is_paged: bool, before: Listing | None = None) -> None:
        self._path = path
        self._bounds = bounds
        self._is_paged = is_paged
        self._ends_s = time.monotonic() + bounds.listing_s
        self._size = 0
        self._values = 0
        self._count = 0
        self._per_page = 0
        self._announced = 0
        self._different: set[str | bytes] = set()
        self._returned: frozenset[str | bytes] = frozenset(before._different) if before else frozenset()
        self._asked: set[Query] = set()

    @property
    def is_first(self) -> bool:
        return len(self._asked) == 1

    def begin_anew(self) -> None:
        """Forget that the first page was asked for: it is asked for in another way."""
        self._asked.clear()

    def begin_page(self, query: Query) -> None:
        """Note that a page is asked for."""
        if query in self._asked:
            raise self.incomplete("the pages lead in a circle")
        bounds = self._bounds
        if len(self._asked) >= bounds.listing_pages or self._size > bounds.listing_bytes:
            raise self.incomplete(f"it goes on after {len(self._asked)} pages with {self._size} bytes")
        if self._values > bounds.listing_values:
            raise self.incomplete(f"it goes on after {len(self._asked)} pages with {self._values} values")
        if time.monotonic() > self._ends_s:
            raise self.incomplete(f"it goes on after {bounds.listing_s:g} s, {len(self._asked)} pages")
        if pool.is_abandoned():
            raise self.incomplete("no caller waits for it any more")
        self._asked.add(query)

    def items(self, page: Any) -> list[Mapping[str, Any]]:
        """Return the items of a page that no page before had."""
        if not isinstance(page, list) or not all(isinstance(item, dict) for item in page):
            raise self.incomplete("the page is not a list of objects")
        self._count = len(page)
        self._per_page = self._per_page or self._count
        fresh = {identity: item for item in page if (identity := _identity(item)) not in self._different}
        self._different |= fresh.keys()
        return [item for identity, item in fresh.items() if identity not in self._returned]

    def next_page(self, answer: Answer) -> Query | None:
        """Return what asks for the page after this one; None after the last, when all items have come."""
        self._size += len(answer.content)
        self._values += values_in(answer.content, exact_above=COUNTED_ROUGHLY)
        # The largest count counts: what left the list while it was read moved others past the page's edge.
        count = answer.headers.get("X-Result-Count", "")
        is_counted = count.isdecimal() and count.isascii()
        self._announced = max(self._announced, int(count[:18]) if is_counted else 0)
        if answer.next_url is not None:
            query = tuple(
                sorted(parse_qsl(answer.next_url.partition("?")[2].partition("#")[0], keep_blank_values=True))
            )
            if not query:
                raise self.incomplete("the link to the next page names no page")
            return query
        is_full = self._count in PAGE_SIZES or self._count > PAGE_SIZE
        if self._is_paged and not is_counted and is_full:
            raise self.incomplete(
                f"its last page is full ({self._count} items), and no X-Result-Count says that these are all. Look "
                "whether a proxy takes this header away"
            )
        if len(self._different) < self._announced:
            raise self.changed(f"{self._announced} items were announced, {len(self._different)} came")
        return None

    def ahead(self, query: Query) -> Iterator[Query]:
        """Yield what asks for the pages that the count announces, from `query` on; only `query` where pages have no
        numbers or no count.

        Never the last one: it is asked for when all others are there, so that it has what came while the others were
        read.
        """
        yield query
        number = dict(query).get(PAGE, "")
        if not (number.isdecimal() and number.isascii() and self._per_page):
            return
        pages = min(math.ceil(self._announced / self._per_page), self._bounds.listing_pages)
        for other in range(int(number[:9]) + 1, pages):
            yield tuple((name, str(other) if name == PAGE else value) for name, value in query)

    def incomplete(
        self, problem: str, kind: type[WaldurAnswerError] = WaldurAnswerError
    ) -> WaldurAnswerError:
        return kind(
            f"GET {self._path}: {problem}: the listing is incomplete and not used",
            method="GET",
            path=self._path,
        )

    def changed(self, problem: str) -> WaldurAnswerError:
        return self.incomplete(problem, ListingChanged)


def _identity(item: Mapping[str, Any]) -> str | bytes:
    """Return what distinguishes an item from the others of its list; of those that have no uuid a digest."""
    uuid = item.get("uuid")
    if isinstance(uuid, str) and uuid:
        return uuid
    return blake2b(repr(sorted(item.items())).encode("utf-8", "surrogatepass"), digest_size=16).digest()
