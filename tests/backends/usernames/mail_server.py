# SPDX-License-Identifier: MIT
"""A mail server of our own on a loopback port: says as much SMTP as a client needs, and keeps what it was sent."""

from __future__ import annotations

import socketserver
import ssl
import threading
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, cast


class _Talk(socketserver.StreamRequestHandler):
    """One connection. `STARTTLS` is offered where the server has a certificate, `AUTH` is always taken."""

    def setup(self) -> None:
        self.desk = cast("MailServer", self.server)
        if self.desk.tls and self.desk.is_encrypted:
            self.request = self.desk.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self) -> None:
        self._say("220 ready")
        while line := self.rfile.readline().strip().decode():
            self.desk.heard.append(line)
            word = line.split(" ")[0].upper()
            if word == "QUIT":
                self._say("221 bye")
                return
            if word == "STARTTLS":
                self._say("220 go ahead")
                assert self.desk.tls is not None
                self.request = self.desk.tls.wrap_socket(self.request, server_side=True)
                super().setup()
                continue
            self._say(self._answer(word, line))

    def _answer(self, word: str, line: str) -> str:
        if word == "EHLO":
            offers = "250-STARTTLS\r\n" if self.desk.tls and not self.desk.is_encrypted else ""
            return f"250-here\r\n{offers}250 AUTH PLAIN"
        if word == "DATA":
            self._say("354 go on")
            lines = []
            while (text := self.rfile.readline()) != b".\r\n":
                # RFC 5321, 4.5.2: a point that begins a line is sent twice.
                lines.append(text.replace(b"\r\n", b"\n").removeprefix(b"."))
            self.desk.mails.append(message_from_bytes(b"".join(lines), policy=policy.default))
            return "250 kept"
        if word == "RCPT" and "refused" in line:
            return "550 no user of that name"
        return "235 welcome" if word == "AUTH" else "250 fine"

    def _say(self, words: str) -> None:
        self.wfile.write(words.encode() + b"\r\n")


class MailServer(socketserver.ThreadingTCPServer):
    """`folder` holds cert.pem and key.pem; with `is_encrypted` TLS begins with the first byte."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder: Path | None = None, *, is_encrypted: bool = False) -> None:
        self.mails: list[EmailMessage] = []
        self.heard: list[str] = []
        self.is_encrypted = is_encrypted
        self.tls: ssl.SSLContext | None = None
        if folder is not None:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        super().__init__(("127.0.0.1", 0), _Talk)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def __enter__(self) -> MailServer:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that breaks off the handshake is what some tests are about."""
