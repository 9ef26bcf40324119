# SPDX-License-Identifier: MIT
"""From the bytes of a STOMP connection to whole frames, none of them larger than a message may be: the library would
keep a message of any size until its end. What is cut says how large it was, and becomes a dead letter as every other.
"""

from __future__ import annotations

import re

from agent.bridge.decode import MAX_BYTES

# Command and headers of a frame; RabbitMQ's have some hundred bytes.
HEAD_AT_MOST = 64 * 1024
# What of a body is kept: one byte more than a message may have.
BODY_AT_MOST = MAX_BYTES + 1
# The header with the whole size of a body that is cut.
SIZE = "whole-size"
HEARTBEAT = b"\n"

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*(\d{1,18})\r?(?=\n|$)", re.IGNORECASE)
_ENDLESS = b"ERROR\nmessage:the broker sends a frame whose headers do not end\n\n\0"


class Frames:
    """The frames of one connection. After headers without end comes one frame ERROR, and nothing more."""

    def __init__(self) -> None:
        # What came and belongs to no frame that is complete yet: a head, or a body of which as much as is kept.
        self._rest = bytearray()
        self._head = b""
        # Of a body: what it has by its header, None where it ends with a NUL; and what was seen of it.
        self._length: int | None = None
        self._seen = 0
        self._is_over = False

    def whole(self, chunk: bytes) -> bytes:
        """Return the frames that end in this chunk, perhaps none; a heart-beat where one that is too large goes on."""
        found = bytearray()
        left = memoryview(bytes(chunk))
        while left and not self._is_over:
            left = self._in_head(left, found) if not self._head else self._in_body(left, found)
        if not found and self._seen > BODY_AT_MOST:
            return HEARTBEAT
        return bytes(found)

    def _in_head(self, left: memoryview, found: bytearray) -> memoryview:
        if not self._rest:
            # Between two frames there may be ends of lines: a heart-beat.
            bare = bytes(left).lstrip(b"\r\n")
            if len(bare) < len(left):
                found += HEARTBEAT if not found else b""
                return memoryview(bare)
        before = len(self._rest)
        self._rest += left[: HEAD_AT_MOST + 4]
        end = _HEAD_END.search(self._rest, max(0, before - 3))
        if end is None:
            if len(self._rest) > HEAD_AT_MOST:
                found += _ENDLESS
                self._is_over = True
            return left[HEAD_AT_MOST + 4 :]
        self._head = bytes(self._rest[: end.end()])
        length = _LENGTH.search(self._head)
        self._length = int(length[1]) if length else None
        self._rest.clear()
        self._seen = 0
        return left[end.end() - before :]

    def _in_body(self, left: memoryview, found: bytearray) -> memoryview:
        if self._length is None:
            end = bytes(left).find(b"\0")
            taken = len(left) if end < 0 else end
        else:
            taken = min(len(left), self._length - self._seen)
            end = taken if taken < len(left) else -1
        self._rest += left[: min(taken, BODY_AT_MOST - len(self._rest))]
        self._seen += taken
        if end < 0:
            return left[taken:]
        if self._seen > len(self._rest):
            headers = f"\n{SIZE}:{self._seen}\ncontent-length:{len(self._rest)}".encode()
            bare = _LENGTH.sub(b"", self._head)
            line = bare.index(b"\n")
            self._head = bare[:line].rstrip(b"\r") + headers + bare[line:]
        found += self._head + self._rest + b"\0"
        self._head = b""
        self._rest.clear()
        self._seen = 0
        return left[taken + 1 :]
