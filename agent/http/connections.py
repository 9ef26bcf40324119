# SPDX-License-Identifier: MIT
"""HTTP connections that no server can hold or flood: pooled, repeated with back-off (urllib3's), answers bounded in
bytes, values and seconds, requests counted. Clients of Waldur and of slurmrestd are made of them.

Knows nothing of any API. What is configured comes before the environment.
"""

from __future__ import annotations

import io
import logging
import math
import re
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.exceptions import ChunkedEncodingError
from requests.utils import get_netrc_auth
from urllib3 import HTTPConnectionPool, PoolManager
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError, InvalidHeader, NewConnectionError
from urllib3.util import Retry

from agent.core.bounded_json import VALUES_AT_MOST, values_in
from agent.http.answers import cause
from agent.http.pace import Pace

log = logging.getLogger(__name__)

POOL_SIZE = 8
IDLE_AT_MOST_S = 1.0
CHUNK_BYTES = 2**16
TOO_MANY = 429
RETRY_STATUSES = (TOO_MANY, 500, 502, 503, 504)
# What a request raises when no whole answer came; the errors of requests are OSErrors.
NO_ANSWER = (OSError, HTTPError)

_UUID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a connection and an answer may take, and the longest waits between attempts, in seconds.

    Four attempts at a server that hangs must end within a task's soft limit of 240 s.
    """

    connect_s: float = 5.0
    read_s: float = 40.0
    backoff_max_s: float = 8.0
    retry_after_max_s: int = 30


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is taken of one answer: seconds from its first header to its last byte, bytes of its body, unpacked, and
    values of its JSON, which are objects of 80 bytes once they are read.

    Four attempts at an answer that trickles must end within a task's soft limit of 240 s.
    """

    answer_s: float = 50.0
    answer_bytes: int = 32 * 2**20
    answer_values: int = VALUES_AT_MOST


class AnswerTooLong(OSError):
    """An answer is larger, has more values, or took longer, than the bounds allow."""


class RequestCounter:
    """The requests sent, by method and path pattern; counted by many threads at once."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, kind: str, number: int) -> None:
        with self._lock:
            self.counts[kind] += number


class LoggedRetry(Retry):
    """urllib3's Retry with a log line of ours; a Retry-After that cannot be read means the usual back-off.

    `pace`: shared by all requests of a client.
    """

    pace: Pace

    def new(self, **changed: Any) -> LoggedRetry:
        made = super().new(**changed)
        made.pace = self.pace
        return made

    def sleep_for_retry(self, response: Any) -> bool:
        """Wait as long as the server asks, and all others with it; return False where it names no time."""
        wait_s = self.get_retry_after(response) or 0.0
        if wait_s or response.status == TOO_MANY:
            time.sleep(self.pace.refused(wait_s))
        return super().sleep_for_retry(response)

    def parse_retry_after(self, retry_after: str) -> float:
        try:
            return super().parse_retry_after(retry_after)
        except (InvalidHeader, ValueError, OverflowError):
            return 0.0

    def increment(self, method: Any = None, url: Any = None, *args: Any, **kwargs: Any) -> LoggedRetry:
        again = super().increment(method, url, *args, **kwargs)
        last = again.history[-1]
        reason = cause(last.error) if last.error else f"answered {last.status}"
        log.warning(
            "%s %s: %s; asked again, attempt %d",
            method,
            urlsplit(str(url)).path,
            reason,
            len(again.history) + 1,
        )
        return again

    def get_backoff_time(self) -> float:
        """Wait before the first repetition, too, which urllib3 makes at once: a server that restarts refuses for
        seconds.
        """
        if not self.history:
            return 0.0
        return max(super().get_backoff_time(), min(self.backoff_factor, self.backoff_max))


class Session(requests.Session):
    """Proxies and certificates come from the session, then from the environment, which is read for them once for each
    address.
    """

    def __init__(self) -> None:
        super().__init__()
        self._settings: dict[tuple[Any, ...], Any] = {}

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """requests lets HTTPS_PROXY and REQUESTS_CA_BUNDLE win over the session's own settings (2.34)."""
        if verify is None and not self.verify:
            verify = False
        own = {**self.proxies, **(proxies or {})}
        key = (*urlsplit(url)[:2], *own.items(), stream, verify, cert)
        if key not in self._settings:
            self._settings[key] = super().merge_environment_settings(url, own, stream, verify, cert)
        return self._settings[key]

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        """Prepare a request of what our clients use: not with files, nor with parameters, hooks or cookies beside those
        of the request and the session. requests copies all of these each time, which takes as long as the rest.
        """
        prepared = requests.PreparedRequest()
        auth = request.auth or self.auth
        if not auth and self.trust_env:
            auth = get_netrc_auth(str(request.url))
        prepared.prepare(
            method=request.method,
            url=request.url,
            headers={**self.headers, **request.headers},
            data=request.data,
            json=request.json,
            params=request.params,
            auth=auth,
            cookies=self.cookies,
            hooks=request.hooks,
        )
        return prepared


def new_retry(attempts: int, timeouts: Timeouts) -> LoggedRetry:
    """Return the retries of requests that only read. Connections that were refused are repeated for every method."""
    retry = LoggedRetry(
        total=attempts - 1,
        allowed_methods=frozenset({"GET", "HEAD"}),
        status_forcelist=RETRY_STATUSES,
        backoff_factor=0.3,
        backoff_max=timeouts.backoff_max_s,
        backoff_jitter=0.2,
        retry_after_max=timeouts.retry_after_max_s,
        raise_on_status=False,
        redirect=0,
    )
    retry.pace = Pace()
    return retry


