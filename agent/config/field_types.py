# SPDX-License-Identifier: MIT
"""Field types of keys beyond marshmallow's own, and the converters of texts: each returns the value, or raises
ValidationError with what to write instead. `agent.config.reading` puts the key and the wrong value before it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from marshmallow import ValidationError, fields, validate

from agent.config.secret import mask_url
from agent.core.account_names import uuid_hex

IpNetwork = IPv4Network | IPv6Network

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
# Other spellings that Python's logging takes.
_LEVEL_ALIASES = {"WARN": "WARNING", "FATAL": "CRITICAL"}
BROKERS = ("redis://", "rediss://", "redis+socket://", "sentinel://", "amqp://", "amqps://", "pyamqp://")
QUEUE_NAME = re.compile(r"[A-Za-z0-9_.-]+")
# And halves of characters, which no file and no command can have. Tabs and ends of lines may be meant.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def displayed(value: object) -> str:
    """Return a value for a message: short, and without anything inside it that could be a secret."""
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list | tuple | set):
        return "a list"
    if isinstance(value, int) and abs(value) >= 10**50:
        return "a very long number"
    words = repr(mask_url(value)) if isinstance(value, str) else repr(value)
    return words if len(words) <= 60 else f"{words[:57]}..."


def key_name(key: object) -> str:
    """Return a key as text; YAML also allows numbers, dates and lists there."""
    return key if isinstance(key, str) else displayed(key)


def printable(text: str) -> str:
    """Return the text. Raises ValidationError where it has a control character."""
    if _CONTROL.search(text):
        raise ValidationError("it has a control character")
    return text


class Text(fields.String):
    """A text, with `strip` without white space around it, as `parse` converts it. `is_name`: a number is one too, such
    as a cluster called 2024.
    """

    default_error_messages = {"invalid": "text is needed: put it in quotes"}  # noqa: RUF012 (as in marshmallow)

    def __init__(
        self, parse: Callable[[str], Any] = str, *, is_name: bool = False, strip: bool = True, **options: Any
    ) -> None:
        super().__init__(**options)
        self.parse, self.is_name, self.strip = parse, is_name, strip
        self.json_types = ("string", "number") if is_name else ("string",)
        # Of a text that is one of several words, in more than one spelling.
        self.json_pattern = ""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if self.is_name and isinstance(value, int | float) and not isinstance(value, bool):
            value = displayed(value)
        text = printable(str(super()._deserialize(value, attr, data, **kwargs)))
        try:
            return self.parse(text.strip() if self.strip else text)
        except ValueError as error:
            raise ValidationError(str(error)) from error


class Whole(fields.Integer):
    """A whole number; `2.0` and `"2"` are whole too, and 2.5 is not cut."""

    def _format_num(self, value: Any) -> int:
        if not float(value).is_integer():
            raise ValueError
        return value if isinstance(value, int) else int(float(value))


class Several(fields.List[Any]):
    """A tuple, from a list without its nulls; from a single value too, where `or_one`."""

    default_error_messages = {"invalid": "write a list"}  # noqa: RUF012 (as in marshmallow)

    def __init__(self, inner: Any, *, or_one: bool = False, **options: Any) -> None:
        super().__init__(inner, **options)
        self.or_one = or_one
        self.json_types = ("array", *inner.json_types) if or_one else ("array",)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if isinstance(value, list | tuple):
            value = [each for each in value if each is not None]
        elif self.or_one:
            return (self.inner.deserialize(value),)
        return tuple(super()._deserialize(value, attr, data, **kwargs))


class Command(fields.Field[tuple[str, ...]]):
    """The words of a command, from a list or from one text split as a shell does. `parse` judges them."""

    json_types = ("array", "string")

    def __init__(self, parse: Callable[[tuple[str, ...]], tuple[str, ...]] = tuple, **options: Any) -> None:
        super().__init__(**options)
        self.parse = parse

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> tuple[str, ...]:
        try:
            words = shlex.split(value) if isinstance(value, str) else value
        except ValueError as error:
            raise ValidationError("a quote in it is not closed, so it cannot be split into words") from error
        is_text = isinstance(value, str)  # in which an empty word is meant: it stands in quotes
        if not isinstance(words, list | tuple) or not all(
            isinstance(word, str) and (word or is_text) for word in words
        ):
            raise ValidationError("write a list of words, or one text, split as a shell does")
        return self.parse(tuple(map(printable, words)))


class Octal(fields.Field[int]):
    """Rights in octal digits, which stand in quotes. Of a number without quotes `bare` makes the digits: YAML has read
    0077 as octal, which is 63, and 770 as it stands. No bit but `allowed` is set, and all that are `needed`.
    """

    json_types = ("string", "integer")

    def __init__(
        self, wanted: str, *, allowed: int, needed: int = 0, bare: Callable[[int], str] = "{:o}".format
    ) -> None:
        super().__init__()
        self.wanted, self.allowed, self.needed, self.bare = wanted, allowed, needed, bare

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> int:
        try:
            is_number = isinstance(value, int) and not isinstance(value, bool)
            found = int(self.bare(value) if is_number else value, 8)
        except (ValueError, TypeError) as error:
            raise ValidationError(self.wanted) from error
        if found < 0 or found & ~self.allowed or found & self.needed != self.needed:
            raise ValidationError(self.wanted)
        return found


def name_text(parse: Callable[[str], Any] = str) -> Text:
    """Return the type of a name, which may be digits only."""
    return Text(parse, is_name=True)


def names() -> Several:
    """Return the type of names or patterns: a list, or a single one."""
    return Several(name_text(needed), or_one=True)


def whole(at_least: int | None = None, at_most: int | None = None) -> Whole:
    """Return the type of a whole number within bounds."""
    wanted = "use a whole number"
    if at_least is not None:
        wanted += f" of {at_least} or more" if at_most is None else f" from {at_least} to {at_most}"
    return Whole(
        validate=validate.Range(at_least, at_most, error=wanted),
        error_messages={"invalid": wanted, "too_large": wanted},
    )


def number(*, above: float | None = None, at_least: float | None = None) -> fields.Float:
    """Return the type of a finite number greater than `above`, or from `at_least` on."""
    wanted = "use a number"
    if above is not None:
        wanted = f"use a number greater than {above}"
    elif at_least is not None:
        wanted = f"use a number of {at_least} or more"
    least = above if above is not None else at_least
    return fields.Float(
        validate=validate.Range(least, min_inclusive=above is None, error=wanted),
        error_messages={"invalid": wanted, "too_large": wanted, "special": wanted},
    )


def flag() -> fields.Boolean:
    return fields.Boolean(error_messages={"invalid": "use true or false"})


def choice(*allowed: str, parse: Callable[[str], str] = str) -> Text:
    """Return the type of one of these words."""
    wanted = f"use one of {', '.join(allowed)}"
    return Text(parse, validate=validate.OneOf(allowed, error=wanted), error_messages={"invalid": wanted})


def log_level() -> Text:
    """Return the type of a level of the log, in any case."""
    field = choice(*LOG_LEVELS, parse=lambda level: _LEVEL_ALIASES.get(level.upper(), level.upper()))
    words = ("".join(f"[{c}{c.lower()}]" for c in level) for level in (*LOG_LEVELS, *_LEVEL_ALIASES))
    field.json_pattern = f"^({'|'.join(words)})$"
    return field


def needed(text: str) -> str:
    if not text:
        raise ValidationError("it cannot be empty")
    return text


def web_url(address: str) -> str:
    """Return a URL that starts with http:// or https:// and names a host."""
    if not address.lower().startswith(("http://", "https://")):
        raise ValidationError("it must start with http:// or https://")
    try:
        host, _ = urlsplit(address).hostname, urlsplit(address).port
    except ValueError as error:
        raise ValidationError("this is not a URL") from error
    if not host:
        raise ValidationError("the name of the host is missing")
    return address


