# SPDX-License-Identifier: MIT
"""The client of every server of ours: Waldur, its OIDC provider, slurmrestd, the emulator.

Requests go to one address, at the pace that the server asks for, and are repeated where that does no harm. Answers are
taken within bounds of bytes, values and seconds. What a status or a document means is its caller's to say.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit

from requests import PreparedRequest, Session
from requests.cookies import extract_cookies_to_jar
from requests.exceptions import ChunkedEncodingError, ConnectionError, Timeout
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    InsecureRequestWarning,
    InvalidHeader,
    ProxyError,
)
from urllib3.util import Retry

from agent.config.secret import mask_url
from agent.core.backoff import Backoff
from agent.core.bounded_json import VALUES_AT_MOST, values_in
from agent.core.errors import SiteAgentError
from agent.http import answers
from agent.http.answers import Answer, Mask
from agent.http.connections import Adapter, AnswerTooLong
from agent.http.pace import Pace

log = logging.getLogger(__name__)

UNIX = "unix"
# The host that requests over a socket name.
SOCKET_HOST = "http://localhost"
# Servers close connections that are idle, gunicorn after two seconds. Of a request that is sent in that moment it is
# unknown whether it was read: one that may not be repeated goes over no connection that is older than this.
CONNECTION_AGE_S = 1.0
CHUNK_BYTES = 2**16
TOO_MANY = 429
RETRY_STATUSES = (TOO_MANY, 500, 502, 503, 504)
BACKOFF_S = 0.3
# What a request raises when no whole answer came; the errors of requests are OSErrors.
NO_ANSWER = (OSError, HTTPError)
# Those of them after which another try may do better.
BROKEN = (ConnectionError, Timeout, ChunkedEncodingError)

Params = Sequence[tuple[str, str]]

# Passes ask with the same parameters, of which some have fifty, again and again.
_encoded = lru_cache(maxsize=256)(urlencode)


@lru_cache(maxsize=256)
def _spelled(url: str) -> str:
    """Return a URL as requests spells it. Raises its errors."""
    made = PreparedRequest()
    made.prepare_url(url, None)
    return str(made.url)


_UUID = re.compile(r"[0-9a-f]{32}")
_NO_HEADERS: Mapping[str, str] = {}


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


class NoAnswer(SiteAgentError):
    """No whole answer came: nothing is known of what the server did. `__cause__` is the library's error, or ours."""

    retryable = True

    def __init__(self, message: str, reason: str) -> None:
        self.reason = reason
        super().__init__(message)

    @property
    def is_too_long(self) -> bool:
        return isinstance(self.__cause__, AnswerTooLong)


