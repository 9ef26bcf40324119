# SPDX-License-Identifier: MIT
"""A held plan with its actions by account, and what an operator decides about it by the functions of the commands."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus

from tornado.web import HTTPError

from agent.cli import approve, full_passes
from agent.cli.audit import AuditLine, in_words
from agent.cli.web.acts import Act
from agent.cli.web.listing import PER_PAGE, ListHandler, Listing
from agent.core.account_names import fold
from agent.run.diagnosis import picture
from agent.run.diagnosis.picture import WaitingPlan
from agent.state import journal
from agent.state.held_plans import HeldRow, kind_of, subject_of
from agent.state.journal import Query

APPROVAL_LASTS = timedelta(hours=24)
LINES_OF_PLAN = 20
FORGOTTEN = "this plan is not held any more: nothing wants it, or it is done"


class Plan(Act, ListHandler):
    """A held plan with its actions; and its approval, what revokes it, and that a person leaves it."""

    async def _plan(self, plan_id: str) -> WaitingPlan:
        settings = self.console.settings
        waiting = await self.console.do(lambda: picture.waiting_plans(settings.state_dir, settings.offerings))
        found = next((each for each in waiting if each.plan.id == plan_id), None)
        if found is None:
            raise HTTPError(HTTPStatus.NOT_FOUND, FORGOTTEN)
        return found

    async def get(self, plan_id: str) -> None:
        listing, found = self.listing(), await self._plan(plan_id)
        content = await self.console.do(lambda: self._content(found, listing))
        self.show("console_plan", each=found, listing=listing, per_page=PER_PAGE, **content)

    def _content(self, found: WaitingPlan, listing: Listing) -> dict[str, object]:
        name = fold(listing.text)
        groups = [
            (account, people)
            for account, people in grouped(found.plan)
            if name in account or any(name in person for person in people)
        ]
        return {
            "marks": " ".join(found.plan.marks),
            "groups": groups[listing.first : listing.first + PER_PAGE],
            "total": len(groups),
            "kinds": Counter(map(kind_of, found.plan.lines)),
            "said": self._said(found),
        }

    def _said(self, found: WaitingPlan) -> list[AuditLine]:
        """Return what people have done about the plan, newest first."""
        query = Query(offerings=frozenset({found.held.offering.uuid}))
        words = ('"operator"', found.plan.short_id)
        state_dir = self.console.settings.state_dir
        lines, _ = journal.latest(state_dir, query, words, skipped=0, count=LINES_OF_PLAN)
        return [in_words(line) for line in lines]

    async def post(self, plan_id: str) -> None:
        by, reason, act = self.operator(), self.reason(), self.get_body_argument("act")
        settings = self.console.settings
        if act == "revoke":
            await self.console.act(lambda: approve.revoke(settings, plan_id, by=by, reason=reason))
            # The plan itself may be gone.
            self.done("/")
            return
        found, shown = await self._plan(plan_id), frozenset(self.get_body_argument("shown").split())

        def work() -> None:
            if act == "approve":
                approve.release(settings, found, lasts=APPROVAL_LASTS, by=by, reason=reason, shown=shown)
                full_passes.queue(settings, found.held.offering)
            elif act == "leave":
                approve.leave(settings, found, by=by, reason=reason)
            else:
                raise HTTPError(HTTPStatus.BAD_REQUEST, "there is no such act")

        await self.console.act(work)
        self.done(f"/plan/{plan_id}")


def grouped(plan: HeldRow) -> list[tuple[str, Mapping[str, list[str]]]]:
    """Return the lines of a plan by account, then by person; empty for what is about neither."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for key, line in plan.lines.items():
        account, person = subject_of(key)
        groups[account][person].append(line)
    return [(account, dict(sorted(people.items()))) for account, people in sorted(groups.items())]


ROUTES = [("/plan/([0-9a-f]{64})", Plan)]
