# SPDX-License-Identifier: MIT
"""The simulated Waldur at a RabbitMQ: logins and queues by its management, messages by STOMP, persistent.

A virtual host is a Waldur user, a login one of their subscriptions with their API token as its password. A message
counts as sent when the broker has confirmed it; what a broken connection left open is sent again. The real server
gives up sooner.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from stomp.connect import StompConnection12  # type: ignore[import-untyped]
from stomp.exception import StompException  # type: ignore[import-untyped]
from stomp.listener import ConnectionListener  # type: ignore[import-untyped]

from simulator.events.broker import QUEUE_LENGTH, QUEUE_TTL_MS, BrokerFailed
from simulator.world.records import JsonObject

TIMEOUT_S = 600.0
PAUSE_S = 0.2
BROKEN = (StompException, OSError)
RIGHTS = {"configure": ".*", "write": ".*", "read": ".*"}


@dataclass(frozen=True, slots=True)
class RabbitMqAccess:
    host: str
    stomp_port: int
    management_port: int
    user: str
    password: str


class RabbitMqBroker:
    has_topics = False

    def __init__(self, access: RabbitMqAccess) -> None:
        self._access = access
        self._senders: dict[str, _Sender] = {}

    def add_login(self, vhost: str, login: str, passcode: str) -> None:
        place = quote(vhost, safe="")
        self._ask("PUT", f"vhosts/{place}", {})
        self._ask("PUT", f"users/{login}", {"password": passcode, "tags": ""})
        self._ask("PUT", f"permissions/{place}/{login}", RIGHTS)
        self._ask("PUT", f"permissions/{place}/{self._access.user}", RIGHTS)

    def add_queue(self, vhost: str, name: str) -> None:
        arguments = {
            "x-message-ttl": QUEUE_TTL_MS,
            "x-max-length": QUEUE_LENGTH,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "waldur.dlq.messages",
        }
        body = {"durable": True, "auto_delete": False, "arguments": arguments}
        self._ask("PUT", f"queues/{quote(vhost, safe='')}/{quote(name, safe='')}", body)

    def publish(self, vhost: str, name: str, payload: JsonObject) -> None:
        sender = self._senders.setdefault(vhost, _Sender(self._access, vhost))
        sender.send(f"/amq/queue/{name}", json.dumps(payload))

    def close(self) -> None:
        for sender in self._senders.values():
            sender.flush()

    def _ask(self, method: str, path: str, body: Any) -> None:
        access = self._access
        connection = http.client.HTTPConnection(access.host, access.management_port, timeout=TIMEOUT_S)
        login = base64.b64encode(f"{access.user}:{access.password}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        try:
            connection.request(method, f"/api/{path}", json.dumps(body), headers)
            answer = connection.getresponse()
            said = answer.read()
        except OSError as error:
            raise BrokerFailed(f"RabbitMQ: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise BrokerFailed(f"RabbitMQ answered {answer.status}: {said[:200]!r}")


class _Sender(ConnectionListener):  # type: ignore[misc]
    """One connection, made again when it breaks; messages stay in `_open` until they are confirmed."""

    def __init__(self, access: RabbitMqAccess, vhost: str) -> None:
        self._access = access
        self._vhost = vhost
        self._connection: Any = None
        self._open: dict[str, tuple[str, str]] = {}
        self._number = 0
        self._lock = threading.Lock()

    def send(self, place: str, body: str) -> None:
        with self._lock:
            self._number += 1
            receipt = str(self._number)
            self._open[receipt] = (place, body)
        self._until_sent([receipt])

    def flush(self) -> None:
        """Wait until all is confirmed, sending again what was not."""
        until_s = time.monotonic() + TIMEOUT_S
        while self._open and time.monotonic() < until_s:
            time.sleep(PAUSE_S)
            if not self._is_up():
                self._until_sent(list(self._open))
        if self._connection is not None:
            self._connection.transport.disconnect_socket()

    def on_receipt(self, frame: Any) -> None:
        with self._lock:
            self._open.pop(str(frame.headers.get("receipt-id")), None)

    def _is_up(self) -> bool:
        return self._connection is not None and bool(self._connection.is_connected())

    def _until_sent(self, receipts: list[str]) -> None:
        until_s = time.monotonic() + TIMEOUT_S
        while receipts:
            try:
                if not self._is_up():
                    access = self._access
                    self._connection = StompConnection12(
                        [(access.host, access.stomp_port)],
                        reconnect_attempts_max=1,
                        vhost=self._vhost,
                        timeout=10,
                    )
                    self._connection.set_listener("sender", self)
                    self._connection.connect(access.user, access.password, wait=True)
                    receipts = list(self._open)
                for receipt in receipts:
                    if receipt in self._open:
                        place, body = self._open[receipt]
                        headers = {"persistent": "true", "receipt": receipt}
                        self._connection.send(place, body, content_type="application/json", headers=headers)
            except BROKEN as error:
                if time.monotonic() > until_s:
                    raise BrokerFailed(f"RabbitMQ: {error}") from error
                time.sleep(PAUSE_S)
            else:
                return
