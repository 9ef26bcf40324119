# SPDX-License-Identifier: MIT
"""A client of one JSON API: requests to one address, answers within bounds, no secret in any text.

It judges no answer: what a status or a document means is its caller's to say.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from urllib3.exceptions import InsecureRequestWarning

from agent.core.errors import SiteAgentError
from agent.http import answers
from agent.http.connections import (
    NO_ANSWER,
    Adapter,
    AnswerTooLong,
    Bounds,
    RequestCounter,
    Session,
    Timeouts,
    new_retry,
)

UNIX = "unix"
# The host that requests over a socket name.
SOCKET_HOST = "http://localhost"

Params = Sequence[tuple[str, str]]
Headers = Callable[[], Mapping[str, str]]
Mask = Callable[[str], str]


class NoAnswer(SiteAgentError):
    """No whole answer came: nothing is known of what the server did. `is_too_long`: it was more than the bounds."""

    retryable = True

    def __init__(self, message: str, *, is_too_long: bool = False) -> None:
        self.is_too_long = is_too_long
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """An answer: `document` is None where the body is not JSON; `said` is the server's words, without secrets."""

    status: int
    document: Any
    said: str = ""


def plain(text: str) -> str:
    return text


class JsonClient:
    """Requests to one address, `http(s)://host:port` or `unix:///path`. Safe for use by several threads.

    `headers` are asked for with every request; `mask` takes secrets out of what a server says. Redirects are not
    followed: the headers are for one address. Proxies are the environment's.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        bounds: Bounds,
        verify_ssl: bool = True,
        headers: Headers = dict,
        mask: Mask = plain,
    ) -> None:
        parts = urlsplit(url)
        socket = parts.path if parts.scheme == UNIX else ""
        self._url = SOCKET_HOST if socket else url.rstrip("/")
        self.place = f"{UNIX}://{socket}" if socket else self._url
        self._headers = headers
        self._mask = mask
        self._timeout = (min(timeout_s, Timeouts().connect_s), timeout_s)
        self._counter = RequestCounter()
        retry = new_retry(2, Timeouts(read_s=timeout_s))
        adapter = Adapter(self._counter, bounds, unix_socket=socket, max_retries=retry)
        self._session = Session()
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)
        if socket:
            self._session.trust_env = False
        self._session.verify = verify_ssl
        if not verify_ssl:
            # The configuration warns of it once, not with every connection.
            warnings.simplefilter("ignore", InsecureRequestWarning)

    @property
    def sent(self) -> Counter[str]:
        return self._counter.counts

    def target(self, path: str, params: Params = ()) -> str:
        """Return the address of a request, as texts show it."""
        return f"{self._url}/{path}{'?' if params else ''}{urlencode(params)}"

    def send(self, method: str, path: str, params: Params = (), body: Any = None) -> JsonAnswer:
        """Return the answer, whatever its status. Raises NoAnswer."""
        try:
            answer = self._session.request(
                method,
                f"{self._url}/{path}",
                params=list(params),
                json=body,
                headers={"Accept": "application/json", **self._headers()},
                timeout=self._timeout,
                allow_redirects=False,
            )
        except NO_ANSWER as error:
            raise NoAnswer(
                f"{method} {path}: no answer from {self.place}: {self._mask(answers.cause(error))}",
                is_too_long=_is_too_long(error),
            ) from error
        try:
            document = answers.document(answer)
        except ValueError:
            document = None
        return JsonAnswer(answer.status_code, document, answers.detail(answer, self._mask))


def _is_too_long(error: BaseException) -> bool:
    """Return whether an answer was beyond the bounds, whatever the libraries wrapped that in."""
    inner = [getattr(error, "reason", None), *error.args]
    return isinstance(error, AnswerTooLong) or any(
        _is_too_long(other) for other in inner if isinstance(other, BaseException)
    )
