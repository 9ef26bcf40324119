# SPDX-License-Identifier: MIT
"""Membership on the real SLURM: a site with both modes, and what sacctmgr says of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.run import site as sites
from agent.run.site import Site
from rig.site import configuration, settings_of
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tests.world import AnyWorld


class OnSlurm(AnyWorld):
    """An offering whose cluster is the real SLURM."""

    def __init__(self, slurm: SlurmCluster, waldur: SimulatedWaldur, folder: Path, **options: Any) -> None:
        self.slurm, self.waldur = slurm, waldur
        # Some of the users are the machine's own: none would get a home on it.
        backend = {"enable_user_homedir_account_creation": False, **options.pop("backend", {})}
        keys = {"membership_sync_backend": "slurm", **options}
        self.path = configuration(waldur, folder, backend=backend, **keys)
        settings = settings_of(self.path)
        (offering,) = settings.offerings
        self.orders = sites.connect(settings, offering, Mode.ORDER_PROCESS)
        self.site = sites.connect(settings, offering, Mode.MEMBERSHIP_SYNC)

    def site_for(self, mode: Mode) -> Site:
        return self.orders if mode is Mode.ORDER_PROCESS else self.site

    def converge(self) -> None:
        for _ in range(3):
            report = self.sync()
            assert not report.failed, report.as_json()
            if report.effort.commands["write"] == 0:
                return
        raise AssertionError(self.changes(report))

    def in_step(self) -> None:
        """One more pass writes nothing on the cluster."""
        report = self.sync()
        assert not report.failed, report.as_json()
        assert report.effort.commands["write"] == 0, self.changes(report)

    def members(self, account: str) -> set[str]:
        rows = self.assoc("user", account)
        return {row for row in rows if row}

    def assoc(self, columns: str, account: str) -> list[str]:
        """Rows of `show assoc` of one account, own values only."""
        words = ("show", "assoc", "where", f"account={account}", f"format={columns}", "WOPLimits")
        return self.slurm.ask("sacctmgr", "-nP", *words).splitlines()

    def defaults(self) -> dict[str, str]:
        rows = self.slurm.ask("sacctmgr", "-nP", "show", "user", "format=user,defaultaccount").splitlines()
        return dict(row.split("|") for row in rows)


Make = Callable[..., OnSlurm]


TEAM = {"ffrost5", "ggran6", "hholt7"}


OTHER_TEAM = {"iilves8", "jjansen9", "akask10"}


BY_QOS = {"qos_default": "normal", "qos_downscaled": "slow", "qos_paused": "stop"}


@pytest.fixture
def make(slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path) -> Make:
    def made(**options: Any) -> OnSlurm:
        return OnSlurm(slurm, waldur, tmp_path, **options)

    return made


def add_qos(slurm: SlurmCluster, *names: str) -> None:
    slurm.change(f"add qos name={','.join(names)}")
