# SPDX-License-Identifier: MIT
"""The plugin behind the entry point `slurm`: how the SLURM backend is configured, found and made."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from agent.core.errors import BackendError
from backends.base import Advice, Backend, BackendContext, FoundCluster, Parsed
from backends.slurm import discovery, schema
from backends.slurm.backend import SlurmBackend
from backends.slurm.programs import first_program
from backends.slurm.rest_token import Token
from backends.slurm.schema import SlurmSettings


class SlurmPlugin:
    settings = SlurmSettings
    homes_on_head_node = True
    homes_unasked = True
    advice = Advice(
        product="SLURM",
        limit="GrpTRESMins",
        unit="TRES-minutes",
        submit_limit="GrpSubmitJobs",
        limited="TRES",
        away="check that slurmdbd runs (systemctl status slurmdbd), and that this host reaches it: `sacctmgr show "
        "cluster`",
        unknown_limit="add it to AccountingStorageTRES in slurm.conf and restart slurmctld, or correct the component",
    )

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        return schema.parse(raw, path)

    def missing(self, settings: SlurmSettings) -> str:
        """Return why this host cannot run SLURM's commands, empty where it can; with a prefix, its program counts, and
        with slurmrestd the token.
        """
        if settings.rest:
            try:
                Token(settings.rest).headers()
            except BackendError as error:
                return str(error)
            return ""
        program = first_program(settings.bin_path, settings.command_prefix)
        if shutil.which(program):
            return ""
        return (
            f"{program} is not on this host: install SLURM's client commands, set slurm_bin_path, or serve this "
            "queue on the head node"
        )

    def found_clusters(self) -> Sequence[FoundCluster]:
        return discovery.found_clusters()

    def connect(self, settings: SlurmSettings, context: BackendContext) -> Backend:
        if settings.rest:
            # Here, so that no process of the pool carries it that runs SLURM's commands.
            from backends.slurm.rest.backend import RestSlurmBackend

            return RestSlurmBackend(settings, settings.rest, context)
        return SlurmBackend(settings, context)


plugin = SlurmPlugin()
