# SPDX-License-Identifier: MIT
"""Signs of life of the long-running parts of the agent on this host: a small file for each worker, beat and bridge.

A part renews its file while it does its work, and removes it when it ends in order. `healthz` and the metrics read
them. Each worker has a file by its node name and each bridge one by its instance: one never keeps another's probe
alive. Two beats of one host do the same work, and share one.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from agent.core.bounded_json import read_json
from agent.core.errors import StateError
from agent.host import files

log = logging.getLogger(__name__)

FOLDER = "health"
RENEW_S = 10.0
MAX_AGE_S = 300.0
# Of hosts that are gone, such as containers: nobody will renew or remove them.
FORGOTTEN_S = 86_400.0
_UNSAFE = re.compile(r"[^A-Za-z0-9_.@-]")


class Part(StrEnum):
    """What runs for long."""

    WORKER = "worker"
    BEAT = "beat"
    BRIDGE = "bridge"


@dataclass(frozen=True, slots=True)
class Sign:
    """The last sign of life of one part, `age_s` seconds ago by this host's clock."""

    part: Part
    name: str
    host: str
    pid: int
    age_s: float
    path: Path


class Heartbeat:
    """The sign of life of this process. `name` tells it from other parts of its kind on this host; `own_file`: a file
    of the operator's choice, which is touched as well.
    """

    def __init__(self, state_dir: Path, part: Part, name: str = "", *, own_file: str = "") -> None:
        self._state_dir = state_dir
        self._part = part
        self._name = name or part
        self._own_file = Path(own_file) if own_file else None
        host = socket.gethostname()
        stem = _UNSAFE.sub("_", f"{part}-{name or host}")
        self.path = state_dir / FOLDER / f"{stem}.json"
        self._content = {"part": part, "name": self._name, "host": host, "pid": os.getpid()}
        self._renewed_s = float("-inf")
        self._has_failed = False

    def renew(self, *, now_s: float | None = None) -> None:
        """Give a sign of life, unless the last one was a moment ago. What cannot be written is logged once."""
        now_s = time.monotonic() if now_s is None else now_s
        if now_s - self._renewed_s < RENEW_S:
            return
        self._renewed_s = now_s
        text = json.dumps({**self._content, "time": int(time.time())})
        try:
            with files.acting_as_owner(self._state_dir):
                files.make_folder(self.path.parent)
                new = self.path.with_suffix(f".{os.getpid()}.new")
                new.write_text(text)
                os.replace(new, self.path)
                _forget_old(self.path.parent)
            if self._own_file is not None:
                self._own_file.write_text(f"{int(time.time())}")
        except (OSError, StateError) as error:
            if not self._has_failed:
                log.warning(
                    "no sign of life can be left in %s, so that `healthz` fails: %s", self.path, error
                )
            self._has_failed = True

    def end(self) -> None:
        """Remove the file: this part ends in order."""
        with suppress(OSError, StateError), files.acting_as_owner(self._state_dir):
            self.path.unlink()


def signs(state_dir: Path) -> list[Sign]:
    """Return the signs of life of parts of this host, by part and name. Raises OSError, StateError."""
    here, now = socket.gethostname(), time.time()
    found = []
    with files.acting_as_owner(state_dir):
        for path, content, written in _read(state_dir / FOLDER):
            try:
                sign = Sign(
                    Part(content["part"]),
                    str(content["name"]),
                    str(content["host"]),
                    int(content["pid"]),
                    max(0.0, now - written),
                    path,
                )
            except (KeyError, TypeError, ValueError):
                continue  # not of ours
            if sign.host == here:
                found.append(sign)
    return sorted(found, key=lambda sign: (sign.part, sign.name))


def _read(folder: Path) -> Iterator[tuple[Path, dict[str, Any], float]]:
    for path in sorted(folder.glob("*.json")):
        with suppress(FileNotFoundError, ValueError):
            content = read_json(path.read_text())
            if isinstance(content, dict):
                yield path, content, path.stat().st_mtime


def _forget_old(folder: Path) -> None:
    here, now = socket.gethostname(), time.time()
    for path, content, written in _read(folder):
        if now - written > FORGOTTEN_S and content.get("host") != here:
            path.unlink(missing_ok=True)
