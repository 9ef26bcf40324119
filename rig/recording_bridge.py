# SPDX-License-Identifier: MIT
"""`python -m rig.recording_bridge FILE`: the bridge, which writes down what comes, and what it acknowledges.

Each message of the test has a number. It is written to FILE after the message's jobs are queued and just before it is
acknowledged, and to FILE.received when it comes.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

from agent.bridge import service
from agent.bridge.dispatcher import Dispatcher
from agent.bridge.inbox import Inbox
from agent.bridge.model import Gap, Received
from agent.cli.main import run

NUMBER = "number"


def record(file: str, item: Received) -> None:
    number = json.loads(item.body).get(NUMBER)
    if number is not None:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{number}\n".encode())
        os.close(descriptor)


class RecordingInbox(Inbox):
    def put(self, received: Received) -> None:
        record(f"{sys.argv[1]}.received", received)
        super().put(received)

    def put_volatile(self, received: Received) -> bool:
        record(f"{sys.argv[1]}.received", received)
        return super().put_volatile(received)


class RecordingDispatcher(Dispatcher):
    def handle(self, item: Received | Gap) -> None:
        if isinstance(item, Received):
            received = item
            item = replace(
                item, acknowledge=lambda: (record(sys.argv[1], received), received.acknowledge())[-1]
            )
        super().handle(item)


if __name__ == "__main__":
    service.Dispatcher = RecordingDispatcher  # type: ignore[misc]
    service.Inbox = RecordingInbox  # type: ignore[misc]
    sys.exit(run(["bridge"]))
