# SPDX-License-Identifier: MIT
"""A site with one allocation of two members on a real SLURM, and the commands that look at it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rig.site import configuration
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli.conftest import Command, command, waldur
from tests.agent.cli.operator_site import Ended

__all__ = ("command", "waldur")

ACCOUNT = "a_one"


@dataclass(frozen=True)
class Site:
    """`members`: usernames on the cluster, the first is the project's manager."""

    waldur: SimulatedWaldur
    slurm: SlurmCluster
    folder: Path
    command: Command
    resource: str
    members: list[str]

    @property
    def config(self) -> str:
        return str(self.folder / "site.yaml")

    def run(self, *words: str) -> Ended:
        return self.command(*words, "-c", self.config)

    def sacctmgr(self, *words: str) -> str:
        return self.slurm.ask("sacctmgr", "-i", "-Q", *words)

    def configure(self, *, backend: dict[str, Any] | None = None, **offering: Any) -> None:
        """Write the configuration anew."""
        backend = {"cluster_name": "test", "enable_user_homedir_account_creation": False, **(backend or {})}
        keys = {"membership_sync_backend": "slurm", **offering}
        configuration(self.waldur, self.folder, backend=backend, **keys)


@pytest.fixture
def site(
    waldur: SimulatedWaldur,
    slurm: SlurmCluster,
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> Site:
    monkeypatch.setenv("WALDUR_SITE_AGENT_BROKER_URL", "redis://127.0.0.1:1/0")
    return made_site(waldur, slurm, tmp_path, command)


@pytest.fixture
def site_without_orders(
    waldur: SimulatedWaldur,
    slurm_cluster: SlurmCluster,
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> Site:
    """For what is asked of Waldur: the cluster has what the last test left."""
    monkeypatch.setenv("WALDUR_SITE_AGENT_BROKER_URL", "redis://127.0.0.1:1/0")
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm_cluster.env[name])
    site = Site(waldur, slurm_cluster, tmp_path, command, resource="", members=[])
    site.configure()
    return site


def made_site(waldur: SimulatedWaldur, slurm: SlurmCluster, folder: Path, command: Command) -> Site:
    """Return a site after its first order."""
    project = waldur.seed.project_uuids[0]
    order = waldur.place_create_order(project, "One", limits={"cpu": 10})
    names = [waldur.people.account(person) for person in waldur.seed.members[project]]
    site = Site(
        waldur,
        slurm,
        folder,
        command,
        waldur.order(order).resource_uuid,
        [user.username for user in names if user],
    )
    site.configure()
    assert site.run("run", "order_process", "--once").code == 0
    return site
