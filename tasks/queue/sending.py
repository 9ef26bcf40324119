# SPDX-License-Identifier: MIT
"""How tasks are sent: of one that was sent the broker has said that it has it, and its sender may end at once."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from kombu import Connection, Producer, pools
from kombu.exceptions import OperationalError

from tasks.queue import kinds


def connection(app: Celery) -> Connection:
    """Return a new connection to send tasks by."""
    kind = kinds.kind_of(app.conf.broker_url)
    return app.connection_for_write(transport_options=dict(kind.sending_options))


class SiteProducer(Producer):
    def publish(self, body: Any, *args: Any, **options: Any) -> Any:
        """Publish a message, and wait for its confirmation where the broker gives any. Raises what kombu raises."""
        return super().publish(body, *args, **{**options, "confirm_timeout": kinds.CONFIRMED_WITHIN_S})

    def _publish(self, *args: Any, **options: Any) -> Any:
        try:
            return super()._publish(*args, **options)
        except TimeoutError as error:
            # kombu would send it three times more, each of which may arrive later. A goodbye would not be answered.
            self.connection.collect()
            raise OperationalError(
                f"{self.connection.as_uri()} did not answer within {kinds.CONFIRMED_WITHIN_S:.0f} s: it may have an "
                "alarm for its memory or disk (rabbitmq-diagnostics alarms), or be too busy; the message may arrive"
            ) from error


class SiteProducers(pools.ProducerPool):
    Producer = SiteProducer


class SiteAmqp(AMQP):
    Producer = SiteProducer
    _producer_pool: Any = None

    @property
    def producer_pool(self) -> Any:
        """Return the producers of this process; Celery forgets them in a child."""
        if self._producer_pool is None:
            connections = pools.connections[connection(self.app)]
            self._producer_pool = SiteProducers(connections, limit=self.app.pool.limit)
        return self._producer_pool
