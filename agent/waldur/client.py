# SPDX-License-Identifier: MIT
"""One client per offering: requests, and errors with Waldur's own words and what to do.

Requests are repeated on two levels. Here, within seconds, for what is safe to send twice (GET always; POST only
where Waldur's answer does not depend on how often it is sent). Above, in the queue, for whole passes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.exceptions import ChunkedEncodingError, ProxyError, SSLError
from urllib3.exceptions import HTTPError

from agent.config.model import WaldurAccess
from agent.config.secret import mask_url
from agent.core.bounded_json import TooMuchJson
from agent.core.errors import WaldurAnswerError, WaldurError, WaldurLacks
from agent.http import answers
from agent.http.connections import AnswerTooLong, RequestCounter, Timeouts, new_retry
from agent.waldur import pool, rights, transport
from agent.waldur.auth import OidcAuth, auth_for
from agent.waldur.features import Features
from agent.waldur.listing import AT_ONCE, PAGE_SIZE, Listing, ListingChanged, Query
from agent.waldur.transport import Bounds

log = logging.getLogger(__name__)

OLDEST_FIRST = "created"
TIMEOUTS = Timeouts()
BOUNDS = Bounds()

Params = Sequence[tuple[str, str]]


class WaldurClient:
    """Requests for one offering. Safe for use by several threads; counts what it sends in `sent`."""

    def __init__(
        self,
        access: WaldurAccess,
        *,
        user_agent: str,
        offering_uuid: str,
        attempts: int = 4,
        timeouts: Timeouts = TIMEOUTS,
        bounds: Bounds = BOUNDS,
    ) -> None:
        self.url = access.url
        self.offering_uuid = offering_uuid
        self._attempts = attempts
        self._timeout = (timeouts.connect_s, timeouts.read_s)
        self._bounds = bounds
        self._counter = RequestCounter()
        # So many pages are asked for at once, whatever the number of listings.
        self._threads = pool.Threads(AT_ONCE)
        self.features = Features()
        retry = new_retry(attempts, timeouts)
        self._once = transport.new_session(access, self._counter, retry, bounds)
        self._repeated = transport.new_session(access, self._counter, retry.new(allowed_methods=None), bounds)
        self._auth = auth_for(access, self._repeated)
        for session in (self._once, self._repeated):
            session.headers.update({"User-Agent": user_agent, "Accept": "application/json"})
            session.auth = self._auth

    @property
    def sent(self) -> Counter[str]:
        return self._counter.counts

    def close(self) -> None:
        self._threads.close()
        self._once.close()
        self._repeated.close()

    def get(self, path: str, params: Params = ()) -> Mapping[str, Any]:
        """Return one object. Raises WaldurAnswerError where something else comes."""
        document = self._json(self._send("GET", path, params=params), path)
        if not isinstance(document, Mapping):
            raise WaldurAnswerError(f"GET {path}: the answer is not an object", method="GET", path=path)
        return document

    def header(self, path: str, name: str, params: Params = ()) -> str:
        """Return a header of the answer to a GET; empty where it has none. Raises WaldurError."""
        return str(self._send("GET", path, params=params).headers.get(name, ""))

    def pages(
        self, path: str, params: Params = (), *, order: str = "", is_paged: bool = True
    ) -> Iterator[Mapping[str, Any]]:
        """Yield all items of a list once, page by page as the `Link` header says, whatever the page's size. The pages
        after the first are asked for a few at a time, where a count tells how many there are.

        `order`: what to sort by, so that what comes or goes meanwhile moves few others; left out where the server
        cannot. `is_paged` is false where Waldur sends the whole at once. Only the link's query is followed, so the
        token never goes to another address than ours. Raises WaldurAnswerError where a page is not a list of objects,
        where the pages lead in a circle or beyond the bounds, and where they hold fewer different items than were
        announced, also when they are read once more.
        """
        listing = Listing(path, self._bounds, is_paged=is_paged)
        try:
            yield from self._read(listing, path, params, order)
        except ListingChanged as changed:
            log.info("%s; read once more", changed)
            again = Listing(path, self._bounds, is_paged=is_paged, before=listing)
            yield from self._read(again, path, params, order)

    def _read(self, listing: Listing, path: str, params: Params, order: str) -> Iterator[Mapping[str, Any]]:
        """Yield the items of a listing that was not read yet, page by page."""
        plain = (*params, ("page_size", str(PAGE_SIZE)))
        sorting = f"sorting of {path} by {order}"
        is_sorted = bool(order) and self.if_supported(sorting)
        query: Query | None = (*params, ("o", order), plain[-1]) if is_sorted else plain
        with pool.Ahead(self._threads, partial(self._page, path)) as asked:
            while query is not None:
                listing.begin_page(query)
                asked.start(listing.ahead(query))
                try:
                    answer = asked.take(query)
                except WaldurError as error:
                    is_order = error.status == 400 and error.detail.startswith("o: ")
                    if is_sorted and listing.is_first and is_order:
                        self.note_missing(sorting, error)
                        listing.begin_anew()
                        query, is_sorted = plain, False
                        continue
                    if listing.is_first or error.status != 404:
                        raise
                    raise listing.changed(f"it became shorter while it was read ({error.detail})") from error
                yield from listing.items(self._json(answer, path))
                query = listing.next_page(answer)

    def _page(self, path: str, query: Query) -> requests.Response:
        return self._send("GET", path, params=query)

    def post(self, path: str, body: Any = None, *, repeatable: bool = False) -> Any:
        """Send a POST and return the JSON of the answer, None without one.

        `repeatable` where sending it twice does the same as sending it once.
        """
        answer = self._send("POST", path, body={} if body is None else body, repeatable=repeatable)
        return self._json(answer, path) if answer.content.strip() else None

    def post_if_there(self, feature: str, path: str, body: Any = None, *, repeatable: bool = False) -> None:
        """Send a POST that not every server has. Raises WaldurLacks where it is lacking: noted and logged the first
        time, and not sent again for a while.
        """
        if not self.if_supported(feature):
            raise WaldurLacks(f"{mask_url(self.url)} has no {feature}", method="POST", path=path, status=404)
        try:
            self.post(path, body, repeatable=repeatable)
        except WaldurLacks as error:
            self.note_missing(feature, error)
            raise
        self.features.note_there(feature)

    def change(self, method: str, path: str, body: Any) -> Mapping[str, Any]:
        """Send a PATCH or PUT, which do the same when they are sent twice; return the object as it is afterwards."""
        document = self._json(self._send(method, path, body=body, repeatable=True), path)
        if not isinstance(document, Mapping):
            raise WaldurAnswerError(f"{method} {path}: the answer is not an object", method=method, path=path)
        return document

    def if_supported(self, feature: str) -> bool:
        """Return False while this server is known to lack `feature`."""
        return not self.features.lacks(feature)

    def note_missing(self, feature: str, error: WaldurError) -> None:
        """Remember, and log once, that this server lacks an endpoint that newer ones have. Raises the error where it
        had it before.
        """
        if self.features.note_missing(feature, error):
            log.info("%s has no %s (%s): done without it", mask_url(self.url), feature, error.status)

    def _send(
        self, method: str, path: str, *, params: Params = (), body: Any = None, repeatable: bool = False
    ) -> requests.Response:
        """Return an answer of success. A refused token is renewed and an answer cut off asked for again, once."""
        session = self._repeated if repeatable else self._once
        for last in (False, True):
            try:
                answer = session.request(
                    method,
                    self.url + path,
                    params=list(params),
                    json=body,
                    timeout=self._timeout,
                    allow_redirects=False,
                )
            except (OSError, HTTPError) as error:  # requests' own errors are OSErrors
                is_cut_off = isinstance(error, ChunkedEncodingError) and (repeatable or method == "GET")
                if is_cut_off and not last and self._attempts > 1:
                    log.warning("%s %s: %s; asked again", method, path, answers.cause(error))
                    continue
                hint = next((text for kind, text in _NO_ANSWER_HINTS.items() if isinstance(error, kind)), "")
                raise WaldurError(
                    f"{method} {path}: no answer from {mask_url(self.url)}: {answers.cause(error)}{hint}",
                    method=method,
                    path=path,
                ) from error
            if answer.status_code == 401 and isinstance(self._auth, OidcAuth) and not last:
                self._auth.forget(answer.request)
                continue
            break
        if answer.status_code >= 300:
            raise self._failure(method, path, answer)
        return answer

    def _json(self, answer: requests.Response, path: str) -> Any:
        method = answer.request.method or "GET"
        try:
            return answers.document(answer)
        except TooMuchJson as error:
            hint = _NO_ANSWER_HINTS[AnswerTooLong]
            raise WaldurAnswerError(
                f"{method} {path}: the answer of {mask_url(self.url)} cannot be read: {error}{hint}",
                method=method,
                path=path,
                status=answer.status_code,
            ) from error
        except ValueError as error:
            kind = answer.headers.get("Content-Type", "no type")
            raise WaldurAnswerError(
                f"{method} {path}: the answer is not JSON ({kind}): {answers.page(answer, self._auth.mask)[:80]!r}. "
                "Is waldur_api_url the API's address, ending in /api/?",
                method=method,
                path=path,
                status=answer.status_code,
            ) from error

    def _failure(self, method: str, path: str, answer: requests.Response) -> WaldurError:
        """Return the error for a refusal; WaldurLacks where the endpoint is missing.

        A missing object (404 too) is told in words, a missing address on a page.
        """
        status, detail = answer.status_code, answers.detail(answer, self._auth.mask)
        is_missing = status == 405 or (
            status == 404 and not detail.endswith(("matches the given query.", "Invalid page."))
        )
        kind = WaldurLacks if is_missing else WaldurError
        sentence = f"{method} {path}: Waldur answered {status}: {detail}"
        hint = self._hint(answer)
        return kind(
            f"{sentence.rstrip('.')}. {hint}" if hint else sentence,
            method=method,
            path=path,
            status=status,
            detail=detail,
        )

    def _hint(self, answer: requests.Response) -> str:
        """Return what the operator should look at; empty where Waldur's words are enough."""
        status = answer.status_code
        if status < 400:
            place = self._auth.mask(mask_url(answer.headers.get("Location", "nowhere")))[:200]
            return f"It leads to {place}, and redirects are not followed: check waldur_api_url"
        if status == 401 and isinstance(self._auth, OidcAuth):
            return (
                "Waldur refuses the access token of the OIDC provider: check oidc_client_id, and that Waldur "
                "trusts this provider and knows the client's user"
            )
        if status == 404 and "html" in answer.headers.get("Content-Type", ""):
            return "The server knows no such address: is waldur_api_url right, ending in /api/?"
        if status == 403:
            return rights.hint(urlsplit(str(answer.url)).path)
        return _HINTS.get(status, "")


_HINTS = {
    401: "The token is wrong, expired, or its user inactive: check waldur_api_token",
}
_NO_ANSWER_HINTS: Mapping[type[Exception], str] = {
    AnswerTooLong: ". Nothing of it is used. Check waldur_api_url, and what stands between",
    SSLError: ". If a private CA signed Waldur's certificate, name its file in the variable REQUESTS_CA_BUNDLE; "
    "`verify_ssl: false` checks nothing",
    ProxyError: ". Check global_proxy, or the variables HTTP_PROXY and HTTPS_PROXY",
}


# What sends an action to Waldur; an area has one for each action that it does (`ACTIONS`).
Request = Callable[[WaldurClient, Any], Any]
