# SPDX-License-Identifier: MIT
"""Plugin that the entry point `moab` names: it configures, finds and makes the MOAB backend."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agent.core.model import Component
from backends.base import Advice, Backend, BackendContext, FoundCluster, KnownComponents, Parsed
from backends.moab import components, schema
from backends.moab.backend import MoabBackend
from backends.moab.programs import Programs
from backends.moab.schema import MoabSettings


class MoabPlugin:
    settings = MoabSettings
    homes_on_head_node = True
    # The agent before this one made none on MOAB, whatever the file said.
    homes_unasked = False
    advice = Advice(
        product="MOAB",
        limit="deposits",
        unit="credits",
        account_option="msub -A ",
        away="check that MAM runs, and that this host reaches it: `mam-list-accounts --raw --quiet --show Name`",
        unknown_limit="MAM keeps one limit of an account, its deposits: correct the component (docs/moab.md)",
    )
    keys_without_effect: Mapping[str, str] = MappingProxyType(
        {
            "customer_prefix": "MOAB has no level for customers",
            "periodic_limits": "MOAB has no shares, and no limits for a period; what a deposit was given stays "
            "until it is spent",
            "usage_tres_source": "MOAB charges jobs by its own rules, and what it has charged is reported",
        }
    )

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        return schema.parse(raw, path)

    def known_components(self, configured: Mapping[str, Component], path: str) -> KnownComponents:
        return components.known(configured, path)

    def missing(self, settings: MoabSettings) -> str:
        """Return the sentence for a head node without MAM; with a prefix, the prefix's program must be here."""
        prefix = settings.command_prefix
        program = prefix[0] if prefix else Programs(settings.bin_path).path("mam-list-accounts")
        if shutil.which(program):
            return ""
        return (
            f"{program} is not on this host: install the client commands of MOAB Accounting Manager, set "
            "moab_bin_path, or serve this queue on the head node"
        )

    def found_clusters(self) -> Sequence[FoundCluster]:
        program = Programs("").path("mam-list-accounts")
        found = shutil.which(program)
        if found is None:
            return []
        # Services have another PATH than the shell that asks.
        settings = {"cluster_name": schema.DEFAULT_CLUSTER, "moab_bin_path": os.path.dirname(found)}
        return [FoundCluster(schema.DEFAULT_CLUSTER, program, settings, frozenset({components.DEPOSIT}))]

    def connect(self, settings: MoabSettings, context: BackendContext) -> Backend:
        return MoabBackend(settings, context)


plugin = MoabPlugin()
