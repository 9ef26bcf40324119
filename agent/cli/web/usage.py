# SPDX-License-Identifier: MIT
"""Usage of an offering with its charts, by the template of `usage --html`, as a worker has read it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from markupsafe import Markup
from tornado.web import HTTPError

from agent.cli import pages
from agent.cli.usage import sections
from agent.cli.web.acts import Act
from agent.cli.web.looks import Asked, ask, asked
from agent.config.model import Mode, Offering
from agent.run.usage import stored
from agent.state.hints import USAGES
from agent.state.overview import Seen

KEY = ""


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
        self.show("usage", **await self.console.do(lambda: self._content(self._served(offering_uuid))))

    def _content(self, offering: Offering) -> dict[str, Any]:
        about: Asked[dict[str, Any]] = asked(self.console, USAGES, offering.uuid, KEY)
        return {
            "offerings": [{"name": offering.name, "span": ""}],
            "articles": self._articles(offering, about.found) if about.found else "",
            "look": about,
            "path": self.request.path,
        }

    def _articles(self, offering: Offering, found: Seen[dict[str, Any]]) -> Markup:
        """Return the part of the page that takes long for many accounts: made once of what a worker has left."""
        known = self.console.usages.get(offering.uuid)
        if known is None or known[0] != found.changed:
            failed = {offering.name: str(found.value["error"])} if "error" in found.value else {}
            views = [] if failed else [stored.from_json(found.value)]
            shown = [sections.offering(view) for view in views]
            known = (found.changed, pages.part("usage_articles", offerings=shown, failed=failed))
            self.console.usages[offering.uuid] = known
        return known[1]

    async def post(self, offering_uuid: str) -> None:
        offering = self._served(offering_uuid)

        def work() -> None:
            ask(self.console, asked(self.console, USAGES, offering.uuid, KEY), KEY, "usage", offering)

        await self.console.act(work)
        self.done(self.request.path)


ROUTES = [("/usage", Usages), ("/usage/([0-9a-f]{32})", Usage)]
