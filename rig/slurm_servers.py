# SPDX-License-Identifier: MIT
"""The five servers of a test cluster: munged, mariadbd, slurmdbd, slurmctld, slurmd.

Starts them in the order in which they need each other, stops them in the opposite one.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from rig import processes, run_servers
from rig.processes import RealPartError
from rig.slurm_config import SlurmSite
from rig.slurm_root import SlurmRoot

STOP_ORDER = ("slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged")
# So much processor time of MariaDB is progress of who asks it.
DATABASE_WORKS_S = 10.0
DATABASE_LOG_SIZE = "--innodb-log-file-size=16M"


class SlurmServers:
    """The server processes of one site, by program name; they run in a root where one is given."""

    def __init__(self, site: SlurmSite, env: Mapping[str, str], root: SlurmRoot | None = None) -> None:
        self.site = site
        self.env = env
        self.root = root
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def pid(self, server: str) -> int:
        """Return the process id of a running server, such as `slurmdbd`."""
        return self._running[server].pid

    def is_running(self, server: str) -> bool:
        """Return whether a server was started and has not ended."""
        process = self._running.get(server)
        return process is not None and process.poll() is None

    def log(self, server: str) -> Path:
        """Return the log file of a server; what it printed is next to it in a file ending in `.out`."""
        return self.site.folder / f"{server}.log"

    def start(self, *, with_slurmdbd: bool = True) -> None:
        """Start all; slurmd comes last: it asks slurmctld for work once and then sleeps for ten seconds."""
        if self.root:
            self.root.start()
        self._start_munged()
        if with_slurmdbd:
            self._start_mariadbd()
            self.start_slurmdbd()
        self.start_slurmctld()
        self.start_slurmd()

    def stop(self) -> None:
        """Stop all."""
        self.resume("slurmdbd")
        for server in STOP_ORDER:
            self.stop_one(server)
        if self.root:
            self.root.stop()

    def stop_one(self, server: str) -> None:
        """Stop one server. Safe to repeat."""
        self.resume(server)
        processes.stop(self._running.pop(server, None))

    def freeze(self, server: str) -> None:
        """Suspend a server (SIGSTOP): connections are accepted and never answered."""
        processes.freeze(self.pid(server))

    def resume(self, server: str) -> None:
        """Let a frozen server go on; does nothing when it is not running."""
        if self.is_running(server):
            os.kill(self.pid(server), signal.SIGCONT)

    def start_slurmdbd(self) -> None:
        """Start slurmdbd and wait until it listens. 24.11 looks through all associations for each user first, which
        takes MariaDB minutes where there are tens of thousands of both.
        """
        port, database = self.site.slurmdbd_port, self._running["mariadbd"].pid
        self._start(
            "slurmdbd",
            "-D",
            ready=lambda: processes.accepts(port),
            progress=lambda: processes.processor_s(database) // DATABASE_WORKS_S,
        )

    def start_slurmctld(self) -> None:
        """Start slurmctld and wait until it listens. It reads the whole tree from slurmdbd first."""
        port = self.site.slurmctld_port
        self._start("slurmctld", "-D", "-i", ready=lambda: processes.accepts(port))

    def start_slurmd(self) -> None:
        """Start slurmd, which asks slurmctld for work."""
        self._start("slurmd", "-D", "-N", self.site.node, ready=lambda: True, keep=True)

    def _start(
        self,
        server: str,
        *argv: str,
        ready: Callable[[], bool],
        keep: bool = False,
        progress: Callable[[], object] = lambda: None,
    ) -> None:
        printed = self.site.folder / f"{server}.out"
        process = processes.start(
            [*self._program(server), *argv], log=printed, env=self.env, keep_descendants=keep
        )
        self._running[server] = process
        log = self.log(server)
        log = log if log.exists() else printed
        processes.wait_until(server, ready, process, log, progress=progress)

    def _program(self, name: str, folder: str = "/usr/sbin") -> list[str]:
        """Return what starts a program when its arguments follow; `folder` is where Debian has it."""
        if self.root is None:
            return [processes.program(name)]
        return [*self.root.enter(self.site.folder), f"{folder}/{name}"]

    def _start_munged(self) -> None:
        folder = self.site.folder
        socket = folder / "munge.socket"
        self._start(
            "munged",
            *("--foreground", "--force"),
            f"--key-file={folder / 'munge.key'}",
            f"--socket={socket}",
            f"--pid-file={folder / 'munged.pid'}",
            f"--seed-file={folder / 'munge.seed'}",
            f"--log-file={self.log('munged')}",
            ready=socket.exists,
        )

    def _start_mariadbd(self) -> None:
        folder = self.site.folder
        pid = folder / "mariadbd.pid"  # written once it listens
        empty = run_servers.made(
            f"mariadb-{self.root.root.name if self.root else 'own'}", self._make_database
        )
        shutil.copytree(empty / "mariadb", folder / "mariadb")
        self._start(
            "mariadbd",
            *("--no-defaults", "--user=root", "--skip-name-resolve", DATABASE_LOG_SIZE, *_data_in(folder)),
            *("--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci"),
            "--skip-ssl",  # from 11.4 on it would make a key of 4096 bits as it starts, and use it for each command
            *("--skip-networking", f"--socket={self.site.database}", "--max-allowed-packet=1G"),
            f"--init-file={folder / 'database.sql'}",
            f"--pid-file={pid}",
            ready=pid.exists,
        )

    def _make_database(self, folder: Path) -> None:
        """Make a database without anything in it, which takes twice as long as a start with a copy of it."""
        prepared = subprocess.run(
            [
                *self._program("mariadb-install-db", "/usr/bin"),
                *("--no-defaults", "--user=root", "--skip-test-db", DATABASE_LOG_SIZE, *_data_in(folder)),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if prepared.returncode:
            raise RealPartError(f"mariadb-install-db: {prepared.stdout}{prepared.stderr}")


def _data_in(folder: Path) -> tuple[str, str]:
    """A mariadbd that starts removes the temporary tables of all others that it finds where its own are."""
    return f"--datadir={folder / 'mariadb'}", f"--tmpdir={folder}"
