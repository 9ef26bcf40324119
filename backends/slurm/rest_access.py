# SPDX-License-Identifier: MIT
"""The way to slurmrestd: the keys of `rest_api`, with the reference's names and meanings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from marshmallow import ValidationError

from agent.config.field_types import Command, Text, name_text, number
from agent.config.findings import Findings
from agent.config.keys import key, required
from agent.config.reading import read
from agent.config.unencrypted import leads_away

# Of the versions of its API, v0.0.N: SLURM 23.11 has the first that can add accounts and users, 26.05 the last that the
# agent was run on.
OLDEST_VERSION, NEWEST_VERSION = 40, 45
UNIX = "unix://"

_VERSION = re.compile(r"v0\.0\.([0-9]{1,4})")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}")


def _url(address: str) -> str:
    try:
        parts = urlsplit(address)
        is_socket = parts.scheme == "unix" and not parts.netloc and parts.path not in ("", "/")
        is_host = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_socket = is_host = False
    if not (is_socket or (is_host and not parts.username)) or parts.query or parts.fragment:
        raise ValidationError("write http://host:port, https://host:port or unix:///path")
    return address


def _version(text: str) -> str:
    version = _VERSION.fullmatch(text)
    if not text:
        return text
    if not version:
        raise ValidationError(f"it is not a version; they read like v0.0.{OLDEST_VERSION}")
    if int(version[1]) < OLDEST_VERSION:
        raise ValidationError(
            f"it cannot add accounts and users: v0.0.{OLDEST_VERSION} (SLURM 23.11) or later is needed. With an older "
            "SLURM use `execution_mode: cli`"
        )
    return text


def _user(name: str) -> str:
    if not _USER.fullmatch(name):
        raise ValidationError("it is not the name of a user")
    return name


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class RestAccess:
    """How slurmrestd is reached. The file comes before the command, and that before the variable."""

    url: str = required("`http(s)://host:port` or `unix:///path`", of=Text(_url))
    api_version: str = key("", "the version of its API, such as `v0.0.43`", of=Text(_version),
        usual="the newest that slurmrestd has and the agent knows")
    username: str = required("the user as whom the agent logs in", of=name_text(_user))
    token_file: str = key("", "a file with the token (JWT)")
    token_command: tuple[str, ...] = key((), "a command that prints a token, such as `scontrol token lifespan=3600`",
        of=Command(), hidden=True)
    token_env: str = key("", "a variable with the token, such as `SLURM_JWT`")
    verify_ssl: bool = key(True, "check TLS certificates")
    timeout_s: float = key(30.0, "seconds for one request", name="timeout", of=number(above=0))

    @property
    def needs_token(self) -> bool:
        """Return whether a token is sent. Without one, slurmrestd knows the user by the socket (rest_auth/local)."""
        return bool(self.token_file or self.token_command or self.token_env)
# fmt: on


def read_access(section: object, path: str, findings: Findings) -> RestAccess | None:
    """Return the way to slurmrestd; None where there is none. What is wrong with it is added to the findings."""
    if not isinstance(section, Mapping):
        findings.error(path, "is missing: `execution_mode: rest` needs its url and username")
        return None
    access = read(RestAccess, section, path, findings)
    wrong = {problem.path for problem in findings.problems}
    if leads_away(access.url, "http"):
        words = "the token crosses the network unencrypted: put TLS in front of slurmrestd, and use https"
        findings.warn(f"{path}.url", words)
    is_known = wrong.isdisjoint(
        f"{path}.{name}" for name in ("url", "token_file", "token_command", "token_env")
    )
    if is_known and not (access.needs_token or access.url.startswith(UNIX)):
        words = (
            "there is no way to log in: give `token_file`, `token_command`, or `token_env` with the name of a variable "
            "(SLURM_JWT)"
        )
        findings.error(f"{path}.token_file", words)
    if not access.verify_ssl:
        findings.warn(f"{path}.verify_ssl", "TLS certificates are not checked: others may read the token")
    return access
