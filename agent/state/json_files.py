# SPDX-License-Identifier: MIT
"""Small files below `state_dir`, whole or not there, for nobody but the agent's user (0700, 0600).

A full disk, a read-only folder or a damaged file never stops a pass: writing warns and goes on, reading says
that nothing can be known. A command that root runs leaves the files to the owner of `state_dir`, so that the
service can read them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9_.-]+")


class Unreadable(Exception):
    """A file is there and cannot be read; what it says is unknown."""


def read_json(path: Path) -> dict[str, Any] | None:
    """The document, None where there is no such file. Raises Unreadable."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise Unreadable(f"{path} cannot be read: it holds no map")
    return document


def documents(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The documents of a folder by name; those that cannot be read are warned about and left out."""
    try:
        paths = sorted(folder.glob("*.json"))
    except OSError as error:
        log.warning("%s cannot be listed: %s", folder, error.strerror)
        return
    for path in paths:
        try:
            document = read_json(path)
        except Unreadable as error:
            log.warning("%s", error)
            continue
        if document is not None:
            yield path, document


def write_json(state_dir: Path, path: Path, document: Mapping[str, Any]) -> bool:
    """Put the document into the file at once; False, with a warning, where that is not possible."""
    made = ""
    try:
        make_folder(state_dir, path.parent)
        descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            hand_over(state_dir, file.fileno())
            json.dump(document, file, ensure_ascii=False, indent=1, default=str)
        os.replace(made, path)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error.strerror)
        _drop(made)
        return False
    return True


def remove(path: Path) -> bool:
    """False, with a warning, where the file stays."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s cannot be removed: %s", path, error.strerror)
        return False
    return True


def make_folder(state_dir: Path, folder: Path) -> None:
    """The folder with all that lead to it. Raises OSError."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)
        if place != state_dir:
            hand_over(state_dir, place)


def hand_over(state_dir: Path, target: Path | int) -> None:
    """What root makes belongs to the owner of `state_dir`. Raises OSError."""
    if os.geteuid() == 0:
        owner = state_dir.stat()
        if (owner.st_uid, owner.st_gid) != (0, 0):
            os.chown(target, owner.st_uid, owner.st_gid)


def safe_name(text: str) -> str:
    """A text as the name of a file. Raises ValueError where it cannot be one."""
    if not NAME.fullmatch(text) or text.startswith("."):
        raise ValueError(f"{text!r} cannot be a file's name")
    return text


def _drop(path: str) -> None:
    if path:
        try:
            os.unlink(path)
        except OSError as error:
            log.debug("%s stays: %s", path, error.strerror)
