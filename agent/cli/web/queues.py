# SPDX-License-Identifier: MIT
"""Queues, workers and the services of this host."""

from __future__ import annotations

from agent.cli.web.handler import Handler
from agent.host import heartbeat


class Queues(Handler):
    async def get(self) -> None:
        console = self.console
        broker = await console.broker()
        beats = await console.do(lambda: list(heartbeat.last_heartbeats(console.settings.state_dir)))
        self.show("console_queues", broker=broker, beats=beats, flower=console.settings.flower_url)


ROUTES = [("/queues", Queues)]
