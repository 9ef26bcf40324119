# SPDX-License-Identifier: MIT
"""The way to the console: TLS, proxies that are named and that are not, and who is kept waiting by wrong passwords."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from http import HTTPStatus
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine

from agent.cli.web import login, server
from agent.cli.web.caller import Caller, caller_of, local_user
from agent.config.model import ConsoleSettings, Settings
from agent.core.errors import ConfigError
from rig.certificate import LOOPBACK, make_certificate
from rig.processes import wait_until
from tests.agent.cli.conftest import Command
from tests.agent.cli.web.running import PASSWORD, Running, serving, xsrf

PROXIES = (ip_network("127.0.0.1"), ip_network("192.0.2.0/28"))
FORWARDED = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}


def with_console(settings: Settings, **changed: object) -> Settings:
    return replace(settings, console=replace(ConsoleSettings(), **changed))  # type: ignore[arg-type]


def behind(settings: Settings) -> Settings:
    return with_console(settings, proxies=PROXIES)


def cookies(answer: requests.Response) -> dict[str, bool]:
    """Return which cookies an answer sets, and whether they are for TLS only."""
    return {each.name: each.secure for each in answer.cookies}


def test_with_a_certificate_it_speaks_tls_and_takes_a_new_one(
    site_settings: Settings, tmp_path: Path
) -> None:
    first = make_certificate(tmp_path / "first", LOOPBACK)
    place = tmp_path / "in-use"
    shutil.copytree(first.parent, place)
    settings = with_console(
        site_settings, certificate=str(place / "cert.pem"), certificate_key=str(place / "key.pem")
    )
    with serving(settings, verify=str(first)) as console:
        session, answer = console.try_login("ann", PASSWORD)
        assert answer.status_code == HTTPStatus.OK
        assert {each.secure for each in session.cookies} == {True}
        with pytest.raises(requests.ConnectionError):
            requests.get(console.url.replace("https", "http"), timeout=60)
    certificate = server.Certificate(settings.console)
    other = make_certificate(tmp_path / "other", LOOPBACK)
    # Written one after the other: a pair that does not fit is left alone.
    shutil.copy(other, place)
    certificate.look()
    assert serial_of(certificate) == serial(first)
    shutil.copy(other.with_name("key.pem"), place)
    certificate.look()
    assert serial_of(certificate) == serial(other)
    (place / "cert.pem").unlink()
    certificate.look()
    assert serial_of(certificate) == serial(other)
    with pytest.raises(
        ConfigError, match=r"certificate in .*cert\.pem and .*key\.pem cannot be used: No such file"
    ):
        server.Certificate(settings.console)


def serial(certificate: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.read_text())


def serial_of(certificate: server.Certificate) -> bytes:
    """Return what a client is shown, without a network."""
    ours, theirs = socket.socketpair()
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE

    def serve() -> None:
        with certificate.context.wrap_socket(ours, server_side=True):
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(theirs) as connection:
        found = connection.getpeercert(binary_form=True)
    thread.join()
    assert found
    return found


def request(peer: str, protocol: str = "http", **headers: str) -> HTTPServerRequest:
    given = HTTPHeaders(
        {"Host": "head1"} | {name.replace("_", "-"): value for name, value in headers.items()}
    )
    made = HTTPServerRequest(start_line=RequestStartLine("GET", "/", "HTTP/1.1"), headers=given)
    made.remote_ip, made.protocol = peer, protocol
    return made


@pytest.mark.parametrize(
    ("found", "address", "is_encrypted"),
    [
        (request("192.0.2.1", X_Forwarded_For="203.0.113.9", X_Forwarded_Proto="https"), "203.0.113.9", True),
        (request("192.0.2.1", X_Forwarded_For="203.0.113.9", X_Forwarded_Proto="http"), "203.0.113.9", False),
        (request("192.0.2.1", X_Forwarded_For="203.0.113.9"), "203.0.113.9", False),
        # What stands before the last address that no proxy is, the caller wrote.
        (request("192.0.2.1", X_Forwarded_For="10.0.0.1, 203.0.113.9, 192.0.2.2"), "203.0.113.9", False),
        (request("192.0.2.1", X_Forwarded_For="203.0.113.9, <b>"), "192.0.2.1", False),
        (request("192.0.2.1", X_Forwarded_For="2001:db8::1", X_Forwarded_Proto="HTTPS"), "2001:db8::1", True),
        # A proxy that nobody named says nothing.
        (request("198.51.100.1", X_Forwarded_For="127.0.0.1", X_Forwarded_Proto="https"), "198.51.100.1", False),
        (request("198.51.100.1", "https", X_Forwarded_For="127.0.0.1"), "198.51.100.1", True),
        (request("192.0.2.1"), "192.0.2.1", False),
        # It may be for anybody: a proxy on the console's own host that sends no header.
        (request("127.0.0.1"), "127.0.0.1", False),
        # As a proxy writes it that listens for both kinds at once.
        (request("192.0.2.1", X_Forwarded_For="::ffff:203.0.113.9, ::ffff:192.0.2.2"), "203.0.113.9", False),
    ],
)  # fmt: skip
def test_only_a_proxy_that_is_named_is_believed(
    found: HTTPServerRequest, address: str, is_encrypted: bool
) -> None:
    assert caller_of(found, PROXIES) == Caller(address, is_encrypted, is_local=False)


def test_all_addresses_of_an_ipv6_network_are_one_caller() -> None:
    one, same, other = (
        caller_of(request(peer), ()).origin for peer in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1")
    )
    assert one == same != other


def test_headers_of_a_proxy_that_nobody_named_change_nothing(console: Running, command: Command) -> None:
    session = requests.Session()
    session.headers.update(FORWARDED)
    page = session.get(f"{console.url}/login")
    assert cookies(page) == {"_xsrf": False}
    session.post(f"{console.url}/login", {"name": "ann", "password": "wrong", "_xsrf": xsrf(page)})
    journal = command("audit", "-c", console.config).out
    assert f"refused a login to the console from 127.0.0.1, user {os.getuid()} of this host" in journal
    assert "203.0.113.9" not in journal


def test_behind_a_named_proxy_cookies_are_for_tls_and_the_journal_has_the_browsers_address(
    site_settings: Settings, command: Command
) -> None:
    with serving(behind(site_settings), headers=FORWARDED) as console:
        page = console.session().get(f"{console.url}/login")
        assert cookies(page) == {"_xsrf": True}
        own = {"_xsrf": page.cookies["_xsrf"]}
        answer = requests.post(
            f"{console.url}/login",
            {"name": "ann", "password": "wrong", "_xsrf": xsrf(page)},
            headers=FORWARDED, cookies=own, timeout=600,
        )  # fmt: skip
        assert answer.status_code == HTTPStatus.FORBIDDEN
        assert (
            "refused a login to the console from 203.0.113.9  " in command("audit", "-c", console.config).out
        )
        # The proxy was itself reached without TLS.
        open_way = {**FORWARDED, "X-Forwarded-Proto": "http"}
        answer = requests.get(f"{console.url}/login", headers=open_way, timeout=600)
        assert answer.status_code == HTTPStatus.FORBIDDEN
        assert "the way from 203.0.113.9 is not encrypted" in answer.text and "password" not in answer.text
        # It says nothing of its callers.
        answer = requests.get(f"{console.url}/login", timeout=600)
        assert answer.status_code == HTTPStatus.FORBIDDEN
        assert "the way from 127.0.0.1 is not encrypted" in answer.text


def test_wrong_passwords_from_one_address_keep_nobody_out_elsewhere(
    site_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More tries of `ann` than may wait at once, from one address: those wait or are refused, and she gets in."""
    waits: list[float] = []
    go_on = threading.Event()

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.to_thread(go_on.wait, 600)

    loop = asyncio.get_running_loop
    monkeypatch.setattr(login, "asyncio", SimpleNamespace(sleep=wait, get_running_loop=loop))
    with serving(behind(site_settings), headers=FORWARDED) as console, ExitStack() as stack:
        page = console.session().get(f"{console.url}/login")
        answers: list[int] = []

        def guess() -> None:
            answer = requests.post(
                f"{console.url}/login",
                {"name": "ann", "password": "wrong", "_xsrf": xsrf(page)},
                headers=FORWARDED, cookies=dict(page.cookies), timeout=600,
            )  # fmt: skip
            answers.append(answer.status_code)

        threads = [threading.Thread(target=guess) for _ in range(6)]
        stack.callback(go_on.set)
        for thread in threads:
            thread.start()
        wait_until("two are refused", lambda: answers.count(HTTPStatus.TOO_MANY_REQUESTS) == 2)
        elsewhere = {**FORWARDED, "X-Forwarded-For": "203.0.113.10"}
        session = requests.Session()
        answer = session.post(
            f"{console.url}/login",
            {"name": "ann", "password": PASSWORD, "_xsrf": xsrf(page)},
            headers=elsewhere, cookies=dict(page.cookies), timeout=600, allow_redirects=False,
        )  # fmt: skip
        assert answer.status_code == HTTPStatus.SEE_OTHER
        assert set(answers) == {HTTPStatus.TOO_MANY_REQUESTS}
        go_on.set()
        for thread in threads:
            thread.join()
    assert sorted(answers) == [HTTPStatus.FORBIDDEN] * 4 + [HTTPStatus.TOO_MANY_REQUESTS] * 2
    assert waits == [1, 2, 3, 4]


def test_how_slow_an_answer_is_says_not_whether_there_is_such_a_person(console: Running) -> None:
    for name in ("bob", "carl", "ann"):
        console.log_in(name, "a wrong password")
    assert [each.failed for each in console.inside.tries.values()] == [1, 1, 1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_users_of_the_consoles_host_are_told_apart(address: str) -> None:
    """On loopback all have one address: wrong passwords of one user keep no other out."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:

        def seen_as(become: Callable[[], None]) -> Caller:
            pid = os.fork()
            if not pid:
                become()
                with socket.create_connection(listener.getsockname()[:2]) as connection:
                    connection.recv(1)
                os._exit(0)
            connection, peer = listener.accept()
            with connection:
                found = local_user(caller_of(request(peer[0]), ()), connection)
            os.waitpid(pid, 0)
            return found

        ours, theirs = seen_as(lambda: None), seen_as(lambda: os.setuid(12345))
    assert (ours.uid, theirs.uid) == (0, 12345) and ours.origin != theirs.origin
    assert str(theirs) == f"{address}, user 12345 of this host"
    assert re.fullmatch(r"user \d+", ours.origin)
