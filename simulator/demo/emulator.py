# SPDX-License-Identifier: MIT
"""The commands of the emulated SLURM in 10 ms of processor time instead of 110, most of which import its modules: one
process has imported them, and each command is a fork of it that takes over the arguments, environment, folder and
streams of a small client.

Commands with one state take turns: each reads one file and writes it whole, so that of two at once the second one would
undo what the first one wrote. The real slurmdbd has transactions for that. Reads of sacctmgr write nothing, and are not
alone.

Run as a program it is that process. Arguments: its socket.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

# It has no squeue.
NAMES = ("sacctmgr", "sacct", "scancel", "scontrol", "sinfo", "sreport", "sshare", "slurm-emulator")
PROGRAMS = tuple(Path(sys.executable).with_name(name) for name in NAMES)
READS = ("list", "show")
STATE = "SLURM_EMULATOR_STATE_FILE"
SIZE_BYTES = 8
# `_socket` and no more: importing `socket` takes as long as all the rest.
CLIENT = """#!{python} -IS
import _socket, os, sys
words = [os.getcwd(), str(len(sys.argv)), {program!r}, *sys.argv[1:], *(f"{{n}}={{v}}" for n, v in os.environ.items())]
request = "\\0".join(words).encode("utf-8", "surrogateescape")
streams = b"".join(n.to_bytes(4, sys.byteorder) for n in range(3))
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
os.chdir({folder!r})  # the path of a socket is of 107 bytes at most
server.connect({name!r})
server.sendmsg([len(request).to_bytes({size}, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(request)
code = server.recv(1)
os._exit(code[0] if code else 1)
"""


def environment(folder: Path) -> dict[str, str]:
    """Return the variables that lead commands to a state in this folder."""
    return {
        STATE: str(folder / "slurm.json"),
        "SLURM_EMULATOR_TIME_FILE": str(folder / "slurm-time.json"),
        "SLURM_EMULATOR_TIME_FOLLOW_WALL": "1",
        "SLURM_EMULATOR_CLUSTER_NAME": "demo",
    }


def write_clients(folder: Path, place: Path, programs: Iterable[Path] = PROGRAMS) -> None:
    """Make a client of the process that listens at `place` for each of these programs, of the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        client = folder / program.name
        text = CLIENT.format(
            python=sys.executable,
            program=str(program),
            folder=str(place.parent),
            name=place.name,
            size=SIZE_BYTES,
        )
        client.write_text(text, encoding="utf-8")
        client.chmod(0o755)


def server(place: Path) -> list[str]:
    """Return the command line of the process; it is ready when `place` exists."""
    return [sys.executable, "-I", __file__, str(place)]


def serve(place: str) -> None:
    import_module("emulator.commands.dispatcher")  # before any fork

    folder, name = os.path.split(place)
    os.chdir(folder)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"{name}.new")
    listener.listen(64)
    os.rename(f"{name}.new", name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            code = _run(client)
            client.sendall(bytes([code & 0xFF]))
            os._exit(0)
        client.close()


def _run(client: socket.socket) -> int:
    """Do what the client's program would do, on its streams; return the exit code."""
    size, streams, *_ = socket.recv_fds(client, SIZE_BYTES, 3)
    request = client.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL).decode(
        "utf-8", "surrogateescape"
    )
    folder, count, *words = request.split("\0")
    argv, variables = words[: int(count)], words[int(count) :]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update((name, value) for name, _, value in (each.partition("=") for each in variables))
    time.tzset()
    _wait_for_turn(Path(argv[0]).name, argv[1:])
    sys.argv = argv
    try:
        exec(compile(Path(argv[0]).read_bytes(), argv[0], "exec"), {"__name__": "__main__"})  # noqa: S102  what the demo names
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    else:
        code = 0
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _wait_for_turn(program: str, arguments: list[str]) -> None:
    # Never closed: the turn ends with this process.
    descriptor = os.open(f"{os.environ[STATE]}.turn", os.O_RDWR | os.O_CREAT, 0o600)
    command = next((word for word in arguments if not word.startswith("-")), "")
    is_read = program == "sacctmgr" and command in READS
    fcntl.flock(descriptor, fcntl.LOCK_SH if is_read else fcntl.LOCK_EX)


if __name__ == "__main__":
    serve(sys.argv[1])
