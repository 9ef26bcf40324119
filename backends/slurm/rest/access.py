# SPDX-License-Identifier: MIT
"""The way to slurmrestd: the keys of `rest_api`, with the reference's names and meanings, and the token.

The token is read when it is needed, and again when slurmrestd refuses it: a JWT lives for minutes or hours, and
another program renews its file. It goes into a header, and into nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from marshmallow import EXCLUDE, Schema, ValidationError, fields

from agent.config import field_types
from agent.config.model import Problem, Severity
from agent.config.secret import MASK
from agent.config.unencrypted import leads_away
from agent.core.errors import BackendError

OLDEST_VERSION = 40
USUAL_VERSION = "v0.0.43"
UNIX = "unix://"
# What `scontrol token` prints before the token.
PRINTED = "SLURM_JWT="

_VERSION = re.compile(r"v0\.0\.([0-9]{1,4})")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}")


class TokenMissing(BackendError):
    """There is no token to log in with: an operator must act."""

    of_host = True


@dataclass(frozen=True, slots=True)
class RestAccess:
    """How slurmrestd is reached. `url`: `http(s)://host:port` or `unix:///path`. The file comes before the variable."""

    url: str
    api_version: str
    username: str
    token_file: str
    token_env: str
    verify_ssl: bool
    timeout_s: float

    @property
    def needs_token(self) -> bool:
        """Return whether a token is sent. Without one, slurmrestd knows the user by the socket (rest_auth/local)."""
        return bool(self.token_file or self.token_env)


class RestSchema(Schema):
    url = fields.Function(
        deserialize=field_types.text, required=True, error_messages={"required": "is missing"}
    )
    api_version = fields.Function(deserialize=field_types.text, load_default=USUAL_VERSION)
    username = fields.Function(
        deserialize=field_types.text_or_number, required=True, error_messages={"required": "is missing"}
    )
    token_file = fields.Function(deserialize=field_types.text, load_default="")
    token_env = fields.Function(deserialize=field_types.text, load_default="")
    verify_ssl = fields.Function(deserialize=field_types.flag, load_default=True)
    timeout = fields.Function(deserialize=field_types.number(above=0), load_default=30.0)


def read(section: object, path: str) -> tuple[RestAccess | None, list[Problem]]:
    """Return the way to slurmrestd, None where `rest_api` is not enough for one; and what is wrong with it."""
    if not isinstance(section, Mapping):
        return None, [
            Problem(Severity.ERROR, path, "is missing: `execution_mode: rest` needs its url and username")
        ]
    given = {key: value for key, value in section.items() if value is not None}
    try:
        values = RestSchema(unknown=EXCLUDE).load(given)
    except ValidationError as error:
        messages = error.messages if isinstance(error.messages, dict) else {"": error.messages}
        return None, [
            Problem(Severity.ERROR, f"{path}.{key}", " ".join(map(str, texts)))
            for key, texts in messages.items()
        ]
    problems = list(_problems(values, path))
    if any(problem.severity is Severity.ERROR for problem in problems):
        return None, problems
    values["timeout_s"] = values.pop("timeout")
    return RestAccess(**values), problems


def _problems(values: Mapping[str, Any], path: str) -> Iterator[Problem]:
    def error(key: str, sentence: str) -> Problem:
        return Problem(Severity.ERROR, f"{path}.{key}", sentence)

    url = values["url"]
    if not _is_usable(url):
        yield error(
            "url", f"{field_types.shown(url)} is not http://host:port, https://host:port or unix:///path"
        )
    elif leads_away(url, "http"):
        yield Problem(
            Severity.WARNING,
            f"{path}.url",
            "the token crosses the network unencrypted: put TLS in front of slurmrestd, and use https",
        )
    version = _VERSION.fullmatch(values["api_version"])
    if not version:
        yield error(
            "api_version", f"{values['api_version']!r} is not a version; they read like {USUAL_VERSION}"
        )
    elif int(version[1]) < OLDEST_VERSION:
        yield error(
            "api_version",
            f"{values['api_version']} cannot add accounts and users: v0.0.{OLDEST_VERSION} (SLURM 23.11) or later is "
            "needed. With an older SLURM use `execution_mode: cli`",
        )
    if not _USER.fullmatch(values["username"]):
        yield error("username", f"{values['username']!r} is not the name of a user")
    if not (values["token_file"] or values["token_env"] or url.startswith(UNIX)):
        yield error(
            "token_file",
            "there is no way to log in: give `token_file`, or `token_env` with the name of a variable (SLURM_JWT)",
        )
    if not values["verify_ssl"]:
        sentence = "TLS certificates are not checked: others may read the token"
        yield Problem(Severity.WARNING, f"{path}.verify_ssl", sentence)


def _is_usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_socket = parts.scheme == "unix" and not parts.netloc and parts.path not in ("", "/")
        is_host = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return (is_socket or (is_host and not parts.username)) and not (parts.query or parts.fragment)


class Token:
    """The JWT of one way to slurmrestd."""

    def __init__(self, access: RestAccess) -> None:
        self._access = access
        self._text = ""

    def headers(self) -> dict[str, str]:
        """Return the headers by which slurmrestd knows us. Raises TokenMissing."""
        named = {"X-SLURM-USER-NAME": self._access.username}
        if not self._access.needs_token:
            return named
        if not self._text:
            self._text = self._read()
        return {**named, "X-SLURM-USER-TOKEN": self._text}

    def renew(self) -> bool:
        """Read the token again. Return whether it is another one. Raises TokenMissing."""
        before = self._text
        self._text = self._read() if self._access.needs_token else ""
        return self._text != before

    def mask(self, text: str) -> str:
        return text.replace(self._text, MASK) if self._text else text

    def _read(self) -> str:
        file, variable = self._access.token_file, self._access.token_env
        place = f"rest_api.token_file {file}" if file else f"the variable {variable} (rest_api.token_env)"
        try:
            text = Path(file).read_text("ascii") if file else os.environ.get(variable, "")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not plain text"
            raise TokenMissing(f"{place} cannot be read: {reason}") from error
        token = text.strip().removeprefix(PRINTED)
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise TokenMissing(f"{place} has no token: write one there (`scontrol token lifespan=SECONDS`)")
        return token
