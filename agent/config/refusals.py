# SPDX-License-Identifier: MIT
"""Reads the values of a map of which one wrong key makes the whole unusable, and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from marshmallow import ValidationError

from agent.config.findings import Findings, below


class Refusals:
    """Collects what makes a map unusable; each is a warning with the `consequence`, an error in `config-check`."""

    def __init__(self, path: str, findings: Findings, consequence: str) -> None:
        self._path = path
        self._findings = findings
        self._consequence = consequence
        self.any = False

    def add(self, key: str, sentence: str) -> None:
        self.any = True
        where = below(self._path, key) if key else self._path
        self._findings.warn(where, f"{sentence}. {self._consequence}", strict_error=True)

    def read(
        self, given: Mapping[str, Any], key: str, kind: Callable[[Any], Any], *, needed: bool = False
    ) -> Any:
        """Return the converted value; None when it is missing or refused."""
        if key not in given:
            if needed:
                self.add(key, f"`{key}` is missing")
            return None
        try:
            return kind(given[key])
        except ValidationError as error:
            self.add(key, f"`{key}` {' '.join(map(str, error.messages))}")
            return None
