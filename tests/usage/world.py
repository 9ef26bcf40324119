# SPDX-License-Identifier: MIT
"""A site whose SLURM programs are ours: they print the jobs that a test lays down, and log how they were asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.core.periods import Month
from agent.sim.server import SimulatedWaldur
from tests.site import configuration

# Strict: what it was not laid down for it does not answer.
SACCT = r"""#!/bin/sh
echo "sacct $*" >> {folder}/log
test -e {folder}/outage && {{ echo "sacct: error: Problem talking to the database: Connection refused" >&2; exit 1; }}
runs=last
for word; do case $word in
  --starttime=*) start=${{word#*=}} ;;
  --format=*) format=${{word#*=}} ;;
  --duplicates) runs=all ;;
esac; done
tres=${{format#Account,User,}}
exec cat "{folder}/sacct-${{start%%T*}}-${{tres%%,*}}-$runs"
"""
SREPORT = r"""#!/bin/sh
echo "sreport $*" >> {folder}/log
for word; do case $word in start=*) start=${{word#*=}} ;; esac; done
exec cat "{folder}/sreport-$start"
"""
SACCTMGR = r"""#!/bin/sh
echo "sacctmgr $*" >> {folder}/log
case "$*" in
  *"show assoc"*) exec cat {folder}/assoc ;;
  *"list tres"*) printf 'cpu|\nmem|\ngres|gpu\n' ;;
  *) echo "no answer for $*" >&2; exit 64 ;;
esac
"""
PRESENT = Month.of(datetime.now(UTC))
LAST = PRESENT.previous


@dataclass(frozen=True)
class Job:
    """`runs`: seconds of each run of a requeued job, the last one last. `crosses`: it runs on into the next month."""

    account: str
    user: str
    asked: str = "cpu=2,mem=4096M"
    runs: tuple[int, ...] = (3600,)
    given: str = ""
    crosses: bool = False


class Cluster:
    """`lay_down` says what happened in a month; a month that was not laid down has no answer at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name, text in (("sacct", SACCT), ("sreport", SREPORT), ("sacctmgr", SACCTMGR)):
            program = folder / name
            program.write_text(text.format(folder=folder))
            program.chmod(0o755)
        self.accounts()

    def accounts(self, *names: str) -> None:
        rows = ["c1|root||||||normal||", "c1|root|root|||||||", *(f"c1|{n}|||root|||||" for n in names)]
        (self.folder / "assoc").write_text("".join(f"{row}\n" for row in rows))

    def lay_down(self, month: Month, *jobs: Job, rolled_up: bool = True) -> None:
        for tres in ("ReqTRES", "AllocTRES"):
            for runs in ("all", "last"):
                lines = "".join(_sacct(jobs, tres, runs))
                (self.folder / f"sacct-{month.first_day}-{tres}-{runs}").write_text(lines)
        rows = "".join(_sreport(jobs)) if rolled_up else ""
        (self.folder / f"sreport-{month.first_day}").write_text(rows)

    def fail(self) -> None:
        (self.folder / "outage").touch()

    def calls(self) -> list[str]:
        """The programs that were started, in their order."""
        log = self.folder / "log"
        return [line.partition(" ")[0] for line in log.read_text().splitlines()] if log.exists() else []


def _sacct(jobs: Sequence[Job], tres: str, runs: str) -> list[str]:
    lines = []
    for number, job in enumerate(jobs, 1):
        counted = job.given or job.asked if tres == "AllocTRES" else job.asked
        seconds = job.runs if runs == "all" else job.runs[-1:]
        cut = 1 if job.crosses and runs == "last" else 0
        lines += [
            f"{job.account}|{job.user}|{counted}|COMPLETED|{s - cut}|00:00:00|{number}\n" for s in seconds
        ]
    return lines


def _sreport(jobs: Sequence[Job]) -> list[str]:
    lines = []
    for job in jobs:
        for pair in (job.given or job.asked).split(","):
            name, _, value = pair.rpartition("=")
            amount = int(value.removesuffix("M")) * sum(job.runs)
            lines += [f"{job.account}||{name}|{amount}\n", f"{job.account}|{job.user}|{name}|{amount}\n"]
    return lines


class World:
    """A cluster, a Waldur with resources, and the configuration that joins them."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        self.waldur = waldur
        self.folder = folder
        self.cluster = Cluster(folder / "slurm")
        self.names = [waldur.resource(uuid).backend_id for uuid in waldur.seed.resource_uuids]
        self.cluster.accounts(*self.names)

    def configure(self, **offering: Any) -> str:
        backend = {"slurm_bin_path": str(self.cluster.folder), "cluster_name": "c1"}
        keys = {"order_processing_backend": "", "reporting_backend": "slurm", **offering}
        return str(configuration(self.waldur, self.folder, backend=backend, **keys))
