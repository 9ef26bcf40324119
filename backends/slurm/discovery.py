# SPDX-License-Identifier: MIT
"""The clusters that this host leads to: by sacctmgr, else by a slurmrestd on it."""

from __future__ import annotations

import getpass
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from backends.base import FoundCluster
from backends.process import Runner
from backends.slurm import parse
from backends.slurm.backend import PASSED_ON
from backends.slurm.programs import Programs, output
from backends.slurm.schema import USUAL_FOLDER

# Where packages of SLURM and its own documents put the socket of slurmrestd.
SOCKETS = (Path("/run/slurmrestd/slurmrestd.socket"), Path("/run/slurmrestd.socket"))
# Where slurmrestd listens by itself.
URL = "http://127.0.0.1:6820"


def found_clusters() -> Sequence[FoundCluster]:
    """Return the clusters of slurmdbd, with its TRES. Of slurmrestd alone the name of the cluster is not known: it is
    empty. Raises BackendError.
    """
    programs, runner = Programs(""), Runner(passed_on=PASSED_ON)
    if found := shutil.which(programs.sacctmgr):
        folder = os.path.dirname(found)
        # Services have another PATH than the shell that asks.
        where = {} if folder == USUAL_FOLDER else {"slurm_bin_path": folder}
        read = programs.sacctmgr_read
        clusters = parse.clusters(output(runner.read((*read, "list", "cluster", "format=cluster,rpc"))))
        tres = parse.tres_names(output(runner.read((*read, "list", "tres", "format=type,name"))))
        return [
            FoundCluster(name, programs.sacctmgr, {"cluster_name": name, **where}, tres) for name in clusters
        ]
    socket = next((socket for socket in SOCKETS if socket.is_socket()), None)
    if socket is None and not shutil.which("slurmrestd"):
        return []
    # A socket knows its caller; a port wants a token.
    access = {"url": f"unix://{socket}"} if socket else {"url": URL, "token_env": "SLURM_JWT"}
    rest = {**access, "username": getpass.getuser()}
    return [FoundCluster("", "slurmrestd", {"execution_mode": "rest", "rest_api": rest})]
