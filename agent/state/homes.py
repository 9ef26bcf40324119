# SPDX-License-Identifier: MIT
"""What was done about homes, in one small file per offering below `state_dir`.

A hint and nothing more: without it every home is looked at once more, and every quota set once more.
"""

from __future__ import annotations

import logging
from dataclasses import astuple
from pathlib import Path
from typing import Any

from agent.plan.homes import NOTHING, Remembered
from agent.state import json_files as state_files
from agent.state.json_files import Unreadable

log = logging.getLogger(__name__)

VERSION = 1


class HomeMemory:
    """Read when made; written by `save`, whole and at once, when something has changed."""

    def __init__(self, state_dir: Path, offering_uuid: str) -> None:
        self.path = state_dir / "homes" / f"{offering_uuid}.json"
        self.users = _read(self.path)
        self._state_dir = state_dir
        self._saved = dict(self.users)

    def __getitem__(self, user: str) -> Remembered:
        return self.users.get(user, NOTHING)

    def __setitem__(self, user: str, remembered: Remembered) -> None:
        self.users[user] = remembered

    def save(self) -> bool:
        """False, with a warning, where the file cannot be written."""
        kept = {name: of for name, of in self.users.items() if of != NOTHING}
        if kept == self._saved:
            return True
        document = {"version": VERSION, "users": {name: astuple(of) for name, of in sorted(kept.items())}}
        if not state_files.write_json(self._state_dir, self.path, document):
            return False
        self._saved = kept
        return True


def _read(path: Path) -> dict[str, Remembered]:
    """What the file holds; nothing when it is missing, broken, or of another version."""
    try:
        document = state_files.read_json(path)
        if document is None:
            return {}
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']!r}")
        return {name: _remembered(values) for name, values in document["users"].items()}
    except (Unreadable, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("cannot use %s (%s): all homes are looked at once more", path, error)
        return {}


def _remembered(values: Any) -> Remembered:
    home, quota, failures, told = values
    if not all(isinstance(text, str) for text in (home, quota, told)) or not isinstance(failures, int):
        raise ValueError(f"not what is remembered of a user: {values!r}")
    return Remembered(home, quota, failures, told)
