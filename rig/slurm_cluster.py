# SPDX-License-Identifier: MIT
"""A real SLURM of one node in a folder of its own: munge, MariaDB, slurmdbd, slurmctld, slurmd.

Everything listens on free loopback ports; commands find it through `SlurmCluster.env` (SLURM_CONF).
Run as a program, `python -m rig.slurm_cluster FOLDER`, it serves until interrupted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import pymysql
from pymysql.constants import ER

from agent.core.errors import SiteAgentError
from agent.host.waiting import GIVE_UP_S
from rig import processes, slurm_reset
from rig.parts import OWN_GENERATION, SLURM_COMMANDS, path_to_slurm
from rig.processes import RealPartError, wait_until
from rig.slurm_config import SlurmSite
from rig.slurm_root import SlurmRoot
from rig.slurm_servers import SlurmServers

NODE = "node1"
OPEN_TRANSACTIONS = "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_rows_locked > 0"
WAITING_WRITES = "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
QUERIES = ("squeue", "sdiag", "sinfo", "sacct")


class SlurmCluster:
    """One SLURM cluster in a new folder, of one of `parts.GENERATIONS`; or one without a slurmdbd, `beside` another
    cluster whose slurmdbd is as new or newer and keeps the accounts of both.
    """

    def __init__(
        self,
        folder: Path,
        cluster: str = "test",
        generation: str = OWN_GENERATION,
        beside: SlurmCluster | None = None,
    ) -> None:
        self.folder = folder
        self.cluster = cluster
        self.generation = generation
        self.root = SlurmRoot(generation, folder) if generation != OWN_GENERATION else None
        self._beside = beside
        self.site = SlurmSite(folder, cluster, NODE, *processes.free_ports(3))
        if beside:
            self.site = replace(self.site, slurmdbd_port=beside.site.slurmdbd_port)
        servers_env = {**self.env, "MYSQL_UNIX_PORT": str(self.site.database)}
        self.servers = SlurmServers(self.site, servers_env, self.root)
        self._built_in: slurm_reset.Records | None = None
        self._database: pymysql.Connection | None = None
        self._asking = threading.Lock()

    @property
    def env(self) -> dict[str, str]:
        """Environment for programs that are to speak to this cluster, and for its servers, whose zone is UTC."""
        own = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SACCT"))}
        own["PATH"] = f"{self.root.bin}:{path_to_slurm()}" if self.root else path_to_slurm()
        return {**own, "SLURM_CONF": str(self.folder / "slurm.conf"), "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    @property
    def bin_path(self) -> Path:
        """Folder of the SLURM commands."""
        return self.root.bin if self.root else Path(processes.program("sacctmgr")).parent

    @property
    def refused_reads(self) -> int:
        """How many reads of the tree are refused before a host knows the release: it asks for places first, which
        are gone since 23.11.
        """
        return int(self.root is not None)

    def start(self) -> None:
        """Start every server and wait until the node takes jobs; raises NeverCame, leaving none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        for name in ("slurmctld", "slurmd"):
            (self.folder / name).mkdir()
        munge_key = (self._beside.folder / "munge.key").read_text() if self._beside else ""
        self.site.write(with_tokens=self.root is not None, munge_key=munge_key)
        if self.root:
            # Newer releases ask for control groups where nothing is said, and a test has none.
            (self.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        try:
            self.servers.start(with_slurmdbd=self._beside is None)
            self.wait_idle()
        except SiteAgentError:
            self.stop()
            raise
        if self._beside is None:
            self._built_in = slurm_reset.keep(self)

    def stop(self) -> None:
        """Stop every server."""
        if self._database:
            self._database.close()
            self._database = None
        self.servers.stop()

    def start_slurmdbd(self) -> None:
        """End an outage: start slurmdbd and wait until it sends slurmctld what changes. For that it asks slurmctld to
        register, just before it listens itself. A slurmctld that is too quick is refused, and does not try again for
        minutes; one that was not reached loses its port in the database, and is asked no more. Neither knows a new
        account: slurmctld is started again, by which it registers.
        """
        if not self.servers.is_running("slurmctld"):
            self.servers.start_slurmdbd()
            return
        own = f"WHERE name='{self.cluster}'"
        self.sql(f"UPDATE cluster_table SET mod_time=0 {own}")
        log = self.servers.log("slurmctld")
        logged = log.stat().st_size

        def is_registered() -> bool:
            return bool(self.sql(f"SELECT 1 FROM cluster_table {own} AND control_port > 0 AND mod_time > 0"))

        def is_lost() -> bool:
            is_unreached = bool(self.sql(f"SELECT 1 FROM cluster_table {own} AND control_port = 0"))
            return is_unreached or "DBD_REGISTER_CTLD" in log.read_text()[logged:]

        self.servers.start_slurmdbd()
        wait_until("slurmctld registers with slurmdbd", lambda: is_registered() or is_lost(), log=log)
        if not is_registered():
            self.stop_slurmctld()
            self.start_slurmctld()
            wait_until("slurmctld registers with slurmdbd as it starts", is_registered, log=log)

    def stop_slurmdbd(self) -> None:
        """Stop slurmdbd: sacctmgr and sacct are refused, slurmctld goes on with what it knows."""
        self.servers.stop_one("slurmdbd")

    def start_slurmctld(self) -> None:
        """End an outage: start slurmctld and wait until it listens."""
        self.servers.start_slurmctld()

    def stop_slurmctld(self) -> None:
        """Stop slurmctld: squeue, scancel, scontrol and sbatch are refused, slurmdbd goes on."""
        self.servers.stop_one("slurmctld")

    def freeze_slurmdbd(self) -> None:
        """Suspend slurmdbd (SIGSTOP): connections are accepted and never answered."""
        self.servers.freeze("slurmdbd")

    def resume_slurmdbd(self) -> None:
        """Let a frozen slurmdbd go on; does nothing when it is not running."""
        self.servers.resume("slurmdbd")

    def restart(self) -> None:
        """Start slurmdbd and slurmctld again, which read the database anew, and wait until the node takes jobs."""
        for server in ("slurmctld", "slurmdbd"):
            self.servers.stop_one(server)
        self.servers.start_slurmdbd()
        self.servers.start_slurmctld()
        self.wait_idle()

    def stop_slurm(self) -> None:
        """Stop SLURM's own servers, as for an upgrade: database and munge go on."""
        for server in ("slurmd", "slurmctld", "slurmdbd"):
            self.servers.stop_one(server)

    def start_upgraded(self, generation: str) -> None:
        """Start a newer generation, once SLURM was stopped: on the same database, with the same names of commands."""
        older, self.root = self.root, SlurmRoot(generation, self.folder)
        self.generation = generation
        self.root.start()
        self.servers.root = self.root
        # What goes on inside keeps its own root.
        if older:
            older.stop()
        self.servers.start_slurmdbd()
        self.servers.start_slurmctld()
        self.servers.start_slurmd()
        self.wait_idle()

    def run(
        self, *argv: str, timeout_s: float = GIVE_UP_S, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command against this cluster, in its folder; the exit code is the caller's to judge."""
        name = argv[0]
        is_inside = self.root is not None and name in SLURM_COMMANDS
        program = str(self.bin_path / name) if is_inside else processes.program(name)
        return subprocess.run(
            [program, *argv[1:]],
            input=stdin,
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def ask(self, *argv: str, timeout_s: float = GIVE_UP_S, stdin: str = "") -> str:
        """Return the output of a command that must succeed; raises RealPartError with its output. A query that loses
        its connection is asked once more: slurmctld 22.05 drops one now and then on a busy machine. A change of the
        tree that came by such a connection is lost, and a job's account unknown until slurmctld is started again.
        """
        done = self.run(*argv, timeout_s=timeout_s, stdin=stdin)
        if argv[0] in QUERIES and "Broken pipe" in done.stderr:
            done = self.run(*argv, timeout_s=timeout_s)
        if argv[0] == "sbatch" and "Invalid account" in done.stderr:
            lost = processes.tail(self.servers.log("slurmdbd"))
            warnings.warn(f"slurmctld is started again: {done.stderr}{lost}", stacklevel=2)
            self.stop_slurmctld()
            self.start_slurmctld()
            done = self.run(*argv, timeout_s=timeout_s)
        if done.returncode:
            raise RealPartError(f"{' '.join(argv)}: code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def change(self, *commands: str) -> None:
        """Run commands by one sacctmgr, such as `add account name=a`; raises RealPartError when any is refused.

        A command takes 5 ms of processor time then, and 10 ms by a sacctmgr of its own.
        """
        self.ask("sacctmgr", "-i", stdin="\n".join(commands) + "\n")

    def sql(self, *statements: str) -> str:
        """Run SQL statements in the accounting database; return their rows, separated by tabs. Raises pymysql's errors.

        Each is a transaction of its own. On one connection: a client takes 25 ms of processor time to start, and tests
        ask some 5,000 times.
        """
        rows: list[tuple[object, ...]] = []
        with self._asking:
            if self._database is None:
                socket = str(self.site.database)
                self._database = pymysql.connect(
                    unix_socket=socket,
                    user="root",
                    database="slurm_acct_db",
                    autocommit=True,
                    conv={},
                )
            with self._database.cursor() as cursor:
                for statement in statements:
                    _execute(cursor, statement)
                    rows += cursor.fetchall()
        return "".join("\t".join(_text(value) for value in row) + "\n" for row in rows)

    def reset(self) -> None:
        """Bring the cluster back to its start: no jobs, only the built-in account, user and QoS."""
        if self._built_in is None:
            raise RealPartError("the cluster was never started")
        self.resume_slurmdbd()
        if not self.servers.is_running("slurmdbd"):
            self.start_slurmdbd()
        if not self.servers.is_running("slurmctld"):
            self.start_slurmctld()
        wait_until("the end of commands left at work", lambda: not self._is_at_work())
        slurm_reset.reset(self, self._built_in)

    def _is_at_work(self) -> bool:
        """Return whether a sacctmgr of this cluster runs, as a worker that is killed leaves one, or slurmdbd has
        a connection beside that of slurmctld: slurmrestd's, or one of a command that was killed and is still carried
        out.
        """
        own = f"SLURM_CONF={self.env['SLURM_CONF']}".encode()
        if any(own in variables.split(b"\0") for variables in processes.environments("sacctmgr")):
            return True
        return len(processes.connections(self.site.slurmdbd_port)) > 1

    def wait_idle(self) -> None:
        """Wait until the node is idle and no job is left, completing ones included."""

        def idle() -> bool:
            state = self.run("sinfo", "-h", "-N", "-o", "%t").stdout.split()
            return bool(state) and set(state) == {"idle"} and not self.run("squeue", "-h").stdout

        wait_until("an idle node", idle, pause_s=0.2)


def _execute(cursor: pymysql.cursors.Cursor, statement: str) -> None:
    """Run a statement, and again each time that it loses a deadlock with slurmdbd: it is rolled back then."""
    while True:
        try:
            cursor.execute(statement)
            return
        except pymysql.OperationalError as failure:
            if failure.args[0] != ER.LOCK_DEADLOCK:
                raise


def _text(value: str | bytes | None) -> str:
    if value is None:
        return "NULL"
    return value.decode() if isinstance(value, bytes) else value


def main(folder: str) -> int:
    """Serve a cluster in a new folder until SIGINT or SIGTERM; prints the SLURM_CONF to use."""
    cluster = SlurmCluster(Path(folder))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cluster.start()
        print(f"SLURM_CONF={cluster.env['SLURM_CONF']}", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print("stopping", flush=True)
    finally:
        cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
