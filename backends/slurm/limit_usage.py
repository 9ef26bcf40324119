# SPDX-License-Identifier: MIT
"""What counts against the limits of accounts: slurmctld's own figures, by which it ends jobs.

`scontrol show assoc_mgr` (22.05) shows `GrpTRESMins=cpu=600(42)`, the limit and what is used, in TRES-minutes.
Running jobs are counted in every PriorityCalcPeriod. sacct would add up jobs that a reset or a decay has forgotten.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping

from agent.core.errors import BackendError
from backends.process import Runner
from backends.slurm.programs import Programs, answer

log = logging.getLogger(__name__)

FIELD = re.compile(r"(?:^| )(ClusterName|Account|UserName|Partition|GrpTRESMins)=(\S*)")
TRES = re.compile(r"([^=,\s]+)=(?:N|\d+)\((\d+)\)")

Use = Mapping[str, Mapping[str, int]]


def read(runner: Runner, programs: Programs, cluster: str, accounts: Collection[str]) -> Use | None:
    """Use by account and TRES. An account that slurmctld does not show is left out; None where nobody can tell."""
    where = (f"--clusters={cluster}",) if cluster else ()
    names = f"accounts={','.join(sorted(accounts))}"
    command = (programs.scontrol, "--oneliner", *where, "show", "assoc_mgr", names, "flags=assoc")
    try:
        return parse(answer(runner.read(command)), cluster)
    except BackendError as error:
        log.warning("what is used of the limits of %s cannot be read: %s", names, error)
        return None


def parse(stdout: str, cluster: str = "") -> Use:
    """The rows of accounts; what their users use counts in them already. Rows of other clusters are left out."""
    found: dict[str, Mapping[str, int]] = {}
    for line in stdout.splitlines():
        row = dict(FIELD.findall(line))
        if not row.get("Account") or row.get("UserName") or row.get("Partition"):
            continue
        if cluster and row.get("ClusterName", "").lower() != cluster.lower():
            continue
        found[row["Account"]] = {tres: int(used) for tres, used in TRES.findall(row.get("GrpTRESMins", ""))}
    return found
