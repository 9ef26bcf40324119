# SPDX-License-Identifier: MIT
"""Run a program of the emulated cluster when it is its turn: each reads one file and writes it whole, so that of two at
once the second one would undo what the first one wrote. The real slurmdbd has transactions for that. Reads of sacctmgr
write nothing, and are not alone.

Arguments: the file to lock, where modules are, the program, and its own. Run by the programs that `write` makes. A
program in Python runs in this process, which saves it another start.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

READS = ("list", "show")


def write(folder: Path, programs: Iterable[Path]) -> None:
    """Make programs of the same names in a folder, which take turns."""
    folder.mkdir(exist_ok=True)
    modules = os.pathsep.join(path for path in sys.path if os.path.isdir(path))
    for program in programs:
        words = (sys.executable, "-IS", __file__, str(folder / ".turn"), modules, str(program))
        shown = folder / program.name
        shown.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        shown.chmod(0o755)


def main(lock: str, modules: str, program: str, *arguments: str) -> None:
    # Kept open: the turn ends with the program.
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    command = next((word for word in arguments if not word.startswith("-")), "")
    is_read = Path(program).name == "sacctmgr" and command in READS
    fcntl.flock(descriptor, fcntl.LOCK_SH if is_read else fcntl.LOCK_EX)
    text = Path(program).read_bytes()
    if b"python" not in text.partition(b"\n")[0]:
        os.set_inheritable(descriptor, True)
        os.execv(program, (program, *arguments))  # noqa: S606  what the demo names
    sys.path += modules.split(os.pathsep)
    sys.argv = [program, *arguments]
    exec(compile(text, program, "exec"), {"__name__": "__main__"})  # noqa: S102  what the demo names


if __name__ == "__main__":
    main(*sys.argv[1:])
