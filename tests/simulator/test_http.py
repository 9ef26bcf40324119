# SPDX-License-Identifier: MIT
"""The HTTP and the WebSockets under the simulated Waldur, as clients speak them."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator

import pytest
import websocket
from tornado.web import Application
from tornado.websocket import WebSocketHandler

from simulator.server.http import Later, Request, Response, Site
from simulator.server.listener import Listener


class Echo(WebSocketHandler):
    def on_message(self, message: str | bytes) -> None:
        if message == "end":
            self.close()
        else:
            self.write_message(message)


def respond(request: Request) -> Response | Later:
    if request.path == "/broken":
        return broken()
    if request.path == "/later":
        return Later(after_s=0.001, respond=broken)
    said = {"method": request.method, "target": request.target, "body": request.body.decode()}
    return Response(
        headers={"X-Agent": request.headers.get("user-agent", "")}, content=json.dumps(said).encode()
    )


def broken() -> Response:
    raise LookupError("of the application")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    site = Site(respond, Application([("/socket", Echo)]), "/socket")
    listener = Listener(site, address="127.0.0.1", port=0, idle_s=600)
    listener.start()
    yield listener.port
    listener.stop()


@pytest.fixture
def client(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=600) as connected:
        yield connected


def whole(client: socket.socket) -> tuple[str, list[str]]:
    """All that comes until the server closes the connection: the status of the last answer, and the bodies."""
    received = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    answers = received.split("HTTP/1.1 ")[1:]
    return answers[-1].splitlines()[0], [answer.partition("\r\n\r\n")[2] for answer in answers]


HEAD = "POST /a?b=c HTTP/1.1\r\nHost: here\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        [f"{HEAD}Content-Length: 5\r\n\r\nhello"],
        [HEAD[:9], HEAD[9:], "Content-Length: 5\r\n\r", "\nhe", "llo"],
        [f"{HEAD}Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"],
    ],
    ids=["whole", "in pieces", "in chunks"],
)
def test_a_body_is_read_however_it_comes(client: socket.socket, parts: list[str]) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for part in parts:
        client.sendall(part.encode())
    status, (body,) = whole(client)
    assert status == "200 OK"
    assert json.loads(body) == {"method": "POST", "target": "/a?b=c", "body": "hello"}


def test_who_asks_whether_to_send_the_body_is_told_to(client: socket.socket) -> None:
    client.sendall(f"{HEAD}Content-Length: 5\r\nExpect: 100-continue\r\n\r\n".encode())
    assert client.recv(65536).startswith(b"HTTP/1.1 100 ")
    client.sendall(b"hello")
    assert json.loads(whole(client)[1][0])["body"] == "hello"


def test_requests_that_come_together_are_answered_in_their_order(client: socket.socket) -> None:
    client.sendall(b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.0\r\n\r\n")
    _, bodies = whole(client)
    assert [json.loads(body)["target"] for body in bodies] == ["/1", "/2", "/3"]


def test_an_answer_to_head_has_the_length_of_its_body_alone(client: socket.socket) -> None:
    client.sendall(b"HEAD /1 HTTP/1.0\r\nUser-Agent: me\r\n\r\n")
    lines = b"".join(iter(lambda: client.recv(65536), b"")).decode().splitlines()
    length = len(json.dumps({"method": "HEAD", "target": "/1", "body": ""}))
    assert {"HTTP/1.1 200 OK", "X-Agent: me", f"Content-Length: {length}"} <= set(lines)
    assert lines[-1] == ""


@pytest.mark.parametrize(
    "text", ["GET /\r\n\r\n", "GET / HTTP/1.1\r\nHost\r\n\r\n", f"{HEAD}Content-Length: x\r\n\r\n"]
)
def test_what_is_no_request_is_refused(client: socket.socket, text: str) -> None:
    client.sendall(text.encode())
    assert whole(client)[0] == "400 Bad Request"


@pytest.mark.parametrize("path", ["/broken", "/later"])
def test_what_the_application_raises_is_logged_and_its_answer_is_500(
    client: socket.socket, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    with caplog.at_level(logging.ERROR, logger="simulator"):
        client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        assert whole(client)[0] == "500 Internal Server Error"
    assert "LookupError: of the application" in caplog.text


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 200_000])
def test_messages_of_every_length_come_and_go(port: int, size: int) -> None:
    sent = "x" * size
    connection = websocket.create_connection(f"ws://127.0.0.1:{port}/socket", timeout=600)
    connection.send(sent)
    assert connection.recv() == sent
    connection.close()


def test_a_message_may_come_in_parts_with_pings_between(port: int) -> None:
    connection = websocket.create_connection(f"ws://127.0.0.1:{port}/socket", timeout=600)
    connection.send_frame(websocket.ABNF.create_frame("one, ", websocket.ABNF.OPCODE_TEXT, fin=0))
    connection.ping("there?")
    connection.send_frame(websocket.ABNF.create_frame("two", websocket.ABNF.OPCODE_CONT))
    kinds = [connection.recv_data_frame(control_frame=True) for _ in range(2)]
    assert [(kind, frame.data) for kind, frame in kinds] == [
        (websocket.ABNF.OPCODE_PONG, b"there?"),
        (websocket.ABNF.OPCODE_TEXT, b"one, two"),
    ]
    connection.send("end")
    assert connection.recv_data()[0] == websocket.ABNF.OPCODE_CLOSE
    connection.close()


def test_only_a_websocket_gets_one(client: socket.socket) -> None:
    client.sendall(b"GET /socket HTTP/1.0\r\n\r\n")
    assert whole(client)[0] == "400 Bad Request"
