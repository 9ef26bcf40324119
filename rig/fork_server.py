# SPDX-License-Identifier: MIT
"""The process that `warm_python` starts. It imports modules, and forks for each client; the fork becomes the program
that the client asks for. Stands alone: what it imported besides would weigh on each fork.

Run as a program. Arguments: its socket and what it imports, or calls (`module:function`).
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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

PR_SET_PDEATHSIG = 1
CLONE_NEWNS = 0x20000
LIBC = ctypes.CDLL(None, use_errno=True)
SIZE_BYTES, NUMBER_BYTES = 8, 4
"""Of the length before a request; of a pid and then an exit code, which are the answers."""


def serve(place: str) -> socket.socket:
    """Fork for each client, and tell it how the fork ends; in the fork, return the client. The fork of a client that
    has gone, such as one that was killed, is killed.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"{place}.new")
    listener.listen(64)
    os.rename(f"{place}.new", place)
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
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115  these three are for life
    sys.stdout = sys.__stdout__ = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.setsid()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in words[int(count) :])
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
            exec(compile(script, "<string>", "exec"), vars(main))
        case [file, *_]:
            main.__file__ = file
            sys.path.insert(0, os.path.dirname(file))
            exec(compile(Path(file).read_bytes(), file, "exec"), vars(main))


def main(place: str, modules: Sequence[str]) -> None:
    del sys.path[0]
    for name in modules:
        module, _, function = name.partition(":")
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
    gc.collect()
    gc.freeze()
    take_over(serve(place))
    code = 0
    try:
        run()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    # What Python does at the end, but for taking its modules apart, which takes longest.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code & 255)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
