# SPDX-License-Identifier: MIT
"""Pause and resume an offering, and start a pass over it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from tornado.web import HTTPError

from agent.cli import full_passes, pause
from agent.cli.web.acts import Act
from agent.cli.web.handler import UUID
from agent.config.model import Mode
from agent.state import journal, pauses

PAUSES_H = (1, 4, 24, 72, 168)
STARTED = (Mode.ORDER_PROCESS, Mode.MEMBERSHIP_SYNC)


class Offering(Act):
    async def get(self, offering_uuid: str) -> None:
        offering, settings = self.offering(offering_uuid), self.console.settings
        paused = await self.console.do(lambda: pauses.pause_note(settings.state_dir, offering))
        modes = [each for each in STARTED if offering.backend_of(each) and each not in offering.stopped]
        self.show("console_offering", offering=offering, paused=paused, modes=modes, hours=PAUSES_H)

    async def post(self, offering_uuid: str) -> None:
        by, offering, settings = self.operator(), self.offering(offering_uuid), self.console.settings
        act, reason = self.get_body_argument("act"), self.reason()
        if act in STARTED:
            await self.console.act(lambda: self._start(Mode(act), offering_uuid, by, reason))
            self.done(f"/offering/{offering_uuid}")
            return
        hours = self.get_body_argument("hours", "")
        if act not in ("pause", "resume") or hours not in ("", *map(str, PAUSES_H)):
            raise HTTPError(HTTPStatus.BAD_REQUEST, "there is no such act")

        def work() -> None:
            if not self.has_shown(now := pauses.pause_note(settings.state_dir, offering)):
                changed = f"is paused {now}" if now else "is not paused any more"
                raise HTTPError(
                    HTTPStatus.CONFLICT, f"{offering.name} {changed}: nothing is changed, look again"
                )
            if act == "resume":
                pause.resume(settings, offering, by=by, reason=reason)
            else:
                until = datetime.now(UTC) + timedelta(hours=int(hours)) if hours else None
                pause.pause(settings, offering, by=by, reason=reason, until=until)

        await self.console.act(work)
        self.done(f"/offering/{offering_uuid}")

    def _start(self, mode: Mode, offering_uuid: str, by: str, reason: str) -> None:
        offering, settings = self.offering(offering_uuid), self.console.settings
        full_passes.start(settings, offering, {mode})
        text = f"started a pass of {mode} ({reason})"
        journal.note(settings.state_dir, offering, text, by=by, mode=mode)


ROUTES = [(f"/offering/{UUID}", Offering)]
