# SPDX-License-Identifier: MIT
"""Requests to slurmrestd, and what its answers mean: a document, nothing to do, a refusal, or nothing known.

A refusal may come with any status, 200 too: what counts is whether `errors` is empty. Where no answer came, or one
that says that a daemon behind slurmrestd is away, nothing is known of the cluster.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

from agent.core.errors import BackendError, BackendUnavailable, JobsStillActive, ParseError
from agent.http.answers import Answer
from agent.http.client import Bounds, HttpClient, NoAnswer, Params, Timeouts
from backends.command_output import one_line
from backends.slurm.programs import DENIED, JOBS_ACTIVE, NO_ACCESS_TO_QOS, NO_CONNECTION, OUTAGE
from backends.slurm.rest_access import NEWEST_VERSION, OLDEST_VERSION, RestAccess
from backends.slurm.rest_token import TOKEN, Token

log = logging.getLogger(__name__)

# slurmrestd's own description: it names each address with its version.
DESCRIPTION = "openapi/v3"
NOT_MODIFIED = 304
# 511: slurmctld refuses the token.
NOT_ALLOWED = (401, 403, 511)
# slurmdbd refuses the token, or is away (24.11 to 26.05).
NO_SLURMDBD = (502, 7000)
# slurmctld's short answer, by which the two are told apart.
SHORT = "slurm/partitions/"
AWAY = (429, 502, 503, 504)
# Of slurm_errno.h: communication with a daemon, sockets, slurmdbd's connection to us and to its database.
NO_DAEMON = (range(1000, 2000), range(5000, 5100), range(7000, 7002))
ACCESS_DENIED = 2002
NOTHING_FOUND = 9003


class RequestRefused(BackendError):
    """slurmrestd said no to a request, which was wrong in itself."""


class RequestDenied(BackendError):
    """The agent's token, its user's rights or the API version are at fault: an operator must act."""

    of_host = True


class AnswerTooLarge(BackendUnavailable):
    """An answer has more bytes or values than are taken: less must be asked for."""


_ADDRESS = re.compile(r"/slurmdb/v0\.0\.([0-9]{1,4})/associations/?")

# An association of slurmrestd's has twelve for each of its values.
BYTES_PER_VALUE = 8


class RestClient:
    """Requests for one cluster."""

    def __init__(self, access: RestAccess, *, answer_bytes: int) -> None:
        self._access = access
        self.token = Token(access)
        self._client = HttpClient(
            access.url,
            timeouts=Timeouts(read_s=access.timeout_s),
            bounds=Bounds(
                answer_s=access.timeout_s,
                answer_bytes=answer_bytes,
                answer_values=answer_bytes // BYTES_PER_VALUE,
            ),
            verify=access.verify_ssl,
            mask=self.token.mask,
        )
        # Requests by kind (`read`, `write`).
        self.executed: Counter[str] = Counter()
        # Empty until slurmrestd was asked.
        self._version = access.api_version
        self._asking = Lock()
        # The token that slurmctld has taken while slurmdbd was away: it is asked once.
        self._taken_token = ""
        self._judging = Lock()

    def read(self, path: str, params: Params = ()) -> Mapping[str, Any]:
        """Return the document at `slurmdb/...` or `slurm/...`. Raises BackendError."""
        self.executed["read"] += 1
        return self._document("GET", path, self._answer("GET", path, params)) or {}

    def write(
        self, method: str, path: str, params: Params = (), body: Any = None
    ) -> Mapping[str, Any] | None:
        """Send a change. Return None where there was nothing to change. Raises BackendError."""
        self.executed["write"] += 1
        document = self._document(method, path, self._answer(method, path, params, body))
        for warning in (document or {}).get("warnings") or ():
            log.warning("%s %s: slurmrestd warned: %s", method, path, one_line(_said(warning)))
        return document

    def line(self, method: str, path: str, params: Params = (), body: Any = None) -> str:
        """Return a request as a shell takes it; curl reads the token's header from the file `headers`."""
        words = ["curl", "--silent", "--header", "@headers"]
        if self._access.url.startswith("unix:"):
            words += ["--unix-socket", self._client.place.removeprefix("unix://")]
        if method != "GET":
            words += ["--request", method]
        if body is not None:
            words += ["--json", json.dumps(body, separators=(",", ":"))]
        return shlex.join([*words, self._client.target(self._versioned(path), params)])

    @property
    def version(self) -> str:
        """The version that requests name, empty until it was asked for."""
        return self._version

    def _versioned(self, path: str) -> str:
        if path == DESCRIPTION:
            return path
        plugin, _, rest = path.partition("/")
        with self._asking:
            self._version = self._version or self._newest_version()
        return f"{plugin}/{self._version}/{rest}"

    def _newest_version(self) -> str:
        """Return the newest version that slurmrestd has and the agent knows. Raises BackendError."""
        paths = self.read(DESCRIPTION).get("paths")
        found = {int(match[1]) for path in paths or () if (match := _ADDRESS.fullmatch(str(path)))}
        known = [number for number in found if OLDEST_VERSION <= number <= NEWEST_VERSION]
        if not known:
            has = (
                ", ".join(f"v0.0.{number}" for number in sorted(found))
                or "no version of slurmdbd's addresses"
            )
            raise RequestDenied(
                f"slurmrestd at {self._client.place} serves {has}; the agent knows v0.0.{OLDEST_VERSION} to "
                f"v0.0.{NEWEST_VERSION}. Use `execution_mode: cli`, or name a newer version by rest_api.api_version to "
                "try it"
            )
        return f"v0.0.{max(known)}"

    def _answer(self, method: str, path: str, params: Params, body: Any = None) -> Answer:
        """Return an answer. A token that is refused is taken anew, once: nothing was done with it. Raises
        BackendError.
        """
        headers = self.token.headers()
        answer = self._send(method, path, headers, params, body)
        if self._is_refused(answer, headers) and self.token.renew(headers):
            headers = self.token.headers()
            answer = self._send(method, path, headers, params, body)
        if self._is_refused(answer, headers):
            errors = (answer.object() or {}).get("errors")
            said = [_said(error) for error in errors] if isinstance(errors, list) else []
            why = self.token.trouble() or "; ".join(said) or answer.page()
            raise RequestDenied(
                f"{method} {path}: slurmrestd refuses the token of {self._access.username} ({answer.status}): {why}. "
                f"Renew {self.token.source}"
            )
        return answer

    def _is_refused(self, answer: Answer, headers: Mapping[str, str]) -> bool:
        """Return whether the token is at fault. slurmrestd hands it on unchecked."""
        if answer.status in NOT_ALLOWED:
            return True
        status, number = NO_SLURMDBD
        if answer.status != status or TOKEN not in headers or not self._version:
            return False
        errors = (answer.object() or {}).get("errors")
        if not isinstance(errors, list) or number not in map(_number, errors):
            return False
        with self._judging:
            if headers[TOKEN] == self._taken_token and not self.token.trouble():
                return False
            is_refused = self._send("GET", SHORT, headers).status in NOT_ALLOWED
            self._taken_token = "" if is_refused else headers[TOKEN]
        return is_refused

    def _send(
        self, method: str, path: str, headers: Mapping[str, str], params: Params = (), body: Any = None
    ) -> Answer:
        """Return an answer, whatever it is. Raises BackendUnavailable."""
        versioned = self._versioned(path)
        try:
            return self._client.send(method, versioned, params=params, body=body, headers=headers)
        except NoAnswer as error:
            kind = AnswerTooLarge if error.is_too_long else BackendUnavailable
            raise kind(
                f"{error}. Nothing is lost: the step is tried again. Check slurmrestd and rest_api.url"
            ) from error

    def _document(self, method: str, path: str, answer: Answer) -> Mapping[str, Any] | None:
        if answer.status == NOT_MODIFIED:
            return None
        what = f"{method} {path}"
        document = answer.object()
        if document is None:
            raise self._odd(what, answer)
        errors = document.get("errors") or []
        if not isinstance(errors, list):
            raise ParseError(what, str(errors), "`errors` is not a list")
        if all(_number(error) == NOTHING_FOUND for error in errors):
            if answer.status < 300 or errors:
                return document
            raise self._odd(what, answer)
        raise _refusal(what, errors)

    def _odd(self, what: str, answer: Answer) -> BackendError:
        """Return the error for an answer that is none of slurmrestd's documents."""
        if answer.status == 404:
            # Asked for again with the next request: slurmrestd may be another release since.
            served, self._version = self._version, self._access.api_version
            return RequestDenied(
                f"{what}: slurmrestd at {self._client.place} knows no such address: {answer.detail()}. "
                f"It serves another version than {served}: set rest_api.api_version to one that it has, or "
                "leave it out"
            )
        if answer.status in AWAY or answer.status >= 500:
            return BackendUnavailable(f"{what}: slurmrestd answered {answer.status}: {answer.detail()}")
        if answer.status >= 400:
            return RequestRefused(f"{what}: slurmrestd answered {answer.status}: {answer.detail()}")
        if answer.status >= 300:
            return RequestDenied(
                f"{what}: it leads elsewhere ({answer.status}), and redirects are not followed"
            )
        return ParseError(what, answer.detail(), "the answer is not a JSON object")


