# SPDX-License-Identifier: MIT
"""Run a program of the emulated cluster when it is its turn: each reads one file, and whoever changes something writes
it whole, so that of two at once the second one would undo what the first one wrote. The real slurmdbd has transactions
for that. Those that only read may do so at once.

Arguments: the file to lock, the folders of packages, the program, and its own. Run by the programs that `write` makes,
with nothing but Python, which goes on as the program: starting one takes as long as its work.
"""

from __future__ import annotations

import fcntl
import os
import runpy
import shlex
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

READERS = frozenset({"sacct", "sinfo", "sreport", "sshare"})


def write(folder: Path, programs: Iterable[Path]) -> None:
    """Make programs of the same names in a folder, which take turns. Each is a script of Python."""
    folder.mkdir(exist_ok=True)
    packages = os.pathsep.join(dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib")))
    for program in programs:
        words = (sys.executable, "-IS", __file__, str(folder / ".turn"), packages, str(program))
        shown = folder / program.name
        shown.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        shown.chmod(0o755)


def reads(program: str, arguments: Iterable[str]) -> bool:
    """Return whether a program changes nothing."""
    return program in READERS or (program == "sacctmgr" and not {"show", "list"}.isdisjoint(arguments))


def main(lock: str, packages: str, program: str, *arguments: str) -> None:
    # The turn ends with this process.
    turn = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(turn, fcntl.LOCK_SH if reads(Path(program).name, arguments) else fcntl.LOCK_EX)
    sys.path += packages.split(os.pathsep)
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
