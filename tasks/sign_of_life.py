# SPDX-License-Identifier: MIT
"""A worker's sign of life: renewed by the main process's own event loop, while it has its broker.

A step of Celery's consumer, so that it begins anew with each connection. Passes run in other processes; they do not
hold it up.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps, signals

from agent.host.heartbeat import RENEW_S, Heartbeat, Part
from tasks.app import app
from tasks.current import settings

_of_this_worker: list[Heartbeat] = []


class SignOfLife(bootsteps.StartStopStep):
    """Renews the file of this worker, by its node name, which is unique among the workers of a broker."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._timer: Any = None
        self._heartbeat = Heartbeat(
            settings().state_dir, Part.WORKER, consumer.hostname, own_file=settings().heartbeat_path
        )

    def start(self, consumer: Any) -> None:
        """Begin, with a connection to the broker."""
        _of_this_worker[:] = [self._heartbeat]
        self._heartbeat.renew()
        self._timer = consumer.timer.call_repeatedly(RENEW_S, self._heartbeat.renew)

    def stop(self, consumer: Any) -> None:
        """Pause until there is a connection again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    shutdown = stop


@signals.worker_shutdown.connect
def _end(**_: Any) -> None:
    """Remove the file: this worker ends in order."""
    for heartbeat in _of_this_worker:
        heartbeat.end()


app.steps["consumer"].add(SignOfLife)
