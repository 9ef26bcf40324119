# SPDX-License-Identifier: MIT
"""History on the real SLURM: accounts with jobs in many months, and programs that count how often they are started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from agent.config.secret import Secret
from agent.core.periods import Month, months_between
from agent.run.backfill import staff
from agent.run.backfill.month import LoadOptions
from agent.run.backfill.runs import InProcess, Loader, Run, RunRecord
from rig import job_rows
from rig.job_rows import JobRow
from rig.recorded_progress import RecordedProgress
from rig.reports import COMPONENTS, UNITS
from rig.site import configuration, settings_of
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur

YEAR = months_between(Month(2024, 1).first_day, Month(2024, 12).first_day)
CENT = Decimal("0.01")
# TRES-seconds by month, account and component.
Counts = Counter[tuple[Month, str, str]]


class HistoryOnSlurm:
    """`fill` puts jobs into slurmdbd, `load` is a run over the months."""

    def __init__(self, slurm: SlurmCluster, waldur: SimulatedWaldur, folder: Path) -> None:
        self.slurm, self.waldur, self.folder = slurm, waldur, folder
        self.log = folder / "started"
        backend = {"slurm_bin_path": str(self._programs()), "cluster_name": slurm.cluster}
        keys = {"order_processing_backend": "", "reporting_backend": "slurm"}
        self.path = configuration(waldur, folder, backend=backend, components=COMPONENTS, **keys)
        settings = settings_of(self.path)
        self.site = staff.connect(settings, settings.offerings[0], Secret(waldur.token("staff")))
        self.progress = RecordedProgress()

    def _programs(self) -> Path:
        folder = self.folder / "programs"
        folder.mkdir()
        for real in (self.slurm.bin_path / name for name in ("sacct", "sacctmgr", "squeue", "scancel")):
            counting = folder / real.name
            counting.write_text(f'#!/bin/sh\necho {real.name} >> {self.log}\nexec {real} "$@"\n')
            counting.chmod(0o755)
        return folder

    def fill(self, months: Sequence[Month], users: int, jobs: int) -> Counts:
        """Put `jobs` jobs into each month. Return the TRES-seconds that Waldur should hold in the end."""
        names = [self.waldur.resource(uuid).backend_id for uuid in self.waldur.seed.resource_uuids]
        members = {name: [f"u{n}x{user}" for user in range(users)] for n, name in enumerate(names)}
        job_rows.add_accounts(self.slurm, members)
        rows = [row for month in months for row in job_rows.random_jobs(members, month, jobs)]
        job_rows.add(self.slurm, rows)
        counted: Counts = Counter()
        for month in months:
            for row in rows:
                counted.update(_part(row, month))
        return counted

    def load(self, months: Sequence[Month]) -> None:
        run = Run(self.site.offering.uuid, tuple(months), LoadOptions())
        record = RunRecord(run, self.site.state_dir)
        here = InProcess(self.site, run.options, self.progress, sleep=self.progress.sleep)
        Loader(record, self.progress, here).load(run.months)

    def started(self) -> Counter[str]:
        return Counter(self.log.read_text().split()) if self.log.exists() else Counter()

    def reported(self) -> dict[tuple[Month, str, str], Decimal]:
        """Return the totals in Waldur that are not zero."""
        return {
            (
                Month.of(row.billing_period),
                self.waldur.resource(row.resource_uuid).backend_id,
                row.component_type,
            ): row.usage
            for row in self.waldur.store.usages
            if row.usage
        }


def in_units(counted: Counts) -> dict[tuple[Month, str, str], Decimal]:
    found = {}
    for (month, account, name), count in counted.items():
        amount = (count / (60 * UNITS[name])).quantize(CENT, ROUND_HALF_UP) if name in UNITS else None
        if amount:
            found[month, account, name] = amount
    return found


def _part(row: JobRow, month: Month) -> Counts:
    """Return the TRES-seconds that a job requested while it ran in the month."""
    assert row.start is not None and row.end is not None
    inside = min(row.end, month.next.start(UTC)) - max(row.start, month.start(UTC))
    seconds = max(0, int(inside.total_seconds()))
    return Counter({(month, row.account, name): seconds * n for name, n in row.requested.items()})
