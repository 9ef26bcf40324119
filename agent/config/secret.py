# SPDX-License-Identifier: MIT
"""A text that prints as `***` wherever it is printed; `reveal` is called where it leaves for its owner."""

from __future__ import annotations

import re

MASK = "***"

# Keys whose values nobody should read: bind_password, target_api_token, oidc_client_secret, sentry_dsn.
_SECRET_KEY = re.compile(r"(token|secret|passw(or)?d|passcode|(api|private|secret)_key|dsn)$", re.IGNORECASE)
# Celery takes several broker URLs in one text, with a semicolon between.
_NEXT_URL = re.compile(r";(?=[a-zA-Z][a-zA-Z0-9+.-]*://)")


class Secret:
    """A token or password. Equal by content, so that settings can be compared."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class SecretUrl(Secret):
    """A URL whose password, if any, is the secret part; the rest of it may be shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return mask_url(self.reveal())

    __str__ = __repr__


def mask_url(url: str) -> str:
    """Return the URL with the password and the query's values left out: Sentinel URLs carry passwords in both.

    Works on text, not on a parsed URL: a password with `/`, `?` or `[` in it must not show either.
    """
    masked = []
    for part in _NEXT_URL.split(url):
        scheme, separator, rest = part.partition("://")
        if not separator:
            masked.append(MASK if "@" in part else part)
            continue
        user, at, place = rest.rpartition("@")
        if at:
            name, colon, _ = user.partition(":")
            user = f"{name}:{MASK}" if colon else MASK
        place, question, query = place.partition("#")[0].partition("?")
        pairs = [pair.partition("=") for pair in query.split("&")] if query else []
        shown = "&".join(f"{key}={MASK}" if equals else MASK for key, equals, _ in pairs)
        masked.append(f"{scheme}://{user}{at}{place}{question}{shown}")
    return ";".join(masked)


def is_secret_key(name: str) -> bool:
    """Return whether a key of this name holds a secret (`token_file` and `token_env` do not)."""
    return _SECRET_KEY.search(name) is not None
