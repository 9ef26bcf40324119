# SPDX-License-Identifier: MIT
"""A site whose cluster is in memory, and counts the jobs that a test lays down as SLURM does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.config.keys import key
from agent.core.errors import BackendError
from agent.core.model import Account, Part, Snapshot
from agent.core.periods import Month
from agent.core.usage import AccountUsage, Usage, UsageQuery, UsageSource
from backends.base import BackendContext, Parsed, Scope
from backends.testing.memory import MemoryBackend
from rig.site import configuration
from simulator.server.waldur import SimulatedWaldur

PRESENT = Month.of(datetime.now(UTC))
LAST = PRESENT.previous
COMPONENT = {"measured_unit": "core-hours", "accounting_type": "limit", "label": "CPU", "unit_factor": 60}


@dataclass(frozen=True)
class Job:
    """`runs`: seconds of each run of a requeued job, the last one last. `crosses`: its last run goes on into the next
    month.
    """

    account: str
    user: str
    asked: str = "cpu=2,mem=4096"
    runs: tuple[int, ...] = (3600,)
    given: str = ""
    crosses: bool = False


class Cluster(MemoryBackend):
    """`forgotten`: cpu-seconds of accounts that the summary lacks. `calls`: what was asked, in order."""

    def __init__(self, state: Snapshot) -> None:
        super().__init__(state=state)
        self.jobs: dict[Month, list[Job]] = {}
        self.not_summed_up: set[Month] = set()
        self.forgotten: Counter[str] = Counter()
        self.no_summary: BackendError | None = None
        self.calls: list[str] = []

    def lay_down(self, month: Month, *jobs: Job, rolled_up: bool = True) -> None:
        self.jobs[month] = list(jobs)
        self.not_summed_up |= set() if rolled_up else {month}

    def have(self, *accounts: str) -> None:
        known = {name: Account(name, "root") for name in accounts}
        self.state = replace(self.state, accounts={"root": Account("root", None), **known})

    def fail(self) -> None:
        self.outage = lambda _: True

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        self.calls.append("observe")
        return super().observe(scope)

    def usage(self, query: UsageQuery) -> Usage:
        self.calls.append("usage")
        self.must_work("usage")
        lines = list(self._lines(query))
        return Usage(query, _summed(lines), len(lines))

    def usage_command(self, query: UsageQuery, account: str) -> str:
        return f"count --of={account} --in={query.month} --what={query.source}"

    def rolled_up(self, query: UsageQuery) -> Usage:
        self.calls.append("rolled_up")
        if self.no_summary:
            raise self.no_summary
        given = replace(query, source=UsageSource.ALLOCATED)
        lines = [] if query.month in self.not_summed_up else list(self._lines(given))
        short = [
            (a, u, {t: n - self.forgotten[a] * (t == "cpu") for t, n in counts.items()})
            for a, u, counts in lines
        ]
        return Usage(given, _summed(short), len(short))

    def _lines(self, query: UsageQuery) -> Iterator[tuple[str, str, dict[str, int]]]:
        for job in self.jobs[query.month]:
            tres = job.given or job.asked if query.source is UsageSource.ALLOCATED else job.asked
            runs = job.runs[-1:] if query.as_reference or query.last_runs_only else job.runs
            seconds = sum(runs) - (job.crosses and query.as_reference)
            pairs = (pair.split("=") for pair in tres.split(","))
            yield job.account, job.user, {name: int(value) * seconds for name, value in pairs}


def _summed(lines: list[tuple[str, str, dict[str, int]]]) -> Mapping[str, AccountUsage]:
    users: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for account, user, counts in lines:
        users[account][user].update(counts)
    return {a: AccountUsage(sum(of_users.values(), Counter()), of_users) for a, of_users in users.items()}


@dataclass(frozen=True)
class ClusterKeys:
    cluster_name: str = key("", "which of the clusters of this process")
    default_account_policy: str = key("", "as SLURM's")


class ClusterPlugin:
    """A backend as a third party installs one; its clusters are those of this process, by name."""

    clusters: dict[str, MemoryBackend] = {}  # noqa: RUF012
    settings = ClusterKeys

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        return Parsed(raw["cluster_name"])

    def missing(self, settings: Any) -> str:
        return ""

    def connect(self, settings: Any, context: BackendContext) -> MemoryBackend:
        return self.clusters[settings]


plugin = ClusterPlugin()


def install(folder: Path) -> None:
    """What a package manager leaves in `folder`, so that the backend `counting` is found there."""
    about = folder / "counting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[waldur_site_cluster.backends]\ncounting = {__name__}:plugin\n")


class World:
    """A cluster, a Waldur with resources, and the configuration that joins them."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        self.waldur = waldur
        self.folder = folder
        self.cluster = Cluster(
            state=Snapshot(
                "larch", tres=frozenset({"cpu", "mem"}), complete=frozenset({Part.ACCOUNTS, Part.TRES})
            )
        )
        plugin.clusters[folder.name] = self.cluster
        self.names = [waldur.resource(uuid).backend_id for uuid in waldur.seed.resource_uuids]
        self.cluster.have(*self.names)

    def configure(self, **offering: Any) -> str:
        keys = {"order_processing_backend": "", "reporting_backend": "counting", **offering}
        return str(
            configuration(self.waldur, self.folder, backend={"cluster_name": self.folder.name}, **keys)
        )
