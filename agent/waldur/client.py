# SPDX-License-Identifier: MIT
"""One client per offering: requests, and errors with Waldur's own words and what to do.

Requests are repeated on two levels. Here, within seconds, for what is safe to send twice (GET always; POST only
where Waldur's answer does not depend on how often it is sent). Above, in the queue, for whole passes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from requests.exceptions import ProxyError, SSLError
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from agent.config.model import WaldurAccess
from agent.config.secret import mask_url
from agent.core.bounded_json import TooMuchJson
from agent.core.errors import ConfigError, WaldurAnswerError, WaldurError, WaldurLacks
from agent.http.answers import Answer, Mask
from agent.http.client import HttpClient, NoAnswer, Params, Timeouts
from agent.http.connections import AnswerTooLong
from agent.waldur import pool, rights
from agent.waldur.auth import OidcAuth, auth_for
from agent.waldur.features import Features
from agent.waldur.listing import AT_ONCE, PAGE_SIZE, Bounds, Listing, ListingChanged, Query

log = logging.getLogger(__name__)

OLDEST_FIRST = "created"
TIMEOUTS = Timeouts()
BOUNDS = Bounds()
PROXY_SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")


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
        self._bounds = bounds
        # So many pages are asked for at once, whatever the number of listings.
        self._threads = pool.Threads(AT_ONCE)
        self.features = Features()
        proxy = _usable_proxy(access.proxy)

        def client(url: str, mask: Mask) -> HttpClient:
            return HttpClient(
                url,
                timeouts=timeouts,
                bounds=bounds,
                attempts=attempts,
                verify=(access.ca_file or True) if access.verify_ssl else False,
                proxy=proxy,
                headers={"User-Agent": user_agent},
                mask=mask,
            )

        self._auth = auth_for(access, client)
        self._http = client(access.url, self._auth.mask)

    @property
    def sent(self) -> Counter[str]:
        return self._http.sent

    def close(self) -> None:
        self._threads.close()
        self._http.close()

    def get(self, path: str, params: Params = ()) -> Mapping[str, Any]:
        """Return one object. Raises WaldurAnswerError where something else comes."""
        document = self._json("GET", path, self._send("GET", path, params=params))
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
        after the first are asked for a few at a time, where a count says how many there are.

        `order`: what to sort by, so that what comes or goes while the list is read moves few others; omitted where the
        server cannot. `is_paged` is false where Waldur sends the whole at once. Only the link's query is followed, so
        the token never goes to another address than ours. Raises WaldurAnswerError where a page is not a list of
        objects, where the pages lead in a circle or beyond the bounds, and where they hold fewer different items than
        were announced, also when they are read once more.
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
                yield from listing.items(self._json("GET", path, answer))
                query = listing.next_page(answer)

    def _page(self, path: str, query: Query) -> Answer:
        return self._send("GET", path, params=query)

    def post(self, path: str, body: Any = None, *, repeatable: bool = False) -> Any:
        """Send a POST and return the JSON of the answer, None without one.

        `repeatable` where sending it twice does the same as sending it once.
        """
        answer = self._send("POST", path, body={} if body is None else body, repeatable=repeatable)
        return self._json("POST", path, answer) if answer.content.strip() else None

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
        document = self._json(method, path, self._send(method, path, body=body, repeatable=True))
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
    ) -> Answer:
        """Return an answer of success. A token that is refused is renewed, once."""
        for last in (False, True):
            authorization = self._auth.header()
            try:
                answer = self._http.send(
                    method,
                    path,
                    params=params,
                    body=body,
                    headers={"Authorization": authorization},
                    is_repeatable=repeatable,
                )
            except NoAnswer as error:
                kinds = _NO_ANSWER_HINTS.items()
                hint = next((text for kind, text in kinds if isinstance(error.__cause__, kind)), "")
                raise WaldurError(f"{error}{hint}", method=method, path=path) from error
            if last or answer.status != 401 or not self._auth.renew(authorization):
                break
        if answer.status >= 300:
            raise self._failure(method, path, answer)
        return answer

    def _json(self, method: str, path: str, answer: Answer) -> Any:
        try:
            return answer.document()
        except TooMuchJson as error:
            hint = _NO_ANSWER_HINTS[AnswerTooLong]
            raise WaldurAnswerError(
                f"{method} {path}: the answer of {mask_url(self.url)} cannot be read: {error}{hint}",
                method=method,
                path=path,
                status=answer.status,
            ) from error
        except ValueError as error:
            kind = answer.headers.get("Content-Type", "no type")
            raise WaldurAnswerError(
                f"{method} {path}: the answer is not JSON ({kind}): {answer.page()[:80]!r}. "
                "Is waldur_api_url the API's address, ending in /api/?",
                method=method,
                path=path,
                status=answer.status,
            ) from error

    def _failure(self, method: str, path: str, answer: Answer) -> WaldurError:
        """Return the error for a refusal; WaldurLacks where the endpoint is missing.

        A missing object (404 too) is reported in words, a missing address on a page.
        """
        status, detail = answer.status, answer.detail()
        is_missing = status == 405 or (
            status == 404 and not detail.endswith(("matches the given query.", "Invalid page."))
        )
        kind = WaldurLacks if is_missing else WaldurError
        sentence = f"{method} {path}: Waldur answered {status}: {detail}"
        hint = self._hint(path, answer)
        return kind(
            f"{sentence.rstrip('.')}. {hint}" if hint else sentence,
            method=method,
            path=path,
            status=status,
            detail=detail,
        )

    def _hint(self, path: str, answer: Answer) -> str:
        """Return what the operator should look at; empty where Waldur's words are enough."""
        status = answer.status
        if status < 400:
            place = self._auth.mask(mask_url(answer.headers.get("Location", "nowhere")))[:200]
            return f"It leads to {place}, and redirects are not followed: check waldur_api_url"
        if status == 401 and isinstance(self._auth, OidcAuth):
            return (
                "Waldur refuses the access token of the OIDC provider: check oidc_client_id, and that Waldur "
                "trusts this provider and knows the client's user"
            )
        if status == 401:
            return "The token is wrong, expired, or its user inactive: check waldur_api_token"
        if status == 404 and "html" in answer.headers.get("Content-Type", ""):
            return "The server knows no such address: is waldur_api_url right, ending in /api/?"
        if status == 403:
            return rights.hint(path)
        return ""


def _usable_proxy(proxy: str) -> str:
    """Return the proxy. Raises ConfigError: the libraries' own errors would show its password."""
    if not proxy:
        return ""
    try:
        place = parse_url(proxy)
    except LocationParseError:
        raise ConfigError(f"global_proxy {mask_url(proxy)} is not a URL") from None
    if not place.host or (place.scheme or "http").lower() not in PROXY_SCHEMES:
        schemes = ", ".join(PROXY_SCHEMES)
        raise ConfigError(
            f"global_proxy {mask_url(proxy)} is not a proxy's URL; it begins with one of {schemes}"
        )
    return proxy


_NO_ANSWER_HINTS: Mapping[type[Exception], str] = {
    AnswerTooLong: ". Nothing of it is used. Check waldur_api_url, and what stands between",
    SSLError: ". If a private CA signed Waldur's certificate, name its file in the variable REQUESTS_CA_BUNDLE; "
    "`verify_ssl: false` checks nothing",
    ProxyError: ". Check global_proxy, or the variables HTTP_PROXY and HTTPS_PROXY",
}


# What sends an action to Waldur; an area has one for each action that it does (`ACTIONS`).
Request = Callable[[WaldurClient, Any], Any]
