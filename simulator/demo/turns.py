# SPDX-License-Identifier: MIT
"""Run a program of the emulated cluster when it is its turn: each reads one file and writes it whole, so that of two at
once the second one would undo what the first one wrote. The real slurmdbd has transactions for that.

Arguments: the file to lock, the program, and its own. Run by the programs that `write` makes, with nothing but Python.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path


def write(folder: Path, programs: Iterable[Path]) -> None:
    """Make programs of the same names in a folder, which take turns."""
    folder.mkdir(exist_ok=True)
    for program in programs:
        words = (sys.executable, "-IS", __file__, str(folder / ".turn"), str(program))
        shown = folder / program.name
        shown.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        shown.chmod(0o755)


def main(lock: str, program: str, *arguments: str) -> None:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    # The program keeps it open: the turn ends with it.
    os.set_inheritable(descriptor, True)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.execv(program, (program, *arguments))  # noqa: S606  what the demo names


if __name__ == "__main__":
    main(*sys.argv[1:])
