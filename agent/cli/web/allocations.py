# SPDX-License-Identifier: MIT
"""Allocations, as the last passes over members saw them, and all that happened to each."""

from __future__ import annotations

from http import HTTPStatus

from tornado.web import HTTPError

from agent.cli.audit import in_words
from agent.cli.web.handler import UUID, Handler
from agent.cli.web.listing import ListHandler
from agent.config.model import Mode
from agent.core.account_names import fold
from agent.run.diagnosis import picture
from agent.run.usage import stored
from agent.state import journal, overview
from agent.state.held_plans import subject_of
from agent.state.hints import SEEN_ALLOCATIONS, USAGES
from agent.state.journal import Query

EVENTS_SHOWN = 30
MEMBERS_SHOWN = 500
MONTHS_SHOWN = 6


class Allocations(ListHandler):
    async def get(self) -> None:
        listing = self.listing("only")
        is_troubled = listing.others["only"] == "trouble"
        await self.show_seen(
            "console_allocations", SEEN_ALLOCATIONS, listing, are_only_troubled=is_troubled, only=is_troubled
        )


class Allocation(Handler):
    async def get(self, offering_uuid: str, resource_uuid: str) -> None:
        content = await self.console.do(lambda: self._content(offering_uuid, resource_uuid))
        self.show("console_allocation", **content)

    def _content(self, offering_uuid: str, resource_uuid: str) -> dict[str, object]:
        settings = self.console.settings
        offering = settings.offering(offering_uuid)
        seen = overview.one(settings.state_dir, SEEN_ALLOCATIONS, offering_uuid, resource_uuid)
        if offering is None or seen is None:
            raise HTTPError(
                HTTPStatus.NOT_FOUND, "no pass over members has seen this allocation, or it has ended"
            )
        account = fold(seen.value.account)
        query = Query(account=account, offerings=frozenset({offering_uuid}))
        events, has_more = (
            journal.latest(settings.state_dir, query, (), skipped=0, count=EVENTS_SHOWN)
            if account
            else ([], False)
        )
        names = [*seen.value.members[:MEMBERS_SHOWN], *seen.value.missing[:MEMBERS_SHOWN]]
        people = overview.people(settings.state_dir, offering_uuid, names)
        held = [
            each
            for each in picture.waiting_plans(settings.state_dir, [offering])
            if account and any(subject_of(key)[0] == account for key in each.plan.lines)
        ]
        usage = overview.one(settings.state_dir, USAGES, offering_uuid, "")
        unread = ""
        try:
            months, used = stored.of_account(usage.value, account) if usage and account else ([], [])
        except stored.DAMAGED:
            months, used, unread = [], [], stored.NOT_UNDERSTOOD
        return {
            "offering": offering,
            "seen": seen,
            "people": people,
            "members_shown": MEMBERS_SHOWN,
            "events": [in_words(line, account) for line in events],
            "has_more": has_more,
            "account": account,
            "months": months[:MONTHS_SHOWN],
            "used": used,
            "unread": unread,
            "has_usage": bool(offering.backend_of(Mode.REPORT)),
            "held": held,
        }


ROUTES = [("/allocations", Allocations), (f"/allocation/{UUID}/{UUID}", Allocation)]
