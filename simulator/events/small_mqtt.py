# SPDX-License-Identifier: MIT
"""A small MQTT broker for the demo, where no mosquitto is installed: version 3.1.1, QoS 0, topics by their full names,
loopback only, no logins. Just enough for the bridge and the simulated Waldur; nothing survives its end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict

CONNECT, CONNACK, PUBLISH, PUBACK = 1, 2, 3, 4
SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = 8, 9, 12, 13, 14
VERSION_3_1_1 = 4
ACCEPTED, UNACCEPTABLE_VERSION = 0, 1
LARGEST = 1 << 20
START_TIMEOUT_S = 10.0


class SmallMqttBroker:
    """Listens in a thread of its own from `start` to `stop`; `port` is known after the start."""

    def __init__(self) -> None:
        self.port = 0
        self._listeners: dict[str, set[asyncio.StreamWriter]] = defaultdict(set)
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="small-mqtt", daemon=True)

    def start(self) -> SmallMqttBroker:
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise TimeoutError("the MQTT broker did not start")
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._handle(*await _packet(reader), writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, IndexError, ValueError):
            pass  # it hung up, or does not speak MQTT
        finally:
            for listeners in self._listeners.values():
                listeners.discard(writer)
            writer.close()

    async def _handle(self, head: int, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer one packet; False ends the connection."""
        kind = head >> 4
        if kind == CONNECT:
            is_known = body[6] == VERSION_3_1_1
            writer.write(bytes([CONNACK << 4, 2, 0, ACCEPTED if is_known else UNACCEPTABLE_VERSION]))
            return is_known
        if kind == SUBSCRIBE:
            topics = list(_topics(body[2:]))
            for topic in topics:
                self._listeners[topic].add(writer)
            writer.write(bytes([SUBACK << 4, 2 + len(topics)]) + body[:2] + bytes(len(topics)))
        elif kind == PUBLISH:
            self._publish(head, body, writer)
        elif kind == PINGREQ:
            writer.write(bytes([PINGRESP << 4, 0]))
        return kind != DISCONNECT

    def _publish(self, head: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(body[:2], "big")
        topic, rest = body[2 : 2 + length], body[2 + length :]
        if head & 0b110:
            writer.write(bytes([PUBACK << 4, 2]) + rest[:2])
            rest = rest[2:]
        packet = body[: 2 + length] + rest
        for listener in self._listeners[topic.decode()]:
            listener.write(bytes([PUBLISH << 4]) + _length(len(packet)) + packet)


async def _packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readexactly(1))[0]
    length = shift = 0
    while True:
        byte = (await reader.readexactly(1))[0]
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if length > LARGEST:
        raise ValueError("too large")
    return head, await reader.readexactly(length)


def _topics(body: bytes) -> list[str]:
    found = []
    while body:
        length = int.from_bytes(body[:2], "big")
        found.append(body[2 : 2 + length].decode())
        body = body[3 + length :]
    return found


def _length(number: int) -> bytes:
    found = bytearray()
    while True:
        number, byte = number >> 7, number & 0x7F
        found.append(byte | (0x80 if number else 0))
        if not number:
            return bytes(found)