class Adapter(HTTPAdapter):
    """Counts requests by method and path pattern, retries that were answered included; reads answers within bounds.
    All requests of one `max_retries` keep its pace.

    `unix_socket`: the path of the socket that all requests go to.
    """

    def __init__(
        self,
        sent: RequestCounter,
        bounds: Bounds,
        *,
        max_retries: LoggedRetry,
        unix_socket: str = "",
        **options: Any,
    ) -> None:
        self._sent = sent
        self._pace = max_retries.pace
        self._bounds = bounds
        self._unix_socket = unix_socket
        super().__init__(max_retries=max_retries, **options)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        if self._unix_socket:
            connection = type("SocketConnection", (_SocketConnection,), {"path": self._unix_socket})
            pool = type("SocketPool", (HTTPConnectionPool,), {"ConnectionCls": connection})
            self.poolmanager.pool_classes_by_scheme = {"http": pool}
        _bound(self.poolmanager, self._bounds)

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        known = len(self.proxy_manager)
        manager = super().proxy_manager_for(*args, **options)
        if len(self.proxy_manager) > known:
            _bound(manager, self._bounds)
        return manager

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Return the answer, its body read. Raises AnswerTooLong for one that is more than is allowed."""
        kind = f"{request.method} {_UUID.sub('{uuid}', urlsplit(str(request.url)).path)}"
        self._sent.add(kind, 1)
        with self._pace.turn():
            answer = super().send(request, *args, **kwargs)
        retries = getattr(answer.raw, "retries", None)
        self._sent.add(kind, len(retries.history) if retries else 0)
        body = bytearray()
        try:
            for chunk in answer.iter_content(CHUNK_BYTES):
                body += chunk
                if len(body) > self._bounds.answer_bytes:
                    answer.close()
                    raise AnswerTooLong(f"the answer is larger than {self._bounds.answer_bytes} bytes")
        except ChunkedEncodingError as error:
            # requests' wrapping of urllib3's, which would pass for a connection that broke.
            reason = error.__context__.__cause__ if error.__context__ else None
            raise (reason if isinstance(reason, AnswerTooLong) else error) from None
        count = values_in(body, exact_above=self._bounds.answer_values)
        if count > self._bounds.answer_values:
            raise AnswerTooLong(f"the answer has {count} values, and {self._bounds.answer_values} are read")
        answer._content = bytes(body)
        return answer


def _bound(manager: PoolManager, bounds: Bounds) -> None:
    """Have all connections of `manager` read within `bounds`, proxies' and SOCKS ones too."""
    answer = type("BoundedAnswer", (_BoundedAnswer,), {"bounds": bounds})
    by_scheme: dict[str, Any] = dict(manager.pool_classes_by_scheme)
    manager.pool_classes_by_scheme = {
        scheme: type(
            pool.__name__,
            (_FreshConnections, pool),
            {"ConnectionCls": type("BoundedConnection", (pool.ConnectionCls,), {"response_class": answer})},
        )
        for scheme, pool in by_scheme.items()
    }


class _SocketConnection(HTTPConnection):
    """A connection to the Unix socket `path`, whatever host the URL names."""

    path: str

    def _new_conn(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(self.timeout if isinstance(self.timeout, int | float) else None)
        try:
            made.connect(self.path)
        except OSError as error:
            made.close()
            raise NewConnectionError(
                self, f"Failed to connect to {self.path}: {error.strerror or error}"
            ) from error
        return made


class _FreshConnections(HTTPConnectionPool):
    """A pool that uses no connection which was idle for long: servers close them (gunicorn after two seconds), and of a
    request that is sent in that moment nobody can tell whether it was read, so it could not be repeated.
    """

    def _get_conn(self, timeout: float | None = None) -> Any:
        kept = super()._get_conn(timeout)
        if time.monotonic() - getattr(kept, "idle_since_s", math.inf) > IDLE_AT_MOST_S:
            kept.close()
        return kept

    def _put_conn(self, conn: Any) -> None:
        if conn is not None:
            conn.idle_since_s = time.monotonic()
        super()._put_conn(conn)


class _BoundedAnswer(HTTPResponse):
    """One answer of http.client: its headers count as well, and what urllib3 throws away before a retry."""

    bounds: Bounds

    def __init__(self, sock: Any, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_BoundedStream(sock, self.fp.detach(), self.bounds))


class _BoundedStream(io.RawIOBase):
    def __init__(self, sock: Any, stream: Any, bounds: Bounds) -> None:
        self._sock = sock
        self._stream = stream
        self._bounds = bounds
        self._ends_s = time.monotonic() + bounds.answer_s
        self._left_bytes = bounds.answer_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        usual_s, left_s = self._sock.gettimeout(), self._ends_s - time.monotonic()
        count: int | None
        if usual_s is not None and usual_s <= left_s:
            count = self._stream.readinto(buffer)
        else:
            count = self._read_last(buffer, left_s, usual_s)
        self._left_bytes -= count or 0
        if self._left_bytes < 0:
            raise AnswerTooLong(f"the answer is larger than {self._bounds.answer_bytes} bytes")
        return count

    def _read_last(self, buffer: Any, left_s: float, usual_s: float | None) -> int | None:
        """Read where the answer's time ends before the connection's usual time-out does."""
        try:
            if left_s <= 0:
                raise TimeoutError
            self._sock.settimeout(left_s)
            count: int | None = self._stream.readinto(buffer)
        except TimeoutError as error:
            raise AnswerTooLong(f"the answer took longer than {self._bounds.answer_s:g} s") from error
        finally:
            self._sock.settimeout(usual_s)
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()
