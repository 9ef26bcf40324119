# SPDX-License-Identifier: MIT
"""What the stand-in programs share: the folder above them holds users, file systems, what was set, and their log."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, NoReturn

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HANGS_AT_MOST_S = 60.0
PROGRAM = os.path.basename(sys.argv[0])


def load(name: str) -> Any:
    path = os.path.join(FOLDER, name)
    if not os.path.exists(path):
        return {}
    with open(path) as stream:
        return json.load(stream)


def save(name: str, value: Any) -> None:
    path = os.path.join(FOLDER, name)
    with open(f"{path}.new", "w") as stream:
        json.dump(value, stream)
    os.replace(f"{path}.new", path)


def end(code: int, stderr: str = "", stdout: str = "") -> NoReturn:
    sys.stderr.write(stderr)
    sys.stdout.write(stdout)
    sys.exit(code)


def begin() -> list[str]:
    """Note the call, fail as a test ordered it, and return the words."""
    words = sys.argv[1:]
    with open(os.path.join(FOLDER, "log"), "a") as log:
        log.write(json.dumps([PROGRAM, *words]) + "\n")
    for fault in load("faults"):
        if fault["program"] == PROGRAM and fault["needle"] in " ".join(words):
            until_s = time.monotonic() + HANGS_AT_MOST_S
            while (
                fault["hangs"]
                and not os.path.exists(os.path.join(FOLDER, "go"))
                and time.monotonic() < until_s
            ):
                time.sleep(0.02)
            if fault["hangs"]:
                break
            end(fault["code"], fault["stderr"], fault["stdout"])
    return words


def user(name: str) -> Any:
    """uid and home of a user, None when there is none."""
    return load("users").get(name)


def file_system(path: str) -> str:
    """The kind of the file system that holds a path."""
    kinds = load("file_systems")
    holding = [mount for mount in kinds if path == mount or path.startswith(mount.rstrip("/") + "/")]
    return kinds[max(holding, key=len)] if holding else "ext4"
