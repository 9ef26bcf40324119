# SPDX-License-Identifier: MIT
"""The SLURM backend: one object per offering that reads, checks and changes its cluster."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from agent.core.actions import ClusterAction
from agent.core.checks import Check
from agent.core.errors import CommandFailed
from agent.core.model import AllocationSpec, Health, Part, Snapshot
from agent.core.periodic_actions import ResetRawUsage, SetFairshare, SetPeriodicLimits
from agent.core.plans import Outcome
from agent.core.usage import FinalisedUsage
from backends.base import BackendContext, PeriodicKeeper, Scope, UsageCount
from backends.lock import WriteLock
from backends.process import Runner
from backends.slurm import checks, parse, releases
from backends.slurm.apply import Writer
from backends.slurm.canonical import canonical
from backends.slurm.commands import CommandBuilder
from backends.slurm.costs import Costs
from backends.slurm.count import JobCount
from backends.slurm.emulator import EmulatorSettings
from backends.slurm.health import DEFAULT_ACCOUNT, default_account, health
from backends.slurm.jobs import Jobs
from backends.slurm.periodic import PeriodicSettings
from backends.slurm.programs import Programs, output
from backends.slurm.reader import Reader
from backends.slurm.schema import SlurmSettings
from backends.slurm.sreport import Rollup
from backends.slurm.usage import ENDS_KNOWN_AFTER_S, Accounting
from backends.zones import Zones

log = logging.getLogger(__name__)

# One slurmdbd keeps the trees of all clusters, and is what makes them slow.
COSTS_OF = "slurmdbd"
OF_POLICIES = (SetFairshare, SetPeriodicLimits, ResetRawUsage)
# Which SLURM is meant; slurm-emulator stands in for one.
PASSED_ON = ("SLURM_CONF", "SLURM_JWT", "SLURM_EMULATOR_*")


class SlurmBackend:
    """Accounts, associations, limits and QoS by sacctmgr; jobs by squeue and scancel; usage by sacct and sreport."""

    ends_known_after_s = ENDS_KNOWN_AFTER_S

    def __init__(
        self, settings: SlurmSettings, context: BackendContext, lock: WriteLock | None = None
    ) -> None:
        """`lock`: of all writers of this host, where another backend of this process has it already."""
        self._settings = settings
        self._programs = Programs(settings.bin_path)
        self._runner = Runner(
            prefix=settings.command_prefix, keys="slurm_bin_path or command_prefix", passed_on=PASSED_ON
        )
        self._builder = CommandBuilder(settings.cluster_name, lambda: self._reader.seen_cluster)
        jobs = Jobs(self._runner, self._programs, settings.cluster_name)
        self._reader = Reader(
            settings, self._runner, self._programs, jobs, context.seen_cluster, context.tree_columns
        )
        zones = Zones(self._runner)
        self._accounting = Accounting(self._runner, self._programs, settings.cluster_name, zones)
        # Not one lock per cluster: all clusters share slurmdbd, and without cluster_name a cluster has another name.
        self._lock = lock or WriteLock(context.state_dir, "slurmdbd", is_urgent=context.is_urgent)
        self.periodic: PeriodicKeeper = (
            EmulatorSettings(settings.emulator_url, settings.cluster_name)
            if settings.emulator_url
            else PeriodicSettings(self._runner, self._programs, self._lock, settings.cluster_name)
        )
        self._writer = Writer(
            self._runner,
            self._builder,
            self._lock,
            programs=self._programs,
            tree=self._reader.tree,
            members=self._reader.members,
            jobs=jobs,
            costs=Costs(
                lambda: self._reader.seen_rows, context.costs(COSTS_OF), lambda: self._reader.is_placed
            ),
        )
        self.default_account = settings.default_account
        self.executed = self._runner.executed
        self.observe = self._reader.observe
        self.prepare = self._lock.check
        self.usage = self._accounting.usage
        self.usage_command = self._accounting.command
        self.job_uses = self._accounting.job_uses
        self.rolled_up = Rollup(self._runner, self._programs, settings.cluster_name, zones).usage

    @property
    def cluster(self) -> str:
        return self._reader.cluster

    def canonical(self, spec: AllocationSpec, snapshot: Snapshot) -> AllocationSpec:
        return canonical(self._settings, spec, snapshot)

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        return self._writer.apply(actions, self._reader.seen_cluster)

    def expected_s(self, actions: Sequence[ClusterAction]) -> float:
        return self._writer.expected_s(actions, self._reader.seen_cluster)

    def commands(self, actions: Sequence[ClusterAction]) -> Sequence[str]:
        programs = {"sacctmgr": self._programs.sacctmgr_write, "scancel": (self._programs.scancel,)}
        of_policies = [action for action in actions if isinstance(action, OF_POLICIES)]
        actions = [action for action in actions if action not in of_policies]
        files = self._writer.files(actions, self._reader.seen_cluster)
        loaded = {action for file in files for action in file.actions}
        load = shlex.join((*self._programs.sacctmgr_write, "load", "/dev/stdin"))
        return [
            *(f"{load} <<'END'\n{file.text}END" for file in files),
            *(
                shlex.join(self._runner.argv((*programs[batch.program], *batch.argv)))
                for batch in self._builder.batches(action for action in actions if action not in loaded)
            ),
            *(self.periodic.commands(of_policies) if isinstance(self.periodic, PeriodicSettings) else ()),
        ]

    def count(self, finalised: FinalisedUsage | None, now: datetime, *, may_be_large: bool) -> UsageCount:
        return JobCount(
            self._accounting,
            self._runner,
            self._programs,
            self._settings.cluster_name,
            finalised,
            now,
            may_be_large=may_be_large,
        )

    def check(self) -> Health:
        """Check the version, the cluster's name, and the accounts that everything hangs below. Raises BackendError."""
        read = self._programs.sacctmgr_read
        clusters = parse.clusters(output(self._runner.read((*read, "list", "cluster", "format=cluster,rpc"))))
        programs = self._releases()
        found = health(self._settings, programs["slurmdbd"], clusters, self._tree)
        if found.problems:
            return found
        programs["slurmctld"] = releases.of_protocol(clusters.get(self.cluster, 0))
        return replace(found, release=releases.described(programs, self._reader.tree_way))

    def _releases(self) -> dict[str, str]:
        """Return the releases of slurmdbd and sacctmgr. slurm-emulator shows no configuration: it is both."""
        try:
            return releases.versions(output(self._runner.read((self._programs.sacctmgr, "show", "config"))))
        except CommandFailed as error:
            log.debug("sacctmgr does not show slurmdbd's release: %s", error)
        said = output(self._runner.read((self._programs.sacctmgr, "--version")))
        return {"slurmdbd": "".join(said.split()[-1:])}

    def checks(self) -> Mapping[str, Callable[[], Check | datetime]]:
        own = {DEFAULT_ACCOUNT: lambda: default_account(self._settings, self._tree())}
        return {**checks.checks(self._runner, self._programs), **own}

    def _tree(self) -> Snapshot:
        return self.observe(Scope(parts=frozenset({Part.ACCOUNTS})))
