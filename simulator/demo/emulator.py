# SPDX-License-Identifier: MIT
"""The commands of the emulated SLURM in 10 ms of processor time instead of 110, most of which import its modules: each
is a fork of one process (`simulator.fork_server`).

Commands with one state take turns: each reads one file and writes it whole, so that of two at once the second one would
undo what the first one wrote. One that is killed has changed nothing. The real slurmdbd has transactions for that.
Reads of sacctmgr write nothing, and are not alone.

Run as a module it is that process. Arguments: its socket.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from simulator import fork_server

# It has no squeue.
NAMES = ("sacctmgr", "sacct", "scancel", "scontrol", "sinfo", "sreport", "sshare", "slurm-emulator")
PROGRAMS = tuple(Path(sys.executable).with_name(name) for name in NAMES)
READS = ("list", "show")
STATE = "SLURM_EMULATOR_STATE_FILE"
CLOCK = "SLURM_EMULATOR_TIME_FILE"
FOLLOWS_WALL = "SLURM_EMULATOR_TIME_FOLLOW_WALL"


def environment(folder: Path) -> dict[str, str]:
    """Return the variables that lead commands to a state in this folder."""
    return {
        STATE: str(folder / "slurm.json"),
        CLOCK: str(folder / "slurm-time.json"),
        FOLLOWS_WALL: "1",
        "SLURM_EMULATOR_CLUSTER_NAME": "demo",
    }


def write_clients(
    folder: Path,
    place: Path,
    programs: Iterable[Path] = PROGRAMS,
    write_client: Callable[[Path, Path, str], None] = fork_server.write_client,
) -> None:
    """Make a client of the process that listens at `place` for each of these programs, of the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        write_client(folder / program.name, place, str(program))


def server(place: Path) -> list[str]:
    """Return the command line of the process; it is ready when `place` exists."""
    return [sys.executable, "-I", "-m", __name__, str(place)]


def _take_turn() -> None:
    """Wait until no other command is at this one's state; a change is made to a copy, which is the state at its end."""
    state = Path(os.environ[STATE])
    # Never closed: the turn ends with this process.
    turn = os.open(f"{state}.turn", os.O_RDWR | os.O_CREAT, 0o600)
    program, *arguments = sys.argv
    command = next((word for word in arguments if not word.startswith("-")), "")
    if os.path.basename(program) == "sacctmgr" and command in READS:
        fcntl.flock(turn, fcntl.LOCK_SH)
        return
    fcntl.flock(turn, fcntl.LOCK_EX)
    changed = Path(f"{state}.changed")
    changed.unlink(missing_ok=True)
    if state.exists():
        shutil.copyfile(state, changed)
    os.environ[STATE] = str(changed)
    atexit.register(lambda: changed.exists() and changed.replace(state))


if __name__ == "__main__":
    fork_server.main(sys.argv[1], ["emulator.commands.dispatcher"], _take_turn)
