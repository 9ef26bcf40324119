# SPDX-License-Identifier: MIT
"""A text that prints as `***` wherever it is printed; `reveal` is called where it leaves for its owner."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

MASK = "***"
# Shorter ones would be found in innocent words of a text.
MIN_SECRET_LENGTH = 6

# Keys whose values must not be printed: bind_password, target_api_token, oidc_client_secret, sentry_dsn.
_SECRET_KEY = re.compile(r"(token|secret|passw(or)?d|passcode|(api|private|secret)_key|dsn)$", re.IGNORECASE)
# Among a command's words: `--token X`, `--token=X`, `SSHPASS=X`, `--env=SSHPASS=X`; PuTTY's `-pw X`.
_NAMES = r"(token|secret|pass|passw(or)?d|passcode|passphrase|(api|private|secret|access)[_-]?key|_pwd)"
_OPTION_BEFORE_SECRET = re.compile(rf"-(\S*{_NAMES}|pw)", re.IGNORECASE)
_ASSIGNED_SECRET = re.compile(rf"\S*?{_NAMES}=(?=.)", re.IGNORECASE)
# sshpass takes its options together (`-vp X`) and with their value (`-pX`); the values of -f, -d and -P are no secret.
_SSHPASS = "sshpass"
# The key whose words may hold a password.
COMMAND_PREFIX = "command_prefix"
_SSHPASS_OPTION = re.compile(r"-[eVhv]*([pfdP])(.*)", re.DOTALL)
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
    """A URL whose password, if any, is the secret part; the rest of it may be printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return mask_url(self.reveal())

    __str__ = __repr__


def mask_url(url: str) -> str:
    """Return the URL with the password and the query's values masked: Sentinel URLs carry passwords in both.

    Works on text, not on a parsed URL: a password with `/`, `?` or `[` in it must not appear either.
    """
    masked = []
    for part in split_urls(url):
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
        masked_query = "&".join(f"{key}={MASK}" if equals else MASK for key, equals, _ in pairs)
        masked.append(f"{scheme}://{user}{at}{place}{question}{masked_query}")
    return ";".join(masked)


def split_urls(urls: str) -> list[str]:
    """Return the URLs of a text that has several with `;` between them."""
    return _NEXT_URL.split(urls)


def passwords_in(url: str) -> list[str]:
    """Return the passwords in a URL, or in several with `;` between them, as they are written and unquoted."""
    found = []
    for part in split_urls(url):
        user, _, place = part.partition("://")[2].rpartition("@")
        pairs = [pair.partition("=") for pair in place.partition("?")[2].split("&")]
        found += [user.partition(":")[2] or user, *(value for key, _, value in pairs if is_secret_key(key))]
    return [text for written in found if written for text in (written, unquote(written))]


def secret_values(tree: Any, declared: Collection[str] = ()) -> Iterator[str]:
    """Yield the secrets that are written out anywhere in a tree of maps and lists: under keys that are `declared` as
    secret or named like secrets, in URLs, and among the words of `command_prefix`.
    """
    if isinstance(tree, list | tuple):
        for item in tree:
            yield from secret_values(item, declared)
    elif isinstance(tree, str):
        yield from passwords_in(tree)
    elif isinstance(tree, Mapping):
        for name, value in tree.items():
            if name == COMMAND_PREFIX:
                yield from secrets_in(command_words(value))
            elif name in declared:
                yield from _texts(value)
            elif isinstance(name, str) and is_secret_key(name) and isinstance(value, str):
                yield from filter(None, [value])
            else:
                yield from secret_values(value, declared)


def _texts(value: Any) -> Iterator[str]:
    """Yield all values of a secret that is a text, a number, or several of them."""
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)
    elif value:
        yield str(value)


def mask_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command's words as they may be printed: as many words, with the passwords among them masked."""
    masked = []
    for word, start in _secret_starts(words):
        if start < len(word):
            masked.append(word[:start] + MASK)
        elif (inner := _words_within(word)) and mask_words(inner) != inner:
            masked.append(shlex.join(mask_words(inner)))
        else:
            masked.append(mask_url(word) if "://" in word else word)
    return tuple(masked)


def secrets_in(words: Sequence[str]) -> tuple[str, ...]:
    """Return the texts that `mask_words` hides, but for those in URLs."""
    found: list[str] = []
    for word, start in _secret_starts(words):
        found += [word[start:]] if start < len(word) else secrets_in(_words_within(word))
    return tuple(found)


def _secret_starts(words: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield each word with the place where a secret begins in it: its length where none does."""
    value_of, in_sshpass = "", False
    for word in words:
        # Also as `-oProxyCommand=sshpass`.
        is_sshpass = PurePath(word.rpartition("=")[2]).name == _SSHPASS
        start, is_value = len(word), bool(value_of)
        if is_value:
            start = 0 if value_of == "secret" else len(word)
            value_of = ""
        elif in_sshpass and (option := _SSHPASS_OPTION.fullmatch(word)):
            is_secret = option[1] == "p"
            if not option[2]:
                value_of = "secret" if is_secret else "other"
            elif is_secret:
                start = option.start(2)
        elif assigned := _ASSIGNED_SECRET.match(word):
            start = assigned.end()
        elif not is_sshpass and _OPTION_BEFORE_SECRET.fullmatch(word):
            value_of = "secret"
        is_option = is_value or word.startswith("-")
        in_sshpass = is_sshpass or (in_sshpass and is_option)
        yield word, start


def _words_within(word: str) -> tuple[str, ...]:
    """Return the words of a command that is one word for a shell (`sh -c "..."`); none where it is not one."""
    try:
        inner = tuple(shlex.split(word))
    except ValueError:
        inner = tuple(word.split())
    return inner if inner != (word,) else ()


def without_secrets(tree: Any, instead: str, declared: Collection[str] = ()) -> Any:
    """Return the same tree with `instead` for every secret that is written out (see `secret_values`)."""
    if isinstance(tree, list | tuple):
        return [without_secrets(item, instead, declared) for item in tree]
    if isinstance(tree, str):
        return mask_url(tree) if passwords_in(tree) else tree
    if not isinstance(tree, Mapping):
        return tree
    kept: dict[Any, Any] = {}
    for name, value in tree.items():
        is_named_so = isinstance(name, str) and is_secret_key(name) and isinstance(value, str)
        if name == COMMAND_PREFIX:
            kept[name] = (
                list(mask_words(command_words(value))) if any(secret_values({name: value})) else value
            )
        elif name in declared or is_named_so:
            kept[name] = value and instead
        else:
            kept[name] = without_secrets(value, instead, declared)
    return kept


def command_words(value: Any) -> tuple[str, ...]:
    """Return the words of a command as far as it has any, right or wrong."""
    if isinstance(value, str):
        return _words_within(value)
    return tuple(word for word in value if isinstance(word, str)) if isinstance(value, list | tuple) else ()


def is_secret_key(name: str) -> bool:
    """Return whether a key of this name holds a secret (`token_file` and `token_env` do not), where no declaration says
    so (`agent.config.keys`).
    """
    return _SECRET_KEY.search(name) is not None
