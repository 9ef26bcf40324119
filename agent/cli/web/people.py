# SPDX-License-Identifier: MIT
"""People, as the last passes over members saw them: names, accounts, and what happened to each."""

from __future__ import annotations

from http import HTTPStatus

from tornado.web import HTTPError

from agent.cli.audit import in_words
from agent.cli.web.allocations import EVENTS_SHOWN
from agent.cli.web.handler import UUID, Handler
from agent.cli.web.listing import ListHandler
from agent.run.diagnosis import picture
from agent.state import blocked, journal, overview
from agent.state.held_plans import subject_of
from agent.state.hints import SEEN_PEOPLE
from agent.state.journal import Query

ACCOUNTS_SHOWN = 200


class People(ListHandler):
    async def get(self) -> None:
        await self.show_seen("console_people", SEEN_PEOPLE, self.listing())


class Person(Handler):
    async def get(self, offering_uuid: str, key: str) -> None:
        content = await self.console.do(lambda: self._content(offering_uuid, key))
        self.show("console_person", **content)

    def _content(self, offering_uuid: str, key: str) -> dict[str, object]:
        settings = self.console.settings
        offering = settings.offering(offering_uuid)
        seen = overview.one(settings.state_dir, SEEN_PEOPLE, offering_uuid, key)
        if offering is None or seen is None:
            raise HTTPError(
                HTTPStatus.NOT_FOUND, "no pass over members has seen this person, or the account has ended"
            )
        username = seen.value.username
        query = Query(user=username, offerings=frozenset({offering_uuid}))
        # A person without a name on the cluster is in no account, and in no line of the journal.
        events, has_more = (
            journal.latest(settings.state_dir, query, (), skipped=0, count=EVENTS_SHOWN)
            if username
            else ([], False)
        )
        held = (
            (
                each,
                [
                    line
                    for key, line in each.plan.lines.items()
                    if username and subject_of(key)[1] == username
                ],
            )
            for each in picture.waiting_plans(settings.state_dir, [offering])
        )
        accounts = (
            overview.of_member(settings.state_dir, offering_uuid, username, ACCOUNTS_SHOWN)
            if username
            else []
        )
        of_accounts = blocked.by_account(settings.state_dir, offering_uuid).items()
        return {
            "offering": offering,
            "seen": seen,
            "accounts": accounts,
            "accounts_shown": ACCOUNTS_SHOWN,
            "events": [in_words(line) for line in events],
            "has_more": has_more,
            "held": [(each, lines) for each, lines in held if lines],
            "closed": {account for account, users in of_accounts if username in users},
        }


ROUTES = [("/people", People), (f"/person/{UUID}/([^/]+)", Person)]