def _refusal(what: str, errors: Sequence[Any]) -> BackendError:
    said = one_line("\n".join(dict.fromkeys(map(_said, errors))))
    numbers = {_number(error) for error in errors}
    sentence = f"{what}: slurmrestd said: {said}"
    if JOBS_ACTIVE.search(said):
        return JobsStillActive(sentence)
    if ACCESS_DENIED in numbers or DENIED.search(said):
        return RequestDenied(f"{sentence}. The agent's user needs AdminLevel Operator in SLURM")
    is_away = any(number in numbers_of for number in numbers for numbers_of in NO_DAEMON)
    if is_away or NO_CONNECTION.search(said) or OUTAGE.search(said):
        return BackendUnavailable(
            f"{sentence}. Nothing is lost: the step is tried again. Check slurmdbd and slurmctld"
        )
    if NO_ACCESS_TO_QOS.search(said):
        sentence += (
            ". Members have QoS of their own without it; slurmrestd does not show them where they equal the account's. "
            "Name this host's sacctmgr by slurm_bin_path, or add it by hand: sacctmgr modify user where name=USER "
            "account=ACCOUNT set qos+=QOS"
        )
    return RequestRefused(sentence)


def _number(error: Any) -> int:
    number = error.get("error_number") if isinstance(error, Mapping) else None
    return number if isinstance(number, int) else 0


def _said(error: Any) -> str:
    if not isinstance(error, Mapping):
        return str(error)
    words = (error.get("error"), error.get("description"))
    return ": ".join(dict.fromkeys(str(word) for word in words if word)) or "no word why"


def items(document: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a list. Raises ParseError where there is none: no list is not an empty one."""
    found = document.get(name)
    if not isinstance(found, list):
        raise ParseError("slurmrestd", str(found), f"the answer has no list {name!r}")
    for item in found:
        if not isinstance(item, Mapping):
            raise ParseError("slurmrestd", str(item), f"an entry of {name!r} is not an object")
        yield item
