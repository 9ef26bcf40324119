# SPDX-License-Identifier: MIT
"""The SLURM backend of `execution_mode: rest`: the same cluster, desired state and actions, through slurmrestd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from agent.core.actions import ClusterAction
from agent.core.checks import Check
from agent.core.model import AllocationSpec, Health, Snapshot
from agent.core.plans import Outcome
from agent.core.usage import JobUse, Usage, UsageQuery
from backends.base import BackendContext, PeriodicKeeper, Scope
from backends.lock import WriteLock
from backends.slurm.canonical import canonical
from backends.slurm.emulator import EmulatorSettings
from backends.slurm.health import DEFAULT_ACCOUNT, default_account, health
from backends.slurm.rest.access import RestAccess
from backends.slurm.rest.client import RestClient, items
from backends.slurm.rest.jobs import RestJobs
from backends.slurm.rest.periodic import RestPeriodicSettings
from backends.slurm.rest.reader import RestReader
from backends.slurm.rest.usage import RestAccounting
from backends.slurm.rest.writer import RestWriter
from backends.slurm.schema import SlurmSettings
from backends.slurm.usage import ENDS_KNOWN_AFTER_S

# Whole trees, and jobs of a month: 20,000 associations have about 30 MB.
ANSWER_BYTES = 64 * 2**20


class RestSlurmBackend:
    """Accounts, associations, limits, QoS, jobs and usage by slurmrestd; no process is started."""

    ends_known_after_s = ENDS_KNOWN_AFTER_S

    def __init__(self, settings: SlurmSettings, access: RestAccess, context: BackendContext) -> None:
        self._settings = settings
        self._client = RestClient(access, answer_bytes=ANSWER_BYTES)
        jobs = RestJobs(self._client)
        self._reader = RestReader(settings, self._client, jobs)
        # The same as of sacctmgr's writers on this host: slurmdbd is one.
        self._lock = WriteLock(context.state_dir, "slurmdbd", is_urgent=context.is_urgent)
        self._writer = RestWriter(self._client, self._reader, jobs, self._lock)
        self._accounting = RestAccounting(self._client, settings.cluster_name)
        self._periodic: PeriodicKeeper = RestPeriodicSettings(self._reader, self._writer)
        if settings.emulator_url:
            self._periodic = EmulatorSettings(settings.emulator_url, settings.cluster_name)

    @property
    def cluster(self) -> str:
        return self._reader.cluster

    @property
    def default_account(self) -> str:
        return self._settings.default_account

    @property
    def executed(self) -> Counter[str]:
        """Requests sent so far by kind (`read`, `write`)."""
        return self._client.executed

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        return self._reader.observe(scope)

    def canonical(self, spec: AllocationSpec, snapshot: Snapshot) -> AllocationSpec:
        return canonical(self._settings, spec, snapshot)

    def prepare(self) -> None:
        self._lock.check()

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        return self._writer.apply(actions)

    def commands(self, actions: Sequence[ClusterAction]) -> Sequence[str]:
        return self._writer.lines(actions)

    def usage(self, query: UsageQuery) -> Usage:
        return self._accounting.usage(query)

    def usage_command(self, query: UsageQuery, account: str) -> str:
        return self._accounting.command(query, account)

    def job_uses(self, query: UsageQuery, ids: Sequence[str]) -> Sequence[JobUse]:
        return self._accounting.job_uses(query, ids)

    @property
    def periodic(self) -> PeriodicKeeper:
        return self._periodic

    def check(self) -> Health:
        """Check the version, the cluster's name, and the accounts that everything hangs below. Raises BackendError."""
        document = self._client.read("slurmdb/clusters/")
        names = [str(item.get("name")) for item in items(document, "clusters")]
        return health(self._settings, _release(document), names, self._reader.tree)

    def checks(self) -> Mapping[str, Callable[[], Check | datetime]]:
        return {DEFAULT_ACCOUNT: lambda: default_account(self._settings, self._reader.tree())}


def _release(document: Mapping[str, object]) -> str:
    """Return the version that an answer tells of itself, empty where it tells none."""
    meta = document.get("meta")
    slurm = meta.get("slurm") or meta.get("Slurm") if isinstance(meta, Mapping) else None
    return str(slurm.get("release", "")) if isinstance(slurm, Mapping) else ""
