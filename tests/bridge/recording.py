# SPDX-License-Identifier: MIT
"""`python -m tests.bridge.recording FILE`: the bridge, which writes down what it acknowledges, just before it does.

Each message of the test has a number; the number is written after the message's jobs are queued.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

from agent.bridge import service
from agent.bridge.dispatcher import Dispatcher
from agent.bridge.model import Gap, Received
from agent.cli.main import run

NUMBER = "number"


class Recording(Dispatcher):
    descriptor = -1

    def handle(self, item: Received | Gap) -> None:
        if isinstance(item, Received):
            told = item
            item = replace(item, acknowledge=lambda: self._record(told))
        super().handle(item)

    def _record(self, item: Received) -> None:
        number = json.loads(item.body).get(NUMBER)
        if number is not None:
            os.write(self.descriptor, f"{number}\n".encode())
        item.acknowledge()


if __name__ == "__main__":
    Recording.descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    service.Dispatcher = Recording  # type: ignore[misc]
    sys.exit(run(["bridge"]))
