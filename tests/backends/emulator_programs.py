# SPDX-License-Identifier: MIT
"""slurm-emulator as programs that start in 20 ms instead of 270: a process that has it loaded forks for each call.

`python emulator_programs.py FOLDER` serves; the programs in FOLDER/bin hand it their words and streams. What runs in
the fork is the emulator's own entry point, with the same words, streams and environment as from its console script.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

PROGRAMS = ("sacct", "sacctmgr", "scancel", "sreport")
CLIENT = r"""
import _socket, sys
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({path!r})
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
server.sendmsg(["\0".join([{program!r}, *sys.argv[1:]]).encode()], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
sys.exit(int.from_bytes(server.recv(1), "big"))
"""


def install(folder: Path) -> None:
    (folder / "bin").mkdir()
    for program in PROGRAMS:
        path = folder / "bin" / program
        path.write_text(
            f"#!{sys.executable} -SE\n{CLIENT.format(path=str(folder / 'socket'), program=program)}"
        )
        path.chmod(0o755)


def serve(folder: Path) -> None:
    from emulator.commands import dispatcher  # type: ignore[import-untyped]

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        (folder / "ready").touch()
        while True:
            connection, _ = listener.accept()
            words, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
            if not os.fork():
                answer(connection, words.decode().split("\0"), files, dispatcher)
            for number in (connection.detach(), *files):
                os.close(number)


def answer(connection: socket.socket, words: list[str], files: list[int], dispatcher: object) -> None:
    """Run one command in this fork of the server, and end with it."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    sys.argv = words
    code: object = 0
    try:
        getattr(dispatcher, f"{words[0]}_main")()
    except SystemExit as end:
        code = end.code or 0
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(bytes([int(str(code))]))
    os._exit(0)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
