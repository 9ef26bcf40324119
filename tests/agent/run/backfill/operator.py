# SPDX-License-Identifier: MIT
"""A site for whole processes: our own stand-ins for SLURM's programs, a simulated Waldur, and the command line."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import Any

from agent.core.periods import Month
from rig.history import YEAR
from rig.site import configuration
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.usage.world import scenario

DATES = ("-s", "2024-01-01", "-e", "2024-12-31")
HOUR = 3600

# Prints whatever columns it is asked for. Strict: of a month that was not laid down it knows nothing, and fails.
SACCT = """#!/bin/sh
for word; do case $word in --starttime=*) start=${{word#*=}} ;; --format=*) format=${{word#*=}} ;; esac; done
echo "sacct $start" >> {folder}/log
test -z "$WALDUR_STAFF_TOKEN" || {{ echo "a secret came along" >&2; exit 65; }}
exec awk -F '|' -v format="$format" '
  BEGIN {{ count = split(format, names, ",") }}
  {{
    known["Account"] = $1; known["User"] = $2; known["ReqTRES"] = known["AllocTRES"] = $3
    known["State"] = "COMPLETED"; known["ElapsedRaw"] = $4; known["Suspended"] = "00:00:00"
    known["Start"] = known["Submit"] = $5; known["End"] = $5 + $4; known["JobID"] = known["JobIDRaw"] = $6
    line = ""
    for (n = 1; n <= count; n++) {{
      if (!(names[n] in known)) {{ print "no column " names[n] > "/dev/stderr"; exit 64 }}
      line = line (n > 1 ? "|" : "") known[names[n]]
    }}
    print line
  }}' "{folder}/$start"
"""
# As releases without places in the tree.
SACCTMGR = """#!/bin/sh
case "$*" in *,lft,*|*,lineage*) echo "Unknown field" >&2; exit 1 ;; esac
echo "sacctmgr" >> {folder}/log
case "$*" in *"show assoc"*) exec cat {folder}/assoc ;; esac
echo "no answer for $*" >&2
exit 64
"""


def small_waldur() -> SimulatedWaldur:
    """Two allocations."""
    return SimulatedWaldur(
        scenario=scenario(projects_per_customer=2, members_per_project=1, allocations_per_project=1)
    )


class Operator:
    """Each account has used its number of core-hours in January 2024, twice that in February, and so on."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        self.waldur = waldur
        self.folder = folder
        self.programs = folder / "slurm"
        self.programs.mkdir()
        self.names = [waldur.resource(uuid).backend_id for uuid in waldur.seed.resource_uuids]
        for name, text in (("sacct", SACCT), ("sacctmgr", SACCTMGR), ("squeue", ""), ("scancel", "")):
            program = self.programs / name
            program.write_text(text.format(folder=self.programs))
            program.chmod(0o755)
        rows = ["c1|root||||||normal||", "c1|root|root|||||||", *(f"c1|{n}|||root|||||" for n in self.names)]
        self._write("assoc", rows)
        for month in YEAR:
            self.lay_down(month)

    def lay_down(self, month: Month, jobs: list[str] | None = None) -> None:
        """What the cluster has of the month: these jobs, or the usual ones."""
        start = int(month.start(UTC).timestamp()) + HOUR
        usual = [
            f"{name}|u{number}|cpu=1,mem=1024M|{(YEAR.index(month) + 1) * number * HOUR}|{start}|{number}"
            for number, name in enumerate(self.names, 1)
        ]
        self._write(f"{month.first_day}T00:00:00", usual if jobs is None else jobs)

    def configure(self, **offering: Any) -> str:
        backend = {"slurm_bin_path": str(self.programs), "cluster_name": "c1"}
        keys = {"order_processing_backend": "", "reporting_backend": "slurm", **offering}
        return str(configuration(self.waldur, self.folder, backend=backend, **keys))

    @property
    def token(self) -> str:
        return self.waldur.token("staff")

    def token_file(self) -> Path:
        path = self.folder / "staff-token"
        path.touch(mode=0o600)
        path.write_text(f"{self.token}\n")
        return path

    def calls(self) -> list[str]:
        """The programs that were started, sacct with the beginning of its window."""
        log = self.programs / "log"
        return log.read_text().splitlines() if log.exists() else []

    def counted(self) -> list[str]:
        """The months that sacct was asked for, in their order."""
        return [
            call[len("sacct ") : len("sacct 2024-01")] for call in self.calls() if call.startswith("sacct ")
        ]

    def forget(self) -> None:
        """What Waldur has of usage, and what the programs were asked."""
        store = self.waldur.store
        with store.lock:
            for table in (store.user_usages, store.usages):
                for row in list(table):
                    table.remove(row)
        (self.programs / "log").unlink(missing_ok=True)

    def in_waldur(self, month: Month) -> dict[str, str]:
        """Core-hours by account, as Waldur has them."""
        resources = self.waldur.store.resources
        return {
            resources[row.resource_uuid].backend_id: f"{row.usage:.2f}"
            for row in self.waldur.store.usages
            if row.billing_period == month.first_day and row.component_type == "cpu"
        }

    def is_loaded(self, month: Month) -> bool:
        factor = YEAR.index(month) + 1
        return self.in_waldur(month) == {
            n: f"{factor * number:.2f}" for number, n in enumerate(self.names, 1)
        }

    def _write(self, name: str, lines: list[str]) -> None:
        (self.programs / name).write_text("".join(f"{line}\n" for line in lines))
