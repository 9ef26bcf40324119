# SPDX-License-Identifier: MIT
"""Heartbeats of the long-running parts of the agent on this host: a small file for each worker, beat and bridge.

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
from agent.core.said import Said
from agent.host import files

log = logging.getLogger(__name__)

FOLDER = "health"
RENEW_S = 10.0
MAX_AGE_S = 300.0
# Of hosts that are gone, such as containers: no process will renew or remove them.
FORGOTTEN_S = 86_400.0
_UNSAFE = re.compile(r"[^A-Za-z0-9_.@-]")


class Part(StrEnum):
    """What runs for long."""

    WORKER = "worker"
    BEAT = "beat"
    BRIDGE = "bridge"


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """The last heartbeat of one part; of a file that cannot be read only what its name says."""

    part: Part
    name: str
    host: str
    pid: int
    # By this host's clock; None where it is not known.
    age_s: float | None
    path: Path
    # Why it cannot be read.
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        age_s = None if self.age_s is None else round(self.age_s, 1)
        known = {"part": self.part, "name": self.name, "pid": self.pid, "age_s": age_s}
        return {**known, "problem": self.problem or None}


class Heartbeat:
    """The heartbeat of this process. `name` distinguishes it from other parts of its kind on this host; `own_file`:
    a file of the operator's choice, which is touched as well.
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
        self._said = Said()

    def renew(self, *, now_s: float | None = None) -> None:
        """Write a heartbeat, unless the last one was a moment ago. What cannot be written is logged once."""
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
                for path, content, written in _read(self.path.parent):
                    if isinstance(content, OSError) or time.time() - written <= FORGOTTEN_S:
                        continue
                    if content.get("host") != self._content["host"]:
                        path.unlink(missing_ok=True)
            if self._own_file is not None:
                # It may lie in a folder of everybody's, such as /tmp: a link that another user planted is not followed.
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                with open(os.open(self._own_file, flags, 0o644), "w", encoding="ascii") as file:
                    file.write(f"{int(time.time())}")
        except (OSError, StateError) as error:
            for news in self._said.news("", f"{self.path}, so that `healthz` fails: {error}"):
                log.warning("no heartbeat can be written in %s", news)

    def end(self) -> None:
        """Remove the file: this part ends in order."""
        with suppress(OSError, StateError), files.acting_as_owner(self._state_dir):
            self.path.unlink()


def last_heartbeats(state_dir: Path) -> list[LastHeartbeat]:
    """Return the heartbeats of parts of this host, by part and name. Raises StateError."""
    here, now = socket.gethostname(), time.time()
    found = []
    try:
        with files.acting_as_owner(state_dir):
            read = list(_read(state_dir / FOLDER))
    except OSError as error:
        said = f"{error.strerror or error}{files.how_to_act(state_dir, error)}"
        raise StateError(f"the heartbeats in {state_dir / FOLDER} cannot be read: {said}") from error
    for path, content, written in read:
        with suppress(KeyError, TypeError, ValueError):  # where it is none of ours
            if isinstance(content, OSError):
                part, _, name = path.stem.partition("-")
                said = f"its heartbeat {path} cannot be read: {content.strerror}"
                found.append(LastHeartbeat(Part(part), name, here, 0, None, path, said))
                continue
            each = LastHeartbeat(
                Part(content["part"]),
                str(content["name"]),
                str(content["host"]),
                int(content["pid"]),
                max(0.0, now - written),
                path,
            )
            if each.host == here:
                found.append(each)
    return sorted(found, key=lambda each: (each.part, each.name))


def _read(folder: Path) -> Iterator[tuple[Path, dict[str, Any] | OSError, float]]:
    """Yield what is in each file, or why it cannot be read, and when it was written."""
    for path in sorted(folder.glob("*.json")):
        with suppress(FileNotFoundError, ValueError):
            try:
                content = read_json(path.read_text())
                written = path.stat().st_mtime
            except FileNotFoundError:
                raise
            except OSError as error:
                yield path, error, 0.0
            else:
                if isinstance(content, dict):
                    yield path, content, written
