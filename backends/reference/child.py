# SPDX-License-Identifier: MIT
"""The process in which a backend of the reference runs: started when it is asked, and again when it has ended."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.config.secret import MASK, MIN_SECRET_LENGTH
from agent.core.errors import BackendUnavailable, ConfigError, PluginFailed
from agent.core.printable import printable
from backends.dialogue import Dialogue, Ended
from backends.process import Runner
from backends.reference import host, report
from backends.reference.venv import python_of

log = logging.getLogger(__name__)

# Packages of the reference are imported.
OPEN_TIMEOUT_S = 180.0
ANSWER_TIMEOUT_S = 120.0
# Later it ends itself.
GRACE_S = 10.0
# Longer than the pauses between the questions of one report, shorter than those between two reports.
IDLE_S = 120.0
ANSWER_LIMIT_BYTES = 16 << 20
# What leads it to the service that it asks; nothing else of our environment.
PASSED_ON = (
    "[hH][tT][tT][pP]*_[pP][rR][oO][xX][yY]",
    "[nN][oO]_[pP][rR][oO][xX][yY]",
    "SSL_CERT_*",
    "*_CA_BUNDLE",
)


@dataclass(frozen=True)
class Hosted:
    """A backend of the reference, and what it gets to know."""

    name: str
    venv: Path
    # The whole map, as the reference gives it.
    backend_settings: Mapping[str, Any] = field(repr=False)
    backend_components: Mapping[str, Mapping[str, Any]]
    # Secrets of its settings, which are masked in all that it prints.
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"plugin {self.name} in {self.venv}"


class Child:
    """Asks the plugin. Settings go to it by its stdin, and are in no argument and no variable."""

    def __init__(self, hosted: Hosted, zone: str) -> None:
        self._hosted, self._zone = hosted, zone
        self._runner = Runner(keys="plugin_venv", passed_on=PASSED_ON)
        self._dialogue: Dialogue | None = None
        self._lock = threading.Lock()
        self.executed = self._runner.executed
        self.may_fall = False

    @property
    def said(self) -> str:
        """Return the last lines that it printed for the last question."""
        return " / ".join(self._dialogue.said) if self._dialogue else ""

    def ask(self, call: str, timeout_s: float = ANSWER_TIMEOUT_S, **arguments: Any) -> Any:
        """Return an answer, numbers as Decimal. Raises PluginFailed for an exception of the plugin, BackendUnavailable
        where its process gives no answer, ConfigError where it cannot be started.
        """
        with self._lock:
            dialogue, was_open = self._dialogue, True
            if dialogue is None or not dialogue.is_open:
                dialogue, was_open = self._open(), False
            try:
                return self._answer(dialogue, call, timeout_s, arguments)
            except Ended:
                if not was_open:
                    raise
                # It may have ended because it was idle.
                return self._answer(self._open(), call, timeout_s, arguments)

    def end(self) -> None:
        """End the process, if there is one."""
        if self._dialogue:
            self._dialogue.end()

    def _open(self) -> Dialogue:
        hosted = self._hosted
        try:
            python = python_of(hosted.venv)
        except ConfigError as error:
            raise ConfigError(f"plugin_venv: {error}") from error
        command = (str(python), "-I", "-u", host.__file__, str(IDLE_S))
        child = self._runner.start_dialogue(command, {"TZ": self._zone})
        dialogue = Dialogue(child, str(hosted), self._heard, answer_limit_bytes=ANSWER_LIMIT_BYTES)
        arguments = {
            "name": hosted.name,
            "settings": hosted.backend_settings,
            "components": hosted.backend_components,
            "zone": self._zone,
        }
        try:
            opened = self._answer(dialogue, "open", OPEN_TIMEOUT_S, arguments)
        except PluginFailed as error:
            dialogue.end()
            raise BackendUnavailable(str(error)) from error
        self.may_fall = opened["may_fall"] is True
        self._dialogue = dialogue
        return dialogue

    def _answer(self, dialogue: Dialogue, call: str, timeout_s: float, arguments: Mapping[str, Any]) -> Any:
        question = json.dumps({"call": call, "timeout_s": timeout_s + GRACE_S, **arguments}, default=str)
        try:
            line = dialogue.ask(question, timeout_s)
        except BackendUnavailable as error:
            error.args = (self._masked(str(error)),)
            raise
        try:
            answer = report.document_of(line)
            if "error" not in answer:
                return answer["value"]
            reason = str(answer["error"])
        except (ValueError, TypeError, KeyError) as error:
            dialogue.end()
            raise BackendUnavailable(
                f"{self._hosted} answered {self._masked(printable(line[:80]))!r}, which is no answer ({error})"
            ) from error
        raise PluginFailed(f"{self._hosted} failed at {call}: {self._masked(printable(reason))}")

    def _heard(self, line: str) -> None:
        log.info("%s: %s", self._hosted, self._masked(line))

    def _masked(self, text: str) -> str:
        for secret in self._hosted.secrets:
            if len(secret) >= MIN_SECRET_LENGTH:
                text = text.replace(secret, MASK)
        return text
