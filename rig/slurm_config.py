# SPDX-License-Identifier: MIT
"""Configuration files of the real SLURM used in tests: one node, accounting with limits enforced.

Times that only make tests wait (kill wait, scheduling pauses) are short; nothing that changes what
sacctmgr, slurmdbd or MariaDB answer is touched: MariaDB commits to disk as it does by default.
"""

import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

NODE_CPUS = 16
NODE_MEMORY_MB = 16_000
NODE_GPUS = 4
PARTITIONS = ("main", "gpu", "Big")

SLURM_CONF = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={slurmctld_port}
SlurmdPort={slurmd_port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}/slurmctld
SlurmdSpoolDir={folder}/slurmd
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PriorityType=priority/multifactor
PriorityDecayHalfLife=0
PriorityUsageResetPeriod=NONE
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={slurmdbd_port}
AccountingStoragePass={folder}/munge.socket
AccountingStorageEnforce=associations,limits,qos,safe
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
PropagateResourceLimits=NONE
ReturnToService=2
KillWait=2
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 \\
  CPUs={cpus} RealMemory={memory_mb} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES DefaultTime=1 MaxTime=INFINITE DefMemPerCPU=100 State=UP
PartitionName=gpu Nodes=ALL DefaultTime=1 MaxTime=INFINITE DefMemPerCPU=100 State=UP
PartitionName=Big Nodes=ALL DefaultTime=1 MaxTime=INFINITE DefMemPerCPU=100 State=UP
"""

SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={slurmdbd_port}
SlurmUser=root
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass={database_password}
StorageLoc=slurm_acct_db
"""

# In both files; slurmrestd sends the tokens that it is given on to the servers, which check them by the key.
TOKENS = """\
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
"""

DATABASE_SQL = """\
CREATE DATABASE slurm_acct_db;
CREATE USER slurm@localhost IDENTIFIED BY '{database_password}';
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
"""


@dataclass(frozen=True)
class SlurmSite:
    """Values of the configuration files of one cluster."""

    folder: Path
    cluster: str
    node: str
    slurmctld_port: int
    slurmd_port: int
    slurmdbd_port: int

    @property
    def database(self) -> Path:
        """Socket of MariaDB; slurmdbd is told of it by `MYSQL_UNIX_PORT`."""
        return self.folder / "mariadb.socket"

    def write(self, *, with_tokens: bool, munge_key: str = "") -> None:
        """Write every configuration file, the keys and the database's first statements. `with_tokens`: the servers
        take JWT beside munge, which Debian 12 has no plugin for. `munge_key`: that of clusters which it speaks with.
        """
        values = {
            **vars(self),
            "host": socket.gethostname().partition(".")[0],
            "cpus": NODE_CPUS,
            "memory_mb": NODE_MEMORY_MB,
            "gpus": NODE_GPUS,
            "database_password": secrets.token_hex(16),
        }
        slurm, slurmdbd = SLURM_CONF, SLURMDBD_CONF
        if with_tokens:
            slurm, slurmdbd = slurm + TOKENS, slurmdbd + TOKENS
            self._write("jwt.key", secrets.token_hex(32), mode=0o400)
        self._write("slurm.conf", slurm.format_map(values), mode=0o644)
        for gpu in range(NODE_GPUS):
            self._write(f"gpu{gpu}", "", mode=0o644)
        gpus = f"{self.folder}/gpu[0-{NODE_GPUS - 1}]"
        self._write("gres.conf", f"AutoDetect=off\nName=gpu File={gpus}\n", mode=0o644)
        self._write("slurmdbd.conf", slurmdbd.format_map(values), mode=0o600)
        self._write("database.sql", DATABASE_SQL.format_map(values), mode=0o600)
        self._write("munge.key", munge_key or secrets.token_hex(64), mode=0o400)

    def _write(self, name: str, text: str, *, mode: int) -> None:
        descriptor = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(descriptor, "w") as file:
            file.write(text)
