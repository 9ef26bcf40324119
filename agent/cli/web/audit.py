# SPDX-License-Identifier: MIT
"""The journal, searched: what was done to whom, why, by whom, and with which result."""

from __future__ import annotations

from datetime import UTC, datetime

from agent.cli.audit import in_words
from agent.cli.web.listing import PER_PAGE, ListHandler
from agent.core.account_names import fold
from agent.state import journal
from agent.state.journal import Query
from agent.state.store import stamp


class Audit(ListHandler):
    async def get(self) -> None:
        listing, settings = self.listing("account", "user", "until"), self.console.settings
        others = listing.others
        # Further pages are of the journal as it was at the first one.
        until = _moment(others["until"]) or datetime.now(UTC)
        others["until"] = until.isoformat()
        # What a person did to all offerings at once names none.
        offerings = frozenset({"", *(each.uuid for each in settings.offerings)})
        query = Query(
            user=fold(others["user"]), account=fold(others["account"]), offerings=offerings, until=until
        )
        lines, has_more = await self.console.search(
            lambda: journal.latest(
                settings.state_dir, query, listing.text.split(), skipped=listing.first, count=PER_PAGE
            )
        )
        words = [in_words(line, query.account) for line in lines]
        self.show(
            "console_audit",
            listing=listing,
            lines=words,
            has_more=has_more,
            as_of=stamp(until),
        )


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


ROUTES = [("/audit", Audit)]