class HttpClient:
    """Requests to one address, `http(s)://host:port/...` or `unix:///path`; `sent` counts them by method and path
    pattern. Safe for use by several threads.

    A server to which no connection could be made is tried once by each later request, of any client, until one is: from
    then on, also within that request, attempts count as ever.

    `verify`: whether the server's certificate is checked, or the file of the authorities to check it with. `proxy` and
    `verify` come before the environment, whose proxies and REQUESTS_CA_BUNDLE count where nothing is said. `mask` takes
    secrets out of what a server says.
    """

    # Servers, with the proxies before them, to which the last request made no connection in all its attempts. A client
    # of one attempt says nothing about that.
    _unreachable: ClassVar[set[tuple[str, str]]] = set()

    def __init__(  # noqa: PLR0913  each is one setting of the way to a server
        self,
        url: str,
        *,
        timeouts: Timeouts = Timeouts(),
        bounds: Bounds = Bounds(),
        attempts: int = 2,
        verify: bool | str = True,
        proxy: str = "",
        headers: Mapping[str, str] = _NO_HEADERS,
        mask: Mask = str,
    ) -> None:
        parts = urlsplit(url)
        socket = parts.path if parts.scheme == UNIX else ""
        self._url = SOCKET_HOST if socket else url
        self.place = f"{UNIX}://{socket}" if socket else mask_url(url)
        self.sent: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._timeouts = timeouts
        self._bounds = bounds
        self._attempts = attempts
        self._way = (socket or parts.netloc, proxy)
        self._mask = mask
        self._pace = Pace()
        self._backoff = Backoff(BACKOFF_S, timeouts.backoff_max_s)
        self._fresh_s = time.monotonic()
        self._adapter = Adapter(answer_s=bounds.answer_s, unix_socket=socket)
        # For its settings only. The adapter sends: a session would follow redirects, and headers and forms are for one
        # address.
        session = Session()
        self._headers = {**session.headers, "Accept": "application/json", **headers}
        self._cookies = session.cookies
        # The proxies, and what checks the certificate.
        self._route: Mapping[str, Any] = {}
        if not socket:
            proxies = {"http": proxy, "https": proxy} if proxy else {}
            settings = session.merge_environment_settings(self._url, proxies, None, verify, None)
            self._route = {"proxies": settings["proxies"], "verify": settings["verify"]}
        if not verify:
            # The configuration warns of it once, not with every connection.
            warnings.simplefilter("ignore", InsecureRequestWarning)

    def close(self) -> None:
        self._adapter.close()

    def target(self, path: str, params: Params = ()) -> str:
        """Return the address of a request; without a path, it is the client's own."""
        address = f"{self._url.rstrip('/')}/{path}" if path else self._url
        return f"{address}?{_encoded(tuple(params))}" if params else address

    def send(  # noqa: PLR0913  what a request is made of
        self,
        method: str,
        path: str = "",
        *,
        params: Params = (),
        body: Any = None,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        is_repeatable: bool = False,
    ) -> Answer:
        """Return the answer, whatever its status; `body` goes as JSON. Raises NoAnswer.

        A GET, and what else is `is_repeatable`, is sent again after a failure of the server or the connection; any
        other request only where no connection was made.
        """
        is_repeatable = is_repeatable or method == "GET"
        url = self.target(path, params)
        place = urlsplit(url).path
        was_unreachable = self._way in self._unreachable
        attempt = 0
        while True:
            attempt += 1
            with self._lock:
                self.sent[f"{method} {_UUID.sub('{uuid}', place)}"] += 1
            wait_s = self._backoff.wait_s(attempt - 1)
            if not is_repeatable and time.monotonic() - self._fresh_s > CONNECTION_AGE_S:
                self._adapter.close()
                self._fresh_s = time.monotonic()
            try:
                with self._pace.turn():
                    answer = self._take(method, url, json=body, data=form, headers=dict(headers))
            except NO_ANSWER as error:
                reason = self._mask(answers.cause(error))
                is_unsent = _is_unsent(error)
                is_again = isinstance(error, BROKEN) and (is_repeatable or is_unsent)
                self._note_way(attempt, is_unsent=is_unsent)
                is_unreachable = was_unreachable and self._way in self._unreachable
                if attempt >= self._attempts or not is_again or is_unreachable:
                    raise NoAnswer(
                        f"{method} {path}: no answer from {self.place}: {reason}", reason
                    ) from error
            else:
                self._note_way(attempt, is_unsent=False)
                reason = f"answered {answer.status}"
                is_again = answer.status in RETRY_STATUSES and is_repeatable
                if attempt >= self._attempts or not is_again:
                    return answer
                asked_s = min(_retry_after_s(answer), self._timeouts.retry_after_max_s)
                if asked_s or answer.status == TOO_MANY:
                    wait_s = (asked_s or wait_s) + self._pace.refused(asked_s)
            log.warning("%s %s: %s; asked again, attempt %d", method, place, reason, attempt + 1)
            time.sleep(wait_s)

    def _note_way(self, attempt: int, *, is_unsent: bool) -> None:
        if not is_unsent:
            self._unreachable.discard(self._way)
        elif attempt == self._attempts > 1:
            self._unreachable.add(self._way)

    def _prepared(self, method: str, url: str, *, headers: Mapping[str, str], **body: Any) -> PreparedRequest:
        """Return the request that `Session.request` makes, which takes longer: it merges all settings once more, and
        looks at the URL again.
        """
        made = PreparedRequest()
        made.prepare_method(method)
        made.url = _spelled(url)
        made.prepare_headers({**self._headers, **headers})
        if self._cookies:
            made.prepare_cookies(self._cookies)
        made.prepare_body(body.get("data"), None, body.get("json"))
        if "@" in url:
            made.prepare_auth(None, url)  # from a user and password in the URL
        return made

    def _take(self, method: str, url: str, **options: Any) -> Answer:
        """Send a request once, and read its answer within the bounds; an error page that is too large is cut. Raises
        AnswerTooLong, and the errors of requests and urllib3.
        """
        content, most = bytearray(), self._bounds.answer_bytes
        request = self._prepared(method, url, **options)
        try:
            with self._adapter.send(
                request,
                **self._route,
                timeout=(min(self._timeouts.connect_s, self._timeouts.read_s), self._timeouts.read_s),
                stream=True,
            ) as got:
                if "Set-Cookie" in got.headers:
                    extract_cookies_to_jar(self._cookies, request, got.raw)  # type: ignore[no-untyped-call]
                for chunk in got.iter_content(CHUNK_BYTES):
                    content += chunk
                    if len(content) > most:
                        if got.ok:
                            raise AnswerTooLong(f"the answer is larger than {most} bytes")
                        break
        except NO_ANSWER as error:
            if too_long := _too_long(error):
                raise too_long from None
            raise
        count = values_in(content, exact_above=self._bounds.answer_values)
        if count > self._bounds.answer_values:
            raise AnswerTooLong(f"the answer has {count} values, and {self._bounds.answer_values} are read")
        next_url = got.links.get("next", {}).get("url")
        return Answer(got.status_code, got.reason, got.headers, bytes(content), next_url, self._mask)


def _too_long(error: BaseException) -> AnswerTooLong | None:
    """Return our own error out of what the libraries wrapped it in."""
    if isinstance(error, AnswerTooLong):
        return error
    inner = [getattr(error, "reason", None), *error.args]
    return next(filter(None, (_too_long(other) for other in inner if isinstance(other, BaseException))), None)


def _is_unsent(error: BaseException) -> bool:
    """Return whether no connection was made, to the server or to its proxy."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    if isinstance(reason, ProxyError):
        reason = reason.original_error
    return isinstance(reason, ConnectTimeoutError)


def _retry_after_s(answer: Answer) -> float:
    """Return how long the server wants no request; 0 where it does not say, or not in words that can be read."""
    try:
        return Retry().parse_retry_after(answer.headers.get("Retry-After", ""))
    except (InvalidHeader, ValueError, OverflowError):
        return 0.0
