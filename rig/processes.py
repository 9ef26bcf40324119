# SPDX-License-Identifier: MIT
"""Start and stop the servers of the real parts: each dies with the test session, even a killed one.

A server is stopped by the pid that was started, never by name. No clock judges a start.
"""

import itertools
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agent.core.errors import SiteAgentError
from agent.host import waiting
from rig.parts import find_program

REPOSITORY = Path(__file__).resolve().parents[1]
REAPER = Path(__file__).with_name("reaper.py")


class RealPartError(SiteAgentError):
    """A real server could not be started, stopped or asked; the message holds what it said."""


def peak_kib() -> int:
    """Return how much memory this process had at most, in KiB.

    Not by getrusage: what that says of a child of a big process begins with the size of that process.
    """
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def processor_s(pid: int) -> float:
    """Return how long a process has used the processor, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def program(names: str) -> str:
    """Return the absolute path of an installed program; raises RealPartError."""
    found = find_program(names)
    if found is None:
        raise RealPartError(f"program not installed: {names}")
    return found


# Of the kernel's list of sockets (sock_diag(7), linux/tcp.h).
SOCK_DIAG, ALL_IN_ANSWER, ERROR, DONE = 20, 0x301, 2, 3
ESTABLISHED, SYN_RECV, CLOSE_WAIT = 1, 3, 8
SERVER_PORTS = range(15_000, 32_000)
TEST_PROCESSES_AT_MOST = 16


def _ports_of_this_process() -> Iterator[int]:
    """Yield ports in random order, endlessly; no other test process of this run gets any of them."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % TEST_PROCESSES_AT_MOST
    own = SERVER_PORTS[number::TEST_PROCESSES_AT_MOST]
    return itertools.cycle(random.sample(own, len(own)))


_ports = _ports_of_this_process()


def free_ports(count: int) -> list[int]:
    """Return distinct TCP ports of the loopback address that were free a moment ago, and are not given out again soon.

    Below the range that the kernel gives to outgoing connections (32768 and up on Linux): there another process'
    connection takes a port before its server does, and a probe of a silent port can even connect to itself.
    """
    return list(itertools.islice(filter(_is_free, _ports), count))


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """Return whether something answers on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def connections(port: int) -> set[int]:
    """Return the client's port of each IPv4 connection that the server of a port has open, also if the client is gone.

    /proc/net/tcp has them as well, after thousands that have ended: that took 20 ms in a whole run of tests.
    """
    states = 1 << ESTABLISHED | 1 << SYN_RECV | 1 << CLOSE_WAIT
    family = (socket.AF_INET, socket.IPPROTO_TCP, 0, 0)
    request = struct.pack("=IHHII4BI48x", 72, SOCK_DIAG, ALL_IN_ANSWER, 0, 0, *family, states)
    found = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as kernel:  # NETLINK_SOCK_DIAG
        kernel.send(request)
        while True:
            answer = kernel.recv(1 << 16)
            while answer:
                size, kind = struct.unpack_from("=IH", answer)
                if kind == ERROR:
                    raise RealPartError("the kernel does not list its sockets (module tcp_diag)")
                if kind == DONE:
                    return found
                server, client = struct.unpack_from(">HH", answer, 20)
                if server == port:
                    found.add(client)
                answer = answer[size + 3 & ~3 :]


def freeze(pid: int) -> None:
    """Suspend a process (SIGSTOP), and return when all its threads stand still: one of them takes the signal when it
    gets a processor, and the others go on until then.
    """
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")

    def is_frozen() -> bool:
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread has ended: look again
            return all(
                stat.read_text().rpartition(")")[2].split()[0] in "TZ" for stat in tasks.glob("*/stat")
            )
        return False

    wait_until(f"the suspension of process {pid}", is_frozen)


def environments(program: str) -> Iterator[bytes]:
    """Yield the environment of each process of a program of this name, as it was when the program began."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            if os.readlink(f"/proc/{pid}/exe").endswith(f"/{program}"):
                yield Path(f"/proc/{pid}/environ").read_bytes()


def tail(log: Path, size: int = 2000) -> str:
    """Return the end of a log file, empty when there is none."""
    return log.read_text(errors="replace")[-size:] if log.exists() else ""


def wait_until(
    what: str,
    ready: Callable[[], bool],
    server: subprocess.Popen[bytes] | None = None,
    log: Path | Callable[[], str] | None = None,
    *,
    pause_s: float = 0.02,
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Call `ready` until it holds. Raises NeverCame with the end of its log, or what that says: at once when the server
    that brings it has ended; else after ten minutes without `progress`, which are for what hangs, not for what is slow.
    """
    waiting.wait_until(
        what,
        ready,
        ended=lambda: waiting.end_of(server) if server else "",
        log=lambda: f"{log}:\n{tail(log)}" if isinstance(log, Path) else log() if log else "",
        say=print,
        pause=lambda: time.sleep(pause_s),
        progress=progress,
    )


def coverage() -> dict[str, str]:
    """Return the variable by which `make coverage` has a child count what it runs; empty elsewhere."""
    name = "COVERAGE_PROCESS_CONFIG"
    return {name: os.environ[name]} if name in os.environ else {}


def start(
    argv: Sequence[str], *, log: Path, env: Mapping[str, str], keep_descendants: bool = False
) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own that the kernel kills when the starting thread dies.

    `keep_descendants` puts a reaper above it, which also ends what it leaves behind: slurmd's jobs.
    """
    reaper = [sys.executable, "-IS", str(REAPER)]
    prefix = reaper if keep_descendants else [program("setpriv"), "--pdeathsig", "KILL"]
    with log.open("ab") as output:
        return subprocess.Popen(
            [*prefix, *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**coverage(), **env},
            cwd=log.parent,
            start_new_session=True,
        )


def stop(server: subprocess.Popen[bytes] | None, *, timeout_s: float = 120) -> None:
    """End a server we started: SIGTERM, then SIGKILL after the time-out. Safe to repeat."""
    if server is None or server.poll() is not None:
        return
    server.terminate()
    try:
        server.wait(timeout_s)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
