# SPDX-License-Identifier: MIT
"""An answer, or the lack of one: its JSON, the server's own words in a refusal, the reason of a failure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.core.bounded_json import TOO_DEEP, read_json

# Takes secrets out of a text, before it is cut: part of a token is still secret.
Mask = Callable[[str], str]

DETAIL_LENGTH = 1000
PAGE_BYTES = 65536
PAGE_WORDS = 200
MAX_DIGITS = 40

# Escapes in JSON that are whole (a pair of surrogates is), and one surrogate alone.
_ESCAPED = re.compile(
    r"(?:\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})++|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_UNSEEN = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)
# What urllib3 puts before its reasons: the object, its host and its port.
_OBJECT = re.compile(r"<[^>]*>: |\(<[^>]*>, |\w*Connection(Pool)?\([^)]*\): ?")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, whatever its status."""

    status: int
    reason: str
    headers: Mapping[str, str]
    content: bytes
    # What its Link header calls the next page.
    next_url: str | None
    # Removes secrets from what is logged of it.
    mask: Mask

    def document(self) -> Any:
        """Return the JSON. Raises ValueError where there is none, TooMuchJson where it is too deep for Python.

        An odd value changes no other: NaN and infinite numbers become text, half a surrogate pair becomes U+FFFD,
        what is nested too deeply is TOO_DEEP.
        """
        text = self.content.decode(json.detect_encoding(self.content), "replace")
        # Half a surrogate pair cannot be encoded.
        if r"\ud" in text or r"\uD" in text:
            text = _ESCAPED.sub(lambda found: r"\ufffd" if found[1] else found[0], text)
        return read_json(
            text,
            values_at_most=None,  # the client has counted them
            instead_of_deeper=TOO_DEEP,
            parse_int=_int,
            parse_float=_float,
            parse_constant=str,
        )

    def object(self) -> Mapping[str, Any] | None:
        """Return the JSON object; None where the answer is anything else."""
        try:
            document = self.document()
        except ValueError:
            return None
        return document if isinstance(document, Mapping) else None

    def detail(self) -> str:
        """Return the server's own words: the texts of its JSON, or the title or the beginning of what else came."""
        try:
            said = self.mask("; ".join(_texts(self.document(), "")))[:DETAIL_LENGTH]
        except ValueError:
            said = self.page()
        return said or self.reason or "no text"

    def page(self) -> str:
        """Return the title of an HTML page, else the first words of whatever it is."""
        text = self.content[:PAGE_BYTES].decode("utf-8", "replace")
        title = _TITLE.search(text)
        words = " ".join(_UNSEEN.sub(" ", title[1] if title else text).split())
        return self.mask(words)[:PAGE_WORDS]


def cause(error: BaseException) -> str:
    """Return the innermost reasons, without the object addresses that the libraries print."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return cause(reason)
    nested = [arg for arg in error.args if isinstance(arg, BaseException)]
    if not nested:
        return _OBJECT.sub("", getattr(error, "strerror", None) or str(error)).strip() or type(error).__name__
    inner = cause(nested[-1])
    said = [_OBJECT.sub("", arg).rstrip(". ") for arg in error.args if isinstance(arg, str)]
    if not said:
        return inner
    return said[0] if inner in said[0] else f"{said[0]}: {inner}"


def _int(digits: str) -> int | str:
    return int(digits) if len(digits) <= MAX_DIGITS else digits


def _float(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _texts(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            label = "" if name in ("detail", "details", "non_field_errors") else str(name)
            yield from _texts(item, label)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)
    elif value not in (None, ""):
        yield f"{key}: {value}" if key else str(value)
