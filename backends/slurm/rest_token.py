# SPDX-License-Identifier: MIT
"""The JWT by which slurmrestd knows the agent: read from a file, a variable or a command, and renewed before it ends.

Who it is for and when it ends stand in its middle part, which needs no key to read. slurmrestd itself checks no token;
slurmctld and slurmdbd do (24.11 to 26.05). It goes into a header, and into nothing else.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock

from agent.config.secret import MASK, mask_words
from agent.core.checks import Check, ok, problem, warning
from agent.core.errors import BackendError
from agent.core.periods import span
from backends.command_output import one_line
from backends.process import Runner
from backends.slurm.rest_access import RestAccess

log = logging.getLogger(__name__)

CHECK = "token of slurmrestd"
# What `scontrol token` prints before the token.
PRINTED = "SLURM_JWT="
# A token is about to end in the last quarter of its time, and in the last week of a longer one.
LAST_PART, LAST_S = 4, 7 * 86_400.0
# Of a token that does not say when it was made.
LASTS_S = 240.0
# While it is about to end, another one is looked for this often.
LOOK_AGAIN_S = 60.0
COMMAND_TIMEOUT_S = 30.0
# Which SLURM `scontrol token` asks.
PASSED_ON = ("SLURM_CONF",)
USER, TOKEN = "X-SLURM-USER-NAME", "X-SLURM-USER-TOKEN"


class TokenMissing(BackendError):
    """There is no token to log in with: an operator must act."""

    of_host = True


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says of itself; a claim that is missing or odd is None."""

    user: str | None = None
    # Seconds since 1970.
    made_s: float | None = None
    ends_s: float | None = None

    @classmethod
    def of(cls, token: str) -> Claims:
        """Return what can be read of a token, whose signature is not checked."""
        middle = [*token.split("."), ""][1]
        try:
            found = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(found, Mapping):
            return cls()
        user = found.get("sun") or found.get("username")
        return cls(
            user if isinstance(user, str) else None, _moment(found.get("iat")), _moment(found.get("exp"))
        )

    @property
    def left_s(self) -> float:
        """Return for how many seconds it is good; negative after its end."""
        return float("inf") if self.ends_s is None else self.ends_s - time.time()

    @property
    def is_ending(self) -> bool:
        if self.ends_s is None:
            return False
        lasts_s = LASTS_S if self.made_s is None else self.ends_s - self.made_s
        return self.left_s < min(LAST_S, lasts_s / LAST_PART)

    @property
    def end(self) -> str:
        """Say when it ends, or has ended; empty where it does not say."""
        if self.ends_s is None:
            return ""
        moment = datetime.fromtimestamp(self.ends_s, UTC)
        if self.left_s <= 0:
            return f"ended at {moment:%Y-%m-%d %H:%M} UTC"
        return f"ends at {moment:%Y-%m-%d %H:%M} UTC, in {span(timedelta(seconds=self.left_s))}"


def _moment(value: object) -> float | None:
    """Return a number of seconds since 1970 that a date can show."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < 2**37 else None  # type: ignore[arg-type, operator]


class Token:
    """The token of one way to slurmrestd. Safe for use by several threads."""

    def __init__(self, access: RestAccess) -> None:
        self._access = access
        self._lock = Lock()
        self._text = ""
        self._claims = Claims()
        self._looked_s = 0.0
        self._warned = ""

    @property
    def source(self) -> str:
        """Name where the token comes from, with its key."""
        if self._access.token_file:
            return f"rest_api.token_file {self._access.token_file}"
        if self._access.token_command:
            return f"rest_api.token_command `{' '.join(mask_words(self._access.token_command))}`"
        return f"the variable {self._access.token_env} (rest_api.token_env)"

    def headers(self) -> dict[str, str]:
        """Return the headers by which slurmrestd knows us. Raises BackendError where there is no token."""
        named = {USER: self._access.username}
        if not self._access.needs_token:
            return named
        with self._lock:
            if not self._text:
                self._take()
            elif self._claims.is_ending and time.monotonic() - self._looked_s > LOOK_AGAIN_S:
                self._look_for_another()
            return {**named, TOKEN: self._text}

    def renew(self, refused: Mapping[str, str]) -> bool:
        """Take the token anew after one was refused. Return whether it is another one. Raises BackendError."""
        if TOKEN not in refused:
            return False
        with self._lock:
            # Else another thread has renewed it since.
            if self._text == refused[TOKEN]:
                self._take()
            return self._text != refused[TOKEN]

    def trouble(self) -> str:
        """Say what is wrong with the token, as far as it says so itself; empty where it does not."""
        claims, name = self._claims, self._access.username
        if claims.left_s <= 0:
            return f"it {claims.end}"
        if claims.user is not None and claims.user != name:
            return f"it is the token of {claims.user}, and rest_api.username is {name}"
        return ""

    def check(self) -> Check:
        """Return when the token ends. Raises BackendError where there is none."""
        self.headers()
        claims, whose = self._claims, f"the token of {self._access.username}"
        if trouble := self.trouble():
            return problem(CHECK, f"{whose} is not good: {trouble}", f"renew {self.source}")
        if claims.is_ending:
            return warning(CHECK, f"{whose} {claims.end}", f"renew {self.source} before that")
        return ok(CHECK, f"{whose} {claims.end or 'says of no end'}")

    def warnings(self) -> list[str]:
        """Return that the token in use is about to end, where nothing newer was found. Asks for nothing."""
        if not self._text or not self._claims.is_ending:
            return []
        return [f"the token of {self._access.username} {self._claims.end}: renew {self.source}"]

    def mask(self, text: str) -> str:
        return text.replace(self._text, MASK) if self._text else text

    def _look_for_another(self) -> None:
        """Take the token anew; one that is still good is kept where that fails, and said once to be about to end."""
        before = self._text
        try:
            self._take()
        except BackendError as error:
            if self._claims.left_s <= 0:
                raise
            log.warning("%s", error)
        if self._text == before != self._warned:
            self._warned = before
            log.warning("%s, and there is no newer one", *self.warnings())

    def _take(self) -> None:
        self._looked_s = time.monotonic()
        token = self._read().strip().removeprefix(PRINTED)
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise TokenMissing(
                f"{self.source} has no token: write one there (`scontrol token lifespan=SECONDS`)"
            )
        self._text, self._claims = token, Claims.of(token)

    def _read(self) -> str:
        file, command = self._access.token_file, self._access.token_command
        if file:
            try:
                return Path(file).read_text("ascii")
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "it is not plain text"
                raise TokenMissing(f"{self.source} cannot be read: {reason}") from error
        if not command:
            return os.environ.get(self._access.token_env, "")
        # What it prints is a secret: only its errors are shown.
        runner = Runner(prefix=command, keys="rest_api.token_command", passed_on=PASSED_ON)
        done = runner.read((), timeout_s=COMMAND_TIMEOUT_S)
        if done.returncode:
            said = one_line(done.stderr) or "no word why"
            raise TokenMissing(f"{self.source} ended with code {done.returncode}: {said}")
        return done.stdout
