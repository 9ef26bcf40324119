# SPDX-License-Identifier: MIT
"""The first page: what needs a look."""

from __future__ import annotations

from agent.cli import status_page
from agent.cli.web.handler import Handler
from agent.run.diagnosis import picture


class Home(Handler):
    async def get(self) -> None:
        console = self.console
        broker = await console.broker()
        settings = console.settings
        text = await console.do(
            lambda: status_page.content(picture.of_site(settings, settings.offerings, broker), {})
        )
        self.show("status", **text)


ROUTES = [("/", Home)]
