# SPDX-License-Identifier: MIT
"""What is wrong with a cluster that answers: its name, and the accounts that everything hangs below."""

from __future__ import annotations

from collections.abc import Callable, Collection

from agent.core.model import Health, Snapshot
from backends.slurm.schema import SlurmSettings


def health(
    settings: SlurmSettings, version: str, clusters: Collection[str], tree: Callable[[], Snapshot]
) -> Health:
    """Return what was found; `clusters` are those that slurmdbd knows. Raises BackendError."""
    cluster = settings.cluster_name or "default"
    if settings.cluster_name and settings.cluster_name not in clusters:
        known = ", ".join(clusters) or "no cluster"
        wrong = f"cluster_name is {settings.cluster_name!r}; slurmdbd knows {known}"
        return Health(version, cluster, (wrong,))
    snapshot = tree()
    warnings = []
    if not settings.cluster_name:
        warnings.append("cluster_name is not set; with more than one cluster in slurmdbd it must be")
    problems = [
        f"{key} {account!r} has no account on cluster {cluster}: create it first"
        for key in ("root_account", "default_account", "parent_account")
        if (account := getattr(settings, key)) and account not in snapshot.accounts
    ]
    return Health(version, cluster, tuple(problems), tuple(warnings))