def api_url(address: str) -> str:
    """Return Waldur's address with the slash at its end that relative paths need."""
    return web_url(address) if address.endswith("/") else f"{web_url(address)}/"


def optional_url(address: str) -> str:
    """Return a URL as `web_url` does; an empty text switches the feature off."""
    return web_url(address) if address else ""


def _is_broker(address: str) -> bool:
    """Return whether kombu reads a URL as meant: it ends a password at a / ? or # and logs what follows, and fails
    for a database that is no number.
    """
    try:
        url, _ = urlsplit(address), urlsplit(address).port
    except ValueError:
        return False
    is_cut = "#" in address or (url.netloc and "@" in url.path + url.query)
    has_database = url.scheme in ("redis", "rediss", "sentinel")
    return not is_cut and (not has_database or re.fullmatch("/{0,2}[0-9]*", url.path) is not None)


def broker_url(address: str) -> str:
    """Return the broker's URL, or several with `;` between them.

    `rediss://` verifies the server's certificate unless the URL says otherwise: kombu 5.6 and 5.7 verify nothing where
    `ssl_cert_reqs` is absent, and the password would go to whoever answers.
    """
    addresses = address.split(";")
    if addresses != [""] and not all("://" in each for each in addresses):
        raise ValidationError("write something like redis://127.0.0.1:6379/0")
    if addresses != [""] and not all(each.startswith(BROKERS) for each in addresses):
        raise ValidationError(f"the agent knows {', '.join(BROKERS)}")
    if not all(map(_is_broker, addresses)):
        raise ValidationError(
            "this is not the URL of a broker: a port is a number up to 65535, a database of Redis is a number, "
            "/ ? # [ ] @ in a password are written as %2F %3F %23 %5B %5D %40, and so is an @ after the host"
        )
    return ";".join(
        f"{each}{'&' if '?' in each else '?'}ssl_cert_reqs=required"
        if each.startswith("rediss://") and "ssl_cert_reqs=" not in each
        else each
        for each in addresses
    )


def offering_uuid(text: str) -> str:
    """Return 32 hex digits, from either spelling."""
    try:
        return uuid_hex(text)
    except ValueError as error:
        raise ValidationError(
            "a uuid of 32 hex digits is needed, with or without dashes "
            "(the offering's page in Waldur shows it under Integration, Credentials)"
        ) from error


def network(text: str) -> IpNetwork:
    """Return a network, of one address where no more is written."""
    try:
        return ip_network(text)
    except ValueError as error:
        raise ValidationError("use addresses or networks such as 192.0.2.7 or 192.0.2.0/28") from error


def time_zone(text: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(text) if text else None
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValidationError("unknown timezone; use a name such as UTC or Europe/Tallinn") from error


def queue_name(text: str) -> str:
    if text and not QUEUE_NAME.fullmatch(text):
        raise ValidationError("use letters, digits, dot, dash and underscore")
    return text


def absolute_path(text: str) -> str:
    if text and not text.startswith("/"):
        raise ValidationError("an absolute path is needed")
    return text


def program(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a program of the site with its arguments: the first word is an absolute path."""
    if not words or not words[0].startswith("/"):
        raise ValidationError(
            "the program is needed with its absolute path first, such as [/etc/waldur/decide, --all]"
        )
    return words
