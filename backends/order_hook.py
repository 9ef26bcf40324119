# SPDX-License-Identifier: MIT
"""Asks a site's own program about an order that waits for approval: accept it, reject it, or wait.

The program gets the order as JSON on its standard input and prints a JSON object. Whatever else happens (it cannot be
started, hangs, fails, prints something else) is no decision: BackendError, and the caller waits.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent.core.bounded_json import read_json
from agent.core.errors import BackendError, CommandFailed
from agent.core.printable import printable
from agent.host.files import others_may_change
from backends.process import Completed, Runner

ANSWER_LIMIT_BYTES = 1 << 16
MESSAGE_LIMIT = 500
NEXT = "The order waits, and is asked about again"


class Decision(StrEnum):
    ACCEPT = "accept"
    REJECT = "reject"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What the hook decided."""

    decision: Decision
    # Why, for the order's consumer and the operator; printable, at most MESSAGE_LIMIT characters.
    message: str = ""


class OrderHook:
    """One program of a site. `command`: its absolute path and arguments, which no order changes."""

    def __init__(self, command: Sequence[str], timeout_s: float) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._runner = Runner(keys="order_hook.command")

    def ask(self, document: Mapping[str, Any], *, timeout_s: float) -> HookAnswer:
        """Return the decision on an order, within its own time-out and this one. Raises BackendError."""
        self._check_program()
        answer: list[str] = []
        size = 0
        lines = self._runner.lines(
            self._command, timeout_s=min(self._timeout_s, timeout_s), stdin_text=json.dumps(document)
        )
        try:
            while True:
                answer.append(next(lines))
                size += len(answer[-1]) + 1
                if size > ANSWER_LIMIT_BYTES:
                    raise BackendError(
                        f"`{self._command[0]}` printed more than {ANSWER_LIMIT_BYTES} bytes. {NEXT}"
                    )
        except StopIteration as ended:
            done: Completed = ended.value
        finally:
            lines.close()
        if done.returncode != 0:
            raise CommandFailed(
                done.argv, returncode=done.returncode, stdout="\n".join(answer), stderr=done.stderr
            )
        return self._parsed("\n".join([*answer, done.stdout]))

    def _check_program(self) -> None:
        """Raise BackendError where the program is none, or where others can change it or a file among its words."""
        path = self._command[0]
        try:
            found = os.stat(path)
        except OSError as error:
            raise BackendError(f"{path} (order_hook.command): {error.strerror}. {NEXT}") from error
        if not stat.S_ISREG(found.st_mode) or not os.access(path, os.X_OK):
            raise BackendError(f"{path} (order_hook.command) is no program that this user may run. {NEXT}")
        _require_safe(path, found)
        for word in self._command[1:]:
            if os.path.isabs(word):
                _check_argument(word)

    def _parsed(self, text: str) -> HookAnswer:
        try:
            answer = read_json(text)
            decision = Decision(answer["decision"])
            message = answer.get("message") or ""
        except (ValueError, TypeError, KeyError, AttributeError):
            printed = " ".join(text.split())[:80]
            raise BackendError(
                f"`{self._command[0]}` printed {printed!r}, and not an object like "
                f'{{"decision": "accept"}} ("reject", "wait"). {NEXT}'
            ) from None
        if not isinstance(message, str):
            message = json.dumps(message)
        return HookAnswer(decision, printable(" ".join(message.split()))[:MESSAGE_LIMIT])


def _check_argument(path: str) -> None:
    """Raise BackendError where a word names a file that others can change: it may be the script of an interpreter."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise BackendError(f"{path} (order_hook.command): {error.strerror}. {NEXT}") from error
    if stat.S_ISREG(found.st_mode):
        _require_safe(path, found)


def _require_safe(path: str, found: os.stat_result) -> None:
    if others_may_change(found):
        raise BackendError(
            f"{path} (order_hook.command) is not started: others than root and this user can change it. "
            f"`chown root` and `chmod go-w` it. {NEXT}"
        )
