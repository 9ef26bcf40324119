# SPDX-License-Identifier: MIT
"""The types of a key's value. Each function returns what YAML gave, converted, or raises ValidationError.

The sentence of the error goes on after "`key`" and says what to write instead. Numbers and switches may be text too.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from marshmallow import ValidationError

from agent.config.secret import mask_url
from agent.core.account_names import uuid_hex

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
TRUE_WORDS = frozenset({"true", "yes", "on", "1", "t", "y"})
FALSE_WORDS = frozenset({"false", "no", "off", "0", "f", "n"})
MAX_UMASK = 0o777
QUEUE_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def shown(value: object) -> str:
    """Return a value for a message: short, and without anything inside it that could be a secret."""
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list | tuple | set):
        return "a list"
    if isinstance(value, int) and abs(value) >= 10**50:
        return "a very long number"
    words = repr(mask_url(value)) if isinstance(value, str) else repr(value)
    return words if len(words) <= 60 else f"{words[:57]}..."


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValidationError(f"is {shown(value)}; text is needed: put it in quotes")
    return value.strip()


def secret_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValidationError("is not text; put it in quotes")
    return value.strip()


def text_or_number(value: Any) -> str:
    """Return a name; some are digits only, such as a cluster called 2024."""
    return shown(value) if isinstance(value, int | float) and not isinstance(value, bool) else text(value)


def flag(value: Any) -> bool:
    word = value.strip().lower() if isinstance(value, str) else value
    if isinstance(word, str | int | float):
        if word in TRUE_WORDS or word == 1:
            return True
        if word in FALSE_WORDS or word == 0:
            return False
    raise ValidationError(f"is {shown(value)}; use true or false")


def number(*, above: float | None = None, at_least: float | None = None) -> Callable[[Any], float]:
    """Return a converter to a finite number greater than `above`, or from `at_least` on."""
    wanted = "a number"
    if above is not None:
        wanted = f"a number greater than {above}"
    elif at_least is not None:
        wanted = f"a number of {at_least} or more"

    def convert(value: Any) -> float:
        found = _number(value)
        too_small = found is not None and (
            (above is not None and found <= above) or (at_least is not None and found < at_least)
        )
        if found is None or too_small:
            raise ValidationError(f"is {shown(value)}; use {wanted}")
        return found

    return convert


def whole(at_least: int | None = None, at_most: int | None = None) -> Callable[[Any], int]:
    """Return a converter to a whole number within bounds; `2.0` and `"2"` are whole too."""
    wanted = "a whole number"
    if at_least is not None and at_most is not None:
        wanted = f"a whole number from {at_least} to {at_most}"
    elif at_least is not None:
        wanted = f"a whole number of {at_least} or more"

    def convert(value: Any) -> int:
        found = _number(value)
        inside = (
            found is not None
            and found.is_integer()
            and (at_least is None or found >= at_least)
            and (at_most is None or found <= at_most)
        )
        if found is None or not inside:
            raise ValidationError(f"is {shown(value)}; use {wanted}")
        return value if isinstance(value, int) else int(found)

    return convert


def choice(*allowed: str) -> Callable[[Any], str]:
    def convert(value: Any) -> str:
        if value not in allowed:
            raise ValidationError(f"is {shown(value)}; use one of {', '.join(allowed)}")
        return str(value)

    return convert


def log_level(value: Any) -> str:
    level = text(value).upper()
    if level not in LOG_LEVELS:
        raise ValidationError(f"is {shown(value)}; use one of {', '.join(LOG_LEVELS)}")
    return level


def web_url(value: Any) -> str:
    """Return a URL that starts with http:// or https:// and names a host."""
    address = text(value)
    if not address.lower().startswith(("http://", "https://")):
        raise ValidationError(f"is {shown(value)}; it must start with http:// or https://")
    try:
        host, _ = urlsplit(address).hostname, urlsplit(address).port
    except ValueError as error:
        raise ValidationError(f"is {shown(value)}; this is not a URL") from error
    if not host:
        raise ValidationError(f"is {shown(value)}; the name of the host is missing")
    return address


