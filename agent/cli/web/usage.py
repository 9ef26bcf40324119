# SPDX-License-Identifier: MIT
"""Usage of an offering with its charts, by the template of `usage --html`, as a worker has read it."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from tornado.web import HTTPError

from agent.cli import pages
from agent.cli.usage import sections
from agent.cli.web.acts import Act
from agent.cli.web.handler import UUID
from agent.cli.web.looks import Asked, ask, asked
from agent.config.model import Mode, Offering
from agent.run.usage import stored
from agent.state.hints import USAGES
from agent.state.overview import Seen

KEY = ""
# A page that is not drawn by then says so, and comes again.
DRAWN_WITHIN_S = 0.2


class Usages(Act):
    """The offerings whose usage is reported."""

    def get(self) -> None:
        served = [each for each in self.console.settings.offerings if each.backend_of(Mode.REPORT)]
        if len(served) == 1:
            self.done(f"/usage/{served[0].uuid}")
        else:
            self.show("console_usages", offerings=served)


class Usage(Act):
    def _served(self, offering_uuid: str) -> Offering:
        offering = self.offering(offering_uuid)
        if not offering.backend_of(Mode.REPORT):
            raise HTTPError(HTTPStatus.NOT_FOUND, f"{offering.name} reports no usage")
        return offering

    async def get(self, offering_uuid: str) -> None:
        offering, console = self._served(offering_uuid), self.console
        about: Asked[dict[str, Any]] = await console.do(lambda: asked(console, USAGES, offering.uuid, KEY))
        if found := about.found:
            drawing = asyncio.get_running_loop().run_in_executor(
                console.at_drawing, lambda: self._draw(offering, found)
            )
            await asyncio.wait([drawing], timeout=DRAWN_WITHIN_S)
        known = console.usages.get(offering.uuid) if about.found else None
        self.show(
            "usage",
            offerings=[{"name": offering.name, "span": ""}],
            articles=known[1] if known else "",
            is_drawing=bool(about.found and (known is None or known[0] != about.found.changed)),
            look=about,
            path=self.request.path,
        )

    def _draw(self, offering: Offering, found: Seen[dict[str, Any]]) -> None:
        """Make the part of the page that takes long for many accounts, once of what a worker has left."""
        known = self.console.usages.get(offering.uuid)
        if known is not None and known[0] == found.changed:
            return
        failed, shown = {}, []
        try:
            if "error" in found.value:
                failed[offering.name] = str(found.value["error"])
            else:
                shown.append(sections.offering(stored.from_json(found.value)))
        except stored.DAMAGED:
            failed[offering.name] = stored.NOT_UNDERSTOOD
        drawn = pages.part("usage_articles", offerings=shown, failed=failed)
        self.console.usages[offering.uuid] = (found.changed, drawn)

    async def post(self, offering_uuid: str) -> None:
        offering = self._served(offering_uuid)
        await self.console.act(lambda: ask(self.console, USAGES, KEY, "usage", offering))
        self.done(self.request.path)


ROUTES = [("/usage", Usages), (f"/usage/{UUID}", Usage)]
