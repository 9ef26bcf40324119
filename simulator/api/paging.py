# SPDX-License-Identifier: MIT
"""Cut a list into pages, with the two headers that describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Generic, TypeVar
from urllib.parse import urlencode

from simulator.rules.errors import detail
from simulator.world.store import Settings

T = TypeVar("T")
Query = dict[str, list[str]]

# Clients ask the same again and again.
_encoded = lru_cache(maxsize=256)(urlencode)


@dataclass(frozen=True)
class Page(Generic[T]):
    rows: Sequence[T]
    headers: dict[str, str]


def paginate(rows: Sequence[T], query: Query, *, url: str, settings: Settings) -> Page[T]:
    """Return the page asked for. Raises ApiError 404 for one past the end. `url` is absolute, without its query."""
    asked = query.get("page_size", [""])[-1]
    size = int(asked) if asked.isdigit() and int(asked) > 0 else settings.page_size_default
    size = min(size, settings.page_size_max)
    last = max(1, -(-len(rows) // size))
    asked = query.get("page", ["1"])[-1]
    if asked != "last" and (not asked.isdigit() or not 1 <= int(asked) <= last):
        raise detail(404, "Invalid page.")
    number = last if asked == "last" else int(asked)
    pages = {"first": 1, "prev": number - 1, "next": number + 1, "last": last}
    # Mostly one, which is first and last.
    addresses = {each: _address(url, query, each) for each in set(pages.values()) if 1 <= each <= last}
    links = [f'<{addresses[page]}>; rel="{rel}"' for rel, page in pages.items() if page in addresses]
    headers = {"X-Result-Count": str(len(rows)), "Link": ", ".join(links)}
    return Page(rows[(number - 1) * size : number * size], headers)


def _address(url: str, query: Query, number: int) -> str:
    """Return the URL of a page: parameters sorted by name, and no `page` for the first one."""
    parameters = [(name, value) for name in sorted(query) if name != "page" for value in query[name]]
    if number > 1:
        parameters = sorted([*parameters, ("page", str(number))], key=itemgetter(0))
    text = _encoded(tuple(parameters))
    return f"{url}?{text}" if text else url