def api_url(value: Any) -> str:
    """Return Waldur's address with the slash at its end that relative paths need."""
    address = web_url(value)
    return address if address.endswith("/") else f"{address}/"


def optional_url(value: Any) -> str:
    """As `web_url`; an empty text switches the thing off."""
    return web_url(value) if text(value) else ""


def secret_url(value: Any) -> str:
    """As `optional_url`, for addresses that carry a key: the sentence does not show them."""
    try:
        return optional_url(value)
    except ValidationError as error:
        raise ValidationError("is not a URL that starts with http:// or https://") from error


def broker_url(value: Any) -> str:
    """Return the broker's URL, or several with `;` between them.

    `rediss://` verifies the server's certificate unless the URL says otherwise: kombu 5.6 and 5.7 verify nothing where
    `ssl_cert_reqs` is absent, and the password would go to whoever answers.
    """
    addresses = secret_text(value).split(";")
    if addresses != [""] and not all("://" in address for address in addresses):
        raise ValidationError("is not a URL; write something like redis://127.0.0.1:6379/0")
    return ";".join(
        f"{address}{'&' if '?' in address else '?'}ssl_cert_reqs=required"
        if address.startswith("rediss://") and "ssl_cert_reqs=" not in address
        else address
        for address in addresses
    )


def offering_uuid(value: Any) -> str:
    """Return 32 hex digits, from either spelling."""
    try:
        return uuid_hex(text(value))
    except ValueError as error:
        raise ValidationError(
            f"is {shown(value)}; a uuid of 32 hex digits is needed, with or without dashes "
            "(the offering's page in Waldur shows it under Integration, Credentials)"
        ) from error


def time_zone(value: Any) -> ZoneInfo:
    name = text(value)
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        sentence = f"is {shown(value)}: unknown timezone; use a name such as UTC or Europe/Tallinn"
        raise ValidationError(sentence) from error


def queue_name(value: Any) -> str:
    name = text_or_number(value)
    if name and not QUEUE_NAME.fullmatch(name):
        raise ValidationError(f"is {shown(value)}; use letters, digits, dot, dash and underscore")
    return name


def names(value: Any) -> tuple[str, ...]:
    """Return names or patterns, from a list or a single one; numbers are names too."""
    written = value if isinstance(value, list | tuple) else [value]
    found = tuple(text_or_number(name) for name in written)
    if not all(found):
        raise ValidationError(f"is {shown(value)}; write a list of names")
    return found


def command_words(value: Any) -> tuple[str, ...]:
    """Return the words of a command, from a list or from one text split as a shell does."""
    if isinstance(value, list | tuple) and all(isinstance(word, str) and word for word in value):
        return tuple(value)
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            # Not shown: a password may stand in it.
            raise ValidationError("cannot be split into words: a quote in it is not closed") from error
    raise ValidationError(f"is {shown(value)}; write a list of words, or one text, split as a shell does")


def program(value: Any) -> tuple[str, ...]:
    """Return a program of the site with its arguments: a list of words, the first of them an absolute path."""
    words = command_words(value)
    if not words or not words[0].startswith("/") or any("\0" in word for word in words):
        raise ValidationError(
            "needs the program with its absolute path first, such as [/etc/waldur/decide, --all]"
        )
    return words


def umask(value: Any) -> int:
    """Return a umask, from octal digits in quotes. Without quotes YAML makes 63 of 0077, which is the same umask."""
    found = -1
    if isinstance(value, int) and not isinstance(value, bool):
        found = value
    elif isinstance(value, str):
        try:
            found = int(value.strip(), 8)
        except ValueError:
            found = -1
    if not 0 <= found <= MAX_UMASK:
        raise ValidationError(f'is {shown(value)}; write octal digits in quotes, from "0000" to "0777"')
    return found


def mapping(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise ValidationError(f"is {shown(value)}; a map of keys is needed")
    return value


def anything(value: Any) -> Any:
    return value


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None
