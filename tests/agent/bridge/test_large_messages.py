# SPDX-License-Identifier: MIT
"""Messages of any size: what a bridge keeps of them is bounded where they come in, and each is a dead letter."""

from __future__ import annotations

import random

import pytest

from agent.bridge.frames import BODY_AT_MOST, HEAD_AT_MOST, HEARTBEAT, SIZE, Frames

pytestmark = pytest.mark.events


def frame(body: bytes, *, with_length: bool = True, eol: bytes = b"\n") -> bytes:
    length = eol + b"content-length:%d" % len(body) if with_length else b""
    return b"MESSAGE" + eol + b"ack:1" + length + eol * 2 + body + b"\0"


def read(stream: bytes, *, piece: int) -> list[bytes]:
    """What the library sees of a stream that comes in pieces, without heart-beats."""
    frames = Frames()
    found = [frames.whole(stream[at : at + piece]) for at in range(0, len(stream), piece)]
    return [each for each in found if each not in (b"", HEARTBEAT)]


@pytest.mark.parametrize("piece", [1, 7, 1024, 10**6])
@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
def test_what_is_of_usual_size_passes_unchanged(piece: int, eol: bytes) -> None:
    bodies = [b"", b"{}", b"a\0b\0", random.Random(1).randbytes(3000)]
    sent = [frame(body, eol=eol) for body in bodies] + [frame(b"bare", with_length=False, eol=eol)]
    assert b"".join(read(b"".join(sent), piece=piece)).replace(HEARTBEAT, b"") == b"".join(sent).replace(
        HEARTBEAT, b""
    )


def test_ends_of_lines_between_frames_are_heart_beats() -> None:
    frames = Frames()
    assert frames.whole(b"\n") == HEARTBEAT
    assert frames.whole(b"\r\n\n") == HEARTBEAT
    assert frames.whole(frame(b"x") + b"\n") == frame(b"x")
    assert frames.whole(b"\n" + frame(b"y")) == HEARTBEAT + frame(b"y")


@pytest.mark.parametrize("with_length", [True, False])
@pytest.mark.parametrize("piece", [1000, 65536, 10**6])
def test_what_is_too_large_is_cut_and_the_next_one_passes(piece: int, with_length: bool) -> None:
    body = b"x" * 700_000
    found = b"".join(read(frame(body, with_length=with_length) + frame(b"next"), piece=piece))
    head, _, rest = found.partition(b"\n\n")
    assert rest == body[:BODY_AT_MOST] + b"\0" + frame(b"next")
    assert f"{SIZE}:700000".encode() in head.split(b"\n")
    assert f"content-length:{BODY_AT_MOST}".encode() in head.split(b"\n")
    assert head.count(b"content-length") == 1


def test_one_that_is_too_large_keeps_no_more_than_a_message_and_is_a_sign_of_life() -> None:
    frames = Frames()
    frames.whole(b"MESSAGE\nack:1\ncontent-length:500000000\n\n")
    said = {frames.whole(b"x" * 65536) for _ in range(1000)}
    assert said == {b"", HEARTBEAT}
    assert len(frames._rest) == BODY_AT_MOST


def test_headers_without_end_end_the_connection() -> None:
    frames = Frames()
    found = b"".join(frames.whole(b"a" * 1000) for _ in range(HEAD_AT_MOST // 1000 + 1000))
    assert found.startswith(b"ERROR\nmessage:")
    assert found.count(b"\0") == 1
    assert len(frames._rest) < 2 * HEAD_AT_MOST
