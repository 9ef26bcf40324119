# SPDX-License-Identifier: MIT
"""A bridge in the test's own process, with an outbox that only writes down: for what happens before the queue."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType

import pytest

from agent.bridge import connection
from agent.bridge.dead_letters import DeadLetters
from agent.bridge.service import Bridge, BridgeParts
from agent.config.model import Mode, Settings
from agent.core.backoff import Backoff
from agent.core.events import Job, ObjectType, QueueUnavailable
from agent.run import site as sites
from agent.run.service import services
from agent.state.dead_letters import DeadLetter
from agent.waldur.identities import Program
from rig.processes import wait_until

STARTED = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Written:
    """Jobs in the order in which they came, and heartbeats. `is_away`: it takes nothing."""

    jobs: list[Job] = field(default_factory=list)
    heartbeats: dict[str, frozenset[Mode]] = field(default_factory=dict)
    is_away: bool = False
    refusals: int = 0

    def send(self, job: Job) -> bool:
        if self.is_away:
            self.refusals += 1
            raise QueueUnavailable("the queue is away, as the test wants it")
        self.jobs.append(job)
        return True

    def send_heartbeat(self, offering_uuid: str, modes: Iterable[Mode]) -> None:
        if self.is_away:
            raise QueueUnavailable("the queue is away, as the test wants it")
        self.heartbeats[offering_uuid] = frozenset(modes)


class RunningBridge:
    """`with RunningBridge(settings) as bridge`: runs in a thread, and is stopped as by SIGTERM."""

    def __init__(self, settings: Settings, *, instance: str = "test", outbox: Written | None = None) -> None:
        self.offerings = [o for o in settings.offerings if services.wanted_types(o)]
        self.outbox = outbox or Written()
        self.state_dir = settings.state_dir
        self.bridge = Bridge(
            BridgeParts(
                offerings=self.offerings,
                clients={o.uuid: sites.client(o, "event_process") for o in self.offerings},
                program=Program("1.0", {"celery": "5"}, "/etc/site.yaml", STARTED),
                outbox=self.outbox,
                state_dir=self.state_dir,
                instance=instance,
            ),
            tick_s=0.05,
        )
        self._thread = threading.Thread(target=self.bridge.run, daemon=True)

    def __enter__(self) -> RunningBridge:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.bridge.stop()
        self._thread.join()

    @property
    def counts(self) -> Counter[str]:
        return self.bridge.dispatcher.counts

    def types(self) -> frozenset[ObjectType]:
        return self.bridge.listened_to(self.offerings[0].uuid)

    def listens(self) -> RunningBridge:
        """Wait until the messages about orders come in, and the full pass for the time before is asked for."""
        wait_until("it listens", lambda: ObjectType.ORDER in self.types() and bool(self.outbox.jobs))
        return self

    def dead_letters(self) -> list[DeadLetter]:
        return DeadLetters(self.state_dir).all()


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits as short as tests need them, and limits that no slow machine reaches."""
    short = Backoff(base_s=0.1, cap_s=0.3)
    monkeypatch.setattr(connection, "RECONNECT", short)
    monkeypatch.setattr("agent.bridge.service.PREPARE_AGAIN", short)
    monkeypatch.setattr("agent.bridge.service.REPAIR_S", 0.2)
    for limit in (
        *("service.DRAIN_S", "service.CLOSE_S", "stomp.CONNECT_TIMEOUT_S", "stomp.SILENCE_S"),
        *("proxy.CONNECT_TIMEOUT_S", "mqtt.CONNECT_TIMEOUT_S", "mqtt.KEEPALIVE_S"),
    ):
        monkeypatch.setattr(f"agent.bridge.{limit}", 600)
    monkeypatch.setattr("agent.bridge.stomp.HEARTBEATS_MS", (600_000, 600_000))
