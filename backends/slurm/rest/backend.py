# SPDX-License-Identifier: MIT
"""The SLURM backend of `execution_mode: rest`: the same cluster, desired state and actions, through slurmrestd."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from agent.core.checks import Check
from agent.core.errors import BackendError
from agent.core.model import AllocationSpec, Health, Snapshot
from backends.base import BackendContext, PeriodicKeeper
from backends.lock import WriteLock
from backends.slurm import releases
from backends.slurm.backend import SlurmBackend
from backends.slurm.canonical import canonical
from backends.slurm.emulator import EmulatorSettings
from backends.slurm.health import DEFAULT_ACCOUNT, default_account, health
from backends.slurm.programs import first_program
from backends.slurm.rest.client import RestClient, items
from backends.slurm.rest.jobs import RestJobs
from backends.slurm.rest.periodic import RestPeriodicSettings
from backends.slurm.rest.reader import RestReader
from backends.slurm.rest.usage import RestAccounting
from backends.slurm.rest.writer import RestWriter
from backends.slurm.rest_access import RestAccess
from backends.slurm.rest_token import CHECK
from backends.slurm.schema import SlurmSettings
from backends.slurm.usage import ENDS_KNOWN_AFTER_S

# Whole trees, and jobs of a month: 20,000 associations have about 30 MB.
ANSWER_BYTES = 64 * 2**20


class RestSlurmBackend:
    """Accounts, associations, limits, QoS, jobs and usage by slurmrestd; by sacctmgr what it cannot do."""

    ends_known_after_s = ENDS_KNOWN_AFTER_S

    def __init__(self, settings: SlurmSettings, access: RestAccess, context: BackendContext) -> None:
        self._settings = settings
        self._needs_token = access.needs_token
        self._client = RestClient(access, answer_bytes=ANSWER_BYTES)
        jobs = RestJobs(self._client)
        self._reader = RestReader(settings, self._client, jobs)
        # The same as of sacctmgr's writers on this host: slurmdbd is one.
        lock = WriteLock(context.state_dir, "slurmdbd", is_urgent=context.is_urgent)
        is_beside = shutil.which(first_program(settings.bin_path, settings.command_prefix)) is not None
        # For what slurmrestd cannot do, where this host has the commands as well.
        self._commands = SlurmBackend(settings, context, lock) if is_beside else None
        writer = RestWriter(self._client, self._reader, jobs, lock, self._commands)
        accounting = RestAccounting(self._client, settings.cluster_name)
        self.periodic: PeriodicKeeper = (
            EmulatorSettings(settings.emulator_url, settings.cluster_name)
            if settings.emulator_url
            else RestPeriodicSettings(self._reader, writer, self._commands)
        )
        self.default_account = settings.default_account
        self.observe = self._reader.observe
        self.prepare = lock.check
        self.warnings = self._client.token.warnings
        self.apply = writer.apply
        self.commands = writer.lines
        self.usage = accounting.usage
        self.usage_command = accounting.command
        self.job_uses = accounting.job_uses

    @property
    def cluster(self) -> str:
        return self._reader.cluster

    @property
    def executed(self) -> Counter[str]:
        """Return the requests sent, and the processes started, so far by kind (`read`, `write`)."""
        return self._client.executed + (self._commands.executed if self._commands else Counter())

    def canonical(self, spec: AllocationSpec, snapshot: Snapshot) -> AllocationSpec:
        return canonical(self._settings, spec, snapshot)

    def check(self) -> Health:
        """Check the version, the cluster's name, and the accounts that everything hangs below. Raises BackendError."""
        document = self._client.read("slurmdb/clusters/")
        clusters = {str(item.get("name")): item.get("rpc_version") for item in items(document, "clusters")}
        found = health(self._settings, _release(document), clusters, self._reader.tree)
        protocol = clusters.get(self.cluster)
        programs = {
            "slurmrestd": found.version,
            "slurmctld": releases.of_protocol(protocol if isinstance(protocol, int) else 0),
        }
        used = f"requests are those of {self._client.version}"
        return replace(
            found,
            warnings=(*found.warnings, *self._beside()),
            release=releases.described(programs, used),
        )

    def _beside(self) -> list[str]:
        """Say what is wrong with the commands of this host, which do what slurmrestd cannot."""
        try:
            problems = self._commands.check().problems if self._commands else ()
        except BackendError as error:
            problems = (str(error),)
        return [f"{words} (by sacctmgr of this host, for what slurmrestd cannot do)" for words in problems]

    def checks(self) -> Mapping[str, Callable[[], Check | datetime]]:
        found: dict[str, Callable[[], Check | datetime]] = {
            DEFAULT_ACCOUNT: lambda: default_account(self._settings, self._reader.tree())
        }
        return {**found, CHECK: self._client.token.check} if self._needs_token else found


def _release(document: Mapping[str, object]) -> str:
    """Return the version of slurmrestd that an answer names, empty where it names none."""
    meta = document.get("meta")
    slurm = meta.get("slurm") or meta.get("Slurm") if isinstance(meta, Mapping) else None
    return str(slurm.get("release", "")) if isinstance(slurm, Mapping) else ""
