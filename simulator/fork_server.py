# SPDX-License-Identifier: MIT
"""Python programs without their imports, which take most of their processor time: one process has imported modules, and
each program is a fork of it, which takes over arguments, environment, folder and streams of a small client. For the
emulated SLURM of the demo, and for the tests.

Run as a program it is that process. Arguments: its socket, which is there when it is ready, and what it imports, or
calls (`module:function`). Stands alone: what it imported besides would weigh on each fork.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

PR_SET_PDEATHSIG = 1
CLONE_NEWNS = 0x20000
LIBC = ctypes.CDLL(None, use_errno=True)
SIZE_BYTES, NUMBER_BYTES = 8, 4
"""Of the length before a request; of a pid and then an exit code, which are the answers."""
# `_socket` and no more: importing `socket` takes as long as all the rest.
CLIENT = """#!{python} -IS
import _signal, _socket, os, sys
_signal.signal(_signal.SIGINT, _signal.SIG_DFL)
program = [*{words!r}, *sys.argv[1:]]
words = [os.getcwd(), str(len(program)), *program, *(f"{{n}}={{v}}" for n, v in os.environ.items())]
request = "\\0".join(words).encode("utf-8", "surrogateescape")
streams = b"".join(n.to_bytes(4, sys.byteorder) for n in range(3))
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
os.chdir({folder!r})  # the path of a socket is of 107 bytes at most
server.connect({name!r})
server.sendmsg([len(request).to_bytes({size}, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(request)
server.recv({number})
code = int.from_bytes(server.recv({number}) or b"\\1", "little", signed=True)
if code < 0:
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def write_client(client: Path, place: Path, *words: str) -> None:
    """Make a program that does, by the process that listens at `place`, what `python` does with these words (FILE, -m
    MODULE, -c SCRIPT) and its own arguments after them.
    """
    text = CLIENT.format(
        python=sys.executable,
        words=words,
        folder=str(place.parent),
        name=place.name,
        size=SIZE_BYTES,
        number=NUMBER_BYTES,
    )
    client.write_text(text, encoding="utf-8")
    client.chmod(0o755)


def main(place: str, modules: Sequence[str], begin: Callable[[], None] = lambda: None) -> None:
    """Serve; `begin` is called in each fork before its program is."""
    for name in modules:
        module, _, function = name.partition(":")
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
    gc.collect()
    gc.freeze()
    take_over(serve(place))
    begin()
    code = 0
    try:
        run()
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    # What Python does at the end, but for taking its modules apart, which takes longest.
    threading._shutdown()  # type: ignore[attr-defined]  # of CPython
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code & 255)


def serve(place: str) -> socket.socket:
    """Fork for each client, and tell it how the fork ends; in the fork, return the client. The fork of a client that
    has gone, such as one that was killed, is killed.
    """
    folder, name = os.path.split(place)
    os.chdir(folder)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"{name}.new")
    listener.listen(64)
    os.rename(f"{name}.new", name)
    ended, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    watched = select.poll()
    watched.register(listener, select.POLLIN)
    watched.register(ended, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in watched.poll()}
        for pid, client in running.items():
            if client.fileno() in ready:
                watched.unregister(client)
                os.kill(pid, signal.SIGKILL)
        if ended in ready:
            os.read(ended, 4096)
            reap(running, watched)
        if listener.fileno() in ready:
            client, _ = listener.accept()
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (listener, *running.values()):
                    each.close()
                os.close(ended)
                os.close(wakes)
                return client
            running[pid] = client
            # Its end only: what the client sends is the fork's.
            watched.register(client, 0)
            with suppress(OSError):  # the client may have gone
                client.sendall(pid.to_bytes(NUMBER_BYTES, "little"))


def reap(running: dict[int, socket.socket], watched: select.poll) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        with running.pop(pid) as client, suppress(OSError, KeyError):  # the client may have gone
            watched.unregister(client)
            client.sendall(code.to_bytes(NUMBER_BYTES, "little", signed=True))


def take_over(client: socket.socket) -> None:
    """Become the program that the client asks for."""
    size, streams, *_ = socket.recv_fds(client, SIZE_BYTES, 3)
    request = client.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL)
    join_mounts(client)
    client.close()
    folder, count, *words = request.decode("utf-8", "surrogateescape").split("\0")
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  these three are for life
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.setsid()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(dict(variable.split("=", 1) for variable in words[int(count) :]))
    time.tzset()
    sys.argv = words[: int(count)]
    sys.orig_argv = [sys.executable, *sys.argv]


def join_mounts(client: socket.socket) -> None:
    """See the file systems that the client sees: those of some tests have a user database of their own."""
    pid, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    theirs = f"/proc/{pid}/ns/mnt"
    if os.readlink(theirs) == os.readlink("/proc/self/ns/mnt"):
        return
    descriptor = os.open(theirs, os.O_RDONLY)
    if LIBC.setns(descriptor, CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "the mounts of the client cannot be joined")
    os.close(descriptor)


def run() -> None:
    """Run what `sys.argv` says as `python` would."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    match sys.argv:
        case ["-m", module, *_]:
            del sys.argv[0]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", script, *_]:
            del sys.argv[1]
            sys.path.insert(0, "")
            exec(compile(script, "<string>", "exec"), vars(main))  # noqa: S102  what `python` does
        case [file, *_]:
            main.__file__ = file
            sys.path.insert(0, os.path.dirname(file))
            exec(compile(Path(file).read_bytes(), file, "exec"), vars(main))  # noqa: S102


if __name__ == "__main__":
    del sys.path[0]
    main(sys.argv[1], sys.argv[2:])
