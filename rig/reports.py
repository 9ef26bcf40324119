# SPDX-License-Identifier: MIT
"""Reports on the real SLURM: allocations with jobs in slurmdbd, for tests and benchmarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from agent.config.model import Mode
from agent.core.periods import Month
from agent.run import passes
from agent.run import site as sites
from agent.run.results import PassReport
from rig import job_rows
from rig.job_rows import JobRow
from rig.site import configuration, settings_of
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import ComponentSpec, Scenario

COMPONENTS = {
    "cpu": {"measured_unit": "h", "accounting_type": "usage", "label": "CPU", "unit_factor": 60},
    "mem": {"measured_unit": "GB-h", "accounting_type": "usage", "label": "Memory", "unit_factor": 61440},
    "gres/gpu": {"measured_unit": "h", "accounting_type": "usage", "label": "GPU", "unit_factor": 60},
}
UNITS = {name: Decimal(str(component["unit_factor"])) for name, component in COMPONENTS.items()}
CENT = Decimal("0.01")


def scenario(resources: int) -> Scenario:
    specs = (
        ComponentSpec(type=name, name=str(c["label"]), measured_unit="h", billing_type="usage")
        for name, c in COMPONENTS.items()
    )
    return Scenario(
        components=tuple(specs),
        customers=1,
        projects_per_customer=resources // 10,
        allocations_per_project=10,
        members_per_project=0,
        backend_prefix="a_",
    )


class ReportsOnSlurm:
    """A site whose clock is stopped in the month of the jobs, at first an hour before its end."""

    def __init__(self, slurm: SlurmCluster, waldur: SimulatedWaldur, folder: Path, month: Month) -> None:
        self.slurm, self.waldur, self.month = slurm, waldur, month
        backend = {"slurm_bin_path": str(slurm.bin_path), "cluster_name": slurm.cluster}
        keys = {"order_processing_backend": "", "reporting_backend": "slurm"}
        self.path = configuration(waldur, folder, backend=backend, components=COMPONENTS, **keys)
        settings = settings_of(self.path)
        (offering,) = settings.offerings
        self.site = sites.connect(settings, offering, Mode.REPORT)
        last_day = (month.next.first_day - month.first_day).days
        self.at(datetime(month.year, month.month, last_day, 23, tzinfo=UTC))

    def at(self, moment: datetime) -> None:
        """Set the clock, here and in Waldur."""
        self.now = moment
        self.waldur.store.clock.freeze(moment)

    def members(self, users: int) -> dict[str, list[str]]:
        names = (self.waldur.resource(uuid).backend_id for uuid in self.waldur.seed.resource_uuids)
        return {name: [f"u{n}x{user}" for user in range(users)] for n, name in enumerate(names)}

    def fill(self, members: Mapping[str, list[str]], jobs: int) -> list[JobRow]:
        """Put accounts with their users into slurmdbd, and jobs of the month."""
        job_rows.add_accounts(self.slurm, members)
        rows = list(job_rows.random_jobs(members, self.month, jobs))
        job_rows.add(self.slurm, rows)
        return rows

    def report(self) -> PassReport:
        return passes.report_usage(self.site, clock=lambda: self.now)

    def reported(self) -> dict[tuple[str, str], Decimal]:
        """Return the totals in Waldur that are not zero, by account and component."""
        return {
            (self.waldur.resource(row.resource_uuid).backend_id, row.component_type): row.usage
            for row in self.waldur.store.usages
            if row.usage
        }

    def expected(self, rows: Iterable[JobRow]) -> dict[tuple[str, str], Decimal]:
        """Compute the same from the rows: what was requested, while it ran in the month."""
        begin, end = self.month.start(UTC), self.month.next.start(UTC)
        counted: Counter[tuple[str, str]] = Counter()
        for row in rows:
            if row.start is None or row.end is None:
                continue
            inside = min(row.end, end) - max(row.start, begin)
            seconds = max(0, int(inside.total_seconds()))
            counted.update({(row.account, name): seconds * count for name, count in row.requested.items()})
        return {
            (account, name): amount
            for (account, name), count in counted.items()
            if name in UNITS and (amount := (count / (60 * UNITS[name])).quantize(CENT, ROUND_HALF_UP))
        }
