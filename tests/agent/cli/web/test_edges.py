# SPDX-License-Identifier: MIT
"""What the console does when something is wrong: a broker that hangs, a state file that cannot be read, readers who are
slow or many, cookies that are over.
"""

from __future__ import annotations

import os
import select
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

import pytest
import requests

from agent.cli.web import handler, looks
from agent.config.model import Settings
from agent.config.secret import SecretUrl
from agent.core.overview import Look
from agent.state.hints import LOOKS
from agent.state.store import NAME
from rig.processes import wait_until
from tasks.queue import inspection
from tests.agent.cli.web.running import PASSWORD, Running, serving, xsrf

VIEWERS = 200


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_pages_do_not_wait_for_a_broker_that_hangs(
    monkeypatch: pytest.MonkeyPatch, site_settings: Settings, silent: socket.socket
) -> None:
    monkeypatch.setattr(inspection, "CONNECT_S", 600.0)
    url = SecretUrl(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
    with serving(replace(site_settings, broker_url=url)) as console:
        console.inside.broker_patience_s = 0.05
        session, offering = console.log_in("ann"), console.settings.offerings[0].uuid
        page = session.get(f"{console.url}/offering/{offering}")
        form = {"act": "membership_sync", "reason": "a test", "_xsrf": xsrf(page)}
        answers: list[requests.Response] = []
        act = threading.Thread(
            target=lambda: answers.append(session.post(f"{console.url}/offering/{offering}", form))
        )
        act.start()
        # It waits for the broker.
        assert select.select([silent], [], [], 600)[0]
        other = console.log_in("vic")
        assert "takes long to answer" in other.get(console.url).text
        assert other.get(console.plan_url).status_code == HTTPStatus.OK
        assert act.is_alive()
        silent.close()
        act.join()
    (answer,) = answers
    assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
    assert f"the broker {url} does not answer" in answer.text


def test_pages_do_not_wait_for_a_search_of_the_journal(console: Running) -> None:
    session, other = console.log_in("ann"), console.log_in("vic")
    path = console.settings.state_dir / "journal" / "journal.jsonl"
    path.unlink()
    # Whoever reads it waits for what is written.
    os.mkfifo(path)
    answers: list[int] = []
    audit = threading.Thread(target=lambda: answers.append(session.get(f"{console.url}/audit").status_code))
    audit.start()
    try:
        # Returns when it is read.
        with path.open("wb"):
            assert other.get(f"{console.url}/people", timeout=600).status_code == HTTPStatus.OK
            assert audit.is_alive()
    finally:
        audit.join()
    assert answers == [HTTPStatus.OK]


def test_a_state_file_that_cannot_be_read_is_a_sentence(
    console: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, path = console.log_in("ann"), console.settings.state_dir / NAME

    def refused() -> str:
        answer = session.get(console.plan_url)
        assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
        return answer.text

    with closing(sqlite3.connect(path)) as file:
        (version,) = file.execute("PRAGMA user_version").fetchone()
        file.execute("PRAGMA user_version = 9999")
        assert "is of version 9999, and this agent knows" in refused()
        file.execute(f"PRAGMA user_version = {version}")
    assert session.get(console.plan_url).status_code == HTTPStatus.OK
    # One waits in vain, and those behind it fail at once.
    with closing(sqlite3.connect(path, isolation_level=None)) as file, monkeypatch.context() as patch:
        patch.setattr(handler, "BUSY_S", 600.0)
        file.execute("PRAGMA locking_mode = EXCLUSIVE")
        file.execute("BEGIN EXCLUSIVE")
        with ThreadPoolExecutor(4) as pool:
            tried = [pool.submit(refused) for _ in range(4)]
            wait(tried, return_when=FIRST_COMPLETED)
            waited = console.inside.busy
        assert all("another process has been writing to" in each.result() for each in tried)
        assert console.inside.busy is waited
    wait_until("it is read again", lambda: session.get(console.plan_url).ok, pause_s=0.5)


def test_a_state_file_that_is_gone_is_said_on_each_page(console: Running) -> None:
    session = console.log_in("ann")
    assert "There is no state file" not in session.get(console.url).text
    for path in Path(console.settings.state_dir).glob(f"{NAME}*"):
        path.unlink()
    page = session.get(console.url)
    assert page.status_code == HTTPStatus.OK
    assert "There is no state file" in page.text and "restore a backup" in page.text


def test_two_hundred_viewers_at_once_all_get_their_page(console: Running) -> None:
    cookies = console.log_in("vic").cookies
    with ThreadPoolExecutor(VIEWERS) as pool:
        answers = list(
            pool.map(lambda _: requests.get(console.url, cookies=cookies, timeout=600), range(VIEWERS))
        )
    assert {answer.status_code for answer in answers} == {HTTPStatus.OK}
    assert all(">vic</" in answer.text for answer in answers)


def test_who_does_not_read_is_dropped_and_delays_nobody(console: Running) -> None:
    console.inside.slow_reader_s = 0.2
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", int(console.url.rpartition(":")[2])))
        slow.setblocking(False)
        poll = select.poll()
        poll.register(slow, 0)

        def is_dropped() -> bool:
            """Ask for more, and read nothing."""
            if poll.poll(0):
                return True
            try:
                slow.send(b"GET /login HTTP/1.1\r\nHost: head1\r\n\r\n" * 100)
            except BlockingIOError:
                pass
            except OSError:
                return True
            return False

        wait_until("the slow reader is dropped", is_dropped)
        assert console.log_in("vic").get(console.url).status_code == HTTPStatus.OK


def test_who_reads_slowly_gets_all_of_a_long_page(console: Running) -> None:
    console.inside.slow_reader_s = 15.0
    session, plan = console.log_in("vic"), console.found.plan
    # More than the system keeps for a reader.
    lines = {
        f'["RemoveMember", {{"account": "a_one", "user": "u{n}"}}]': f"remove u{n} from a_one, {'x' * 2000}"
        for n in range(5_000)
    }
    console.found.held.hold(replace(plan, lines=lines))
    answer = session.get(console.plan_url, stream=True, timeout=600)
    size, begun_s = 0, time.monotonic()
    while piece := answer.raw.read(4096):
        size += len(piece)
        # Longer in all than it may take nothing.
        if time.monotonic() - begun_s < 1.2 * console.inside.slow_reader_s:
            time.sleep(0.01)
    assert size == int(answer.headers["Content-Length"]) > 8 * 10**6


def test_looks_that_wait_are_few_for_all_people(console: Running) -> None:
    (offering,) = console.settings.offerings
    viewer, path = console.log_in("vic"), f"/look/plan/{offering.uuid}/order_process"
    for n in range(looks.WAITING_AT_MOST):
        console.inside.asked[LOOKS, offering.uuid, f"account:{n}"] = datetime.now(UTC)
    refused = console.send(viewer, path)
    assert refused.status_code == HTTPStatus.TOO_MANY_REQUESTS
    assert "20 looks wait for workers already" in refused.text
    LOOKS.put(console.settings.state_dir, offering.uuid, {"account:7": Look("well", is_fine=True)})
    away = console.send(viewer, path)
    assert away.status_code == HTTPStatus.SERVICE_UNAVAILABLE and "does not answer" in away.text
    assert len(console.inside.asked) == looks.WAITING_AT_MOST - 1


def test_who_hangs_up_during_a_login_is_no_error(console: Running, caplog: pytest.LogCaptureFixture) -> None:
    session, go_on = console.session(), threading.Event()
    form = {"name": "ann", "password": "wrong", "_xsrf": xsrf(session.get(f"{console.url}/login"))}
    prepared = session.prepare_request(requests.Request("POST", f"{console.url}/login", data=form))
    headers = "".join(f"{name}: {value}\r\n" for name, value in prepared.headers.items())
    console.inside.at_work.submit(go_on.wait)
    try:
        with socket.create_connection(("127.0.0.1", int(console.url.rpartition(":")[2]))) as gone:
            gone.sendall(f"POST /login HTTP/1.1\r\nHost: head1\r\n{headers}\r\n{prepared.body!s}".encode())
        # What comes later is seen later.
        requests.get(f"{console.url}/login", timeout=600)
    finally:
        go_on.set()
    console.inside.at_work.submit(int).result()
    requests.get(f"{console.url}/login", timeout=600)
    assert "Uncaught exception" not in caplog.text
    assert not console.inside.tries, "nobody waits for an answer"


def test_consoles_at_one_address_leave_each_others_session(console: Running, site_settings: Settings) -> None:
    session = console.log_in("ann")
    with serving(site_settings) as other:
        page = session.get(f"{other.url}/login")
        form = {"name": "vic", "password": PASSWORD, "_xsrf": xsrf(page)}
        assert ">vic</" in session.post(f"{other.url}/login", form).text
        assert ">ann</" in session.get(console.url).text
        assert ">vic</" in session.get(other.url).text


def test_cookies_that_are_over_are_nobodys(console: Running, site_settings: Settings) -> None:
    def is_out(session: requests.Session) -> bool:
        return session.get(console.url).url == f"{console.url}/login"

    old, kept = console.log_in("ann"), console.log_in("vic")
    sessions = console.inside.sessions
    key = next(iter(sessions))
    sessions[key] = replace(sessions[key], expires_s=float("-inf"))
    assert is_out(old) and not is_out(kept)
    # Of the process before, which had other keys and sessions.
    with serving(site_settings) as before:
        theirs = before.log_in("ann").cookies.get(before.inside.cookie) or ""
    stolen = requests.Session()
    stolen.cookies.set(console.inside.cookie, theirs)
    assert is_out(stolen)
    # Cookies are for one name, and for one session: whoever has another's session has no token of its forms.
    stolen.cookies.set(console.inside.cookie, kept.cookies.get("_xsrf") or "")
    assert is_out(stolen)
    thief = requests.Session()
    thief.cookies.set(console.inside.cookie, kept.cookies.get(console.inside.cookie) or "")
    form = {"_xsrf": xsrf(kept.get(console.url))}
    assert thief.post(f"{console.url}/logout", form).status_code == HTTPStatus.FORBIDDEN
    assert not is_out(kept)
