# SPDX-License-Identifier: MIT
"""A held plan with all its actions, and its approval by the same function as the command's."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus

from tornado.web import HTTPError

from agent.cli import approve, full_passes
from agent.cli.web.handler import Handler
from agent.cli.web.roles import Role
from agent.run.diagnosis import picture
from agent.run.diagnosis.picture import WaitingPlan

APPROVAL_LASTS = timedelta(hours=24)
LONGEST_REASON = 500


class Plan(Handler):
    """A held plan with all its actions; and its approval."""

    async def _plan(self, plan_id: str) -> WaitingPlan:
        settings = self.console.settings
        waiting = await self.console.do(lambda: picture.waiting_plans(settings.state_dir, settings.offerings))
        found = next((each for each in waiting if each.plan.id == plan_id), None)
        if found is None:
            raise HTTPError(
                HTTPStatus.NOT_FOUND, "this plan is not held any more: nothing wants it, or it is done"
            )
        return found

    async def get(self, plan_id: str) -> None:
        found = await self._plan(plan_id)
        self.show("console_plan", each=found, marks=" ".join(found.plan.marks))

    async def post(self, plan_id: str) -> None:
        if self.login is None or self.login.role is not Role.OPERATOR:
            raise HTTPError(HTTPStatus.FORBIDDEN, "you may look: only an operator approves a plan")
        reason = " ".join(self.get_body_argument("reason").split())[:LONGEST_REASON]
        if not reason:
            raise HTTPError(HTTPStatus.BAD_REQUEST, "say why: the journal has it beside your name")
        found, settings, by = await self._plan(plan_id), self.console.settings, f"{self.login.name} (console)"
        shown = frozenset(self.get_body_argument("shown").split())

        def work() -> None:
            approve.release(settings, found, lasts=APPROVAL_LASTS, by=by, reason=reason, shown=shown)
            full_passes.queue(settings, found.held.offering)

        await self.console.do(work)
        self.redirect(f"/plan/{plan_id}", status=HTTPStatus.SEE_OTHER)


ROUTES = [("/plan/([0-9a-f]{64})", Plan)]
