# SPDX-License-Identifier: MIT
"""The tasks without a broker: clock, queue and worker of one service in one process, as the reference's services are.

The queue is in the memory of this process. What waits in it is lost with the process, and the first pass after a
start finds it again. What is at work is known to the other services of this host (`tasks.queue.stores`).
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from celery import signals
from celery.beat import Service as BeatService
from celery.worker import state

from agent.config.model import Mode, Offering, Settings
from agent.config.secret import SecretUrl
from tasks import current
from tasks.celery import app
from tasks.queue import broker

log = logging.getLogger(__name__)

MEMORY = "memory://localhost/"
# Celery takes these before its own settings.
BROKER_VARIABLES = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
# So long what events have queued may take to be begun, when the service is stopped.
DRAIN_S = 10.0
PAUSE_S = 0.1


class Listener(Protocol):
    """A bridge: `run` returns after `stop`, with all that came in the queue."""

    def run(self) -> None: ...

    def stop(self) -> None: ...


class _Companions:
    """The threads next to the worker: the clock, and a bridge. When one of them fails, the process ends with 1."""

    def __init__(self, make_listener: Callable[[], Listener | None]) -> None:
        self._make_listener = make_listener
        self._listener: Listener | None = None
        self._listening: threading.Thread | None = None
        # A short interval: the stop waits for its sleep.
        self._clock = BeatService(app, max_interval=1, scheduler_cls=app.conf.beat_scheduler)
        self._ticking: threading.Thread | None = None
        self._stop_asked = threading.Event()
        self.failed = False

    def start(self, **_: Any) -> None:
        """Start them when the worker is ready, in the main thread: only there handlers of signals can be set."""
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: self._stop_asked.set())
        self._listener = self._make_listener()
        self._ticking = threading.Thread(
            target=self._guarded, args=(self._clock.start,), name="beat", daemon=True
        )
        self._ticking.start()
        if self._listener is not None:
            self._listening = threading.Thread(
                target=self._guarded, args=(self._listener.run,), name="bridge", daemon=True
            )
            self._listening.start()
        threading.Thread(target=self._wait_for_stop, name="stop", daemon=True).start()

    def _guarded(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception:  # as in the message loop: without its clock the process would idle for ever
            log.exception("internal error of the agent; please report it with the lines below")
            self.failed = True
            self._stop_asked.set()

    def _wait_for_stop(self) -> None:
        self._stop_asked.wait()
        log.info("stopping: what has begun is finished first")
        self._clock.stop()
        if self._ticking is not None:
            # It removes its heartbeat.
            self._ticking.join(DRAIN_S)
        if self._listener is not None and self._listening is not None:
            self._listener.stop()
            self._listening.join()
            deadline_s = time.monotonic() + DRAIN_S
            names = [queue.name for queue in app.conf.task_queues]
            while any(broker.here().waiting(name).messages for name in names):
                if time.monotonic() > deadline_s:
                    break
                time.sleep(PAUSE_S)
        state.should_stop = 1 if self.failed else 0


def run(
    settings: Settings,
    name: str,
    modes_of: Callable[[Offering], frozenset[Mode]],
    make_listener: Callable[[], Listener | None] = lambda: None,
) -> int:
    """Run the passes of these modes until a signal stops the process, and return its exit code. `make_listener` is
    called in this process when everything else is ready.
    """
    for variable in BROKER_VARIABLES:
        os.environ.pop(variable, None)
    current.use(replace(settings, broker_url=SecretUrl(MEMORY)), modes_of)
    app.conf.worker_enable_remote_control = False
    companions = _Companions(make_listener)
    signals.worker_ready.connect(companions.start)
    worker = app.Worker(
        hostname=f"{name}@{socket.gethostname()}",
        pool="threads",
        concurrency=1,
        loglevel=settings.log_level,
        without_mingle=True,
        without_gossip=True,
        without_heartbeat=True,
        task_events=False,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)
