# SPDX-License-Identifier: MIT
"""The `backend_settings` that the MOAB backend reads. Names of accounts are made above it, from the common keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.config.field_types import name_text
from agent.config.findings import Findings, is_unusable
from agent.config.keys import key
from agent.config.reading import read
from agent.config.schema import ClusterKeys
from agent.core.account_names import fold
from backends.base import Parsed

DEFAULT_CLUSTER = "moab"


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class MoabSettings(ClusterKeys):
    """Settings of one MOAB backend."""

    bin_path: str = key("", "folder of the `mam-*` programs; empty: on PATH", name="moab_bin_path", of=name_text(),
        usual="empty")
    deactivate_when_paused: bool = key(False, "the account is inactive while Waldur has its resource paused: "
        "[Paused](#paused-and-downscaled)")
    deactivate_when_downscaled: bool = key(False, "the same while it is downscaled")
    manage_default_accounts: bool = key(False, "members without a default account get one, leavers another of theirs: "
        "[Members](#members)")
# fmt: on


def parse(raw: Mapping[str, Any], path: str) -> Parsed:
    """Settings, or every reason why not. Unknown keys are reported by the caller: other backends may share the map."""
    findings = Findings()
    settings = read(MoabSettings, raw, path, findings, open_ended=True)
    settings = replace(settings, cluster_name=fold(settings.cluster_name))
    return Parsed(None if is_unusable(findings.problems) else settings, findings.problems)
