# SPDX-License-Identifier: MIT
"""Lists that are searched and paged on the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from agent.cli.web.handler import Handler
from agent.state import overview
from agent.state.hints import Hints

PER_PAGE = 50
LONGEST_SEARCH = 200
LAST_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of a list: what is searched, and which page it is."""

    path: str
    text: str
    page: int
    # Further arguments of the address, those of other fields of the search.
    others: dict[str, str]

    @property
    def first(self) -> int:
        return (self.page - 1) * PER_PAGE

    def to(self, page: int) -> str:
        """Return the address of another page of the list."""
        words = {"q": self.text, **self.others, "page": str(page) if page > 1 else ""}
        given = urlencode({name: value for name, value in words.items() if value})
        return f"{self.path}?{given}" if given else self.path


class ListHandler(Handler):
    """A page with a list."""

    def listing(self, *others: str) -> Listing:
        """Return what the address asks for; `others`: further arguments that it may have."""
        text = " ".join(self.get_query_argument("q", "").split())[:LONGEST_SEARCH]
        number = self.get_query_argument("page", "1")
        page = (
            min(int(number), LAST_PAGE) if number.isascii() and number.isdecimal() and len(number) < 9 else 1
        )
        given = {name: self.get_query_argument(name, "")[:LONGEST_SEARCH] for name in others}
        return Listing(self.request.path, text, max(page, 1), given)

    async def show_seen(
        self,
        page: str,
        kind: Hints[Any],
        listing: Listing,
        *,
        are_only_troubled: bool = False,
        **content: Any,
    ) -> None:
        """Answer with a page of what passes over members have seen, of all offerings."""
        offerings = {each.uuid: each.name for each in self.console.settings.offerings}
        found = await self.console.do(
            lambda: overview.find(
                self.console.settings.state_dir,
                kind,
                list(offerings),
                listing.text,
                first=listing.first,
                are_only_troubled=are_only_troubled,
            )
        )
        self.show(page, listing=listing, per_page=PER_PAGE, found=found, offerings=offerings, **content)
