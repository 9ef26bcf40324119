# SPDX-License-Identifier: MIT
"""Sites upgrade SLURM while the agent runs: passes wait, then go on; nothing is planned, and no usage changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from agent.core.errors import BackendUnavailable
from agent.core.model import Snapshot
from agent.core.periods import Month
from agent.core.usage import UsageQuery
from agent.run import passes
from agent.run.results import PassReport
from rig import job_rows
from rig.parts import OWN_GENERATION, SLURM_SUITES, require
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.membership.on_slurm import OnSlurm

pytestmark = [pytest.mark.safety, pytest.mark.real_part]

MONTHS = (Month(2026, 3), Month(2026, 4))
NOW = datetime(2026, 4, 30, 23, tzinfo=UTC)


class Upgraded(OnSlurm):
    """Two accounts of a project, with limits, members and jobs of two months that are reported."""

    def __init__(self, slurm: SlurmCluster, waldur: SimulatedWaldur, folder: Path, **backend: str) -> None:
        super().__init__(slurm, waldur, folder, backend=backend, reporting_backend="slurm")
        waldur.store.clock.freeze(NOW)

    def settle(self) -> None:
        self.allocate_all("one", "two", cpu=10)
        self.converge()
        accounts = {name: sorted(self.members(name)) for name in ("a_one", "a_two")}
        for month in MONTHS:
            job_rows.add(self.slurm, job_rows.random_jobs(accounts, month, 200))
        start = MONTHS[0].start(UTC) + timedelta(days=3)
        paused = (start + timedelta(hours=1), start + timedelta(hours=3))
        row = job_rows.JobRow(
            "a_one", accounts["a_one"][0], start, start + timedelta(hours=9), suspended=(paused,)
        )
        job_rows.add(self.slurm, [row])
        self.report_now()
        assert len(self.reported()) >= 2

    def report_now(self) -> PassReport:
        return passes.report_usage(self.site, clock=lambda: NOW)

    def reported(self) -> dict[tuple[str, str, date], Decimal]:
        return {
            (row.resource_uuid, row.component_type, row.billing_period): row.usage
            for row in self.waldur.store.usages
        }

    def usage(self) -> dict[Month, object]:
        return {month: self.site.backend.usage(UsageQuery(month)) for month in MONTHS}

    def tree(self) -> Snapshot:
        return self.site.backend.observe()

    def waits(self) -> None:
        """Passes meet an outage, and an order waits for its end."""
        (resource,) = self.place("three", cpu=5)
        for report in (self.sync(), self.process_orders()):
            assert isinstance(report.error, BackendUnavailable), report.as_json()
        assert self.resource(resource).state.value == "Creating"


@pytest.fixture
def started() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def cluster_of(generation: str, folder: Path, started: ExitStack) -> SlurmCluster:
    require(f"slurm-{generation}" if generation in SLURM_SUITES else "slurm")
    cluster = SlurmCluster(folder, generation=generation)
    started.callback(cluster.stop)
    cluster.start()
    return cluster


def install(cluster: SlurmCluster, folder: Path) -> None:
    """Put a cluster's configuration and commands where the agent looks for them."""
    for name, place in (("slurm.conf", cluster.folder / "slurm.conf"), ("bin", cluster.bin_path)):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(place)


def test_from_24_11_to_26_05_on_one_database(
    waldur: SimulatedWaldur, tmp_path: Path, started: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("slurm-26.05")
    slurm = cluster_of("24.11", tmp_path / "slurm", started)
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.env[name])
    world = Upgraded(slurm, waldur, tmp_path)
    world.settle()
    tree, usage, reported = world.tree(), world.usage(), world.reported()
    assert any(usage.values())
    slurm.stop_slurm()
    world.waits()
    slurm.start_upgraded("26.05")
    assert (world.tree(), world.usage()) == (tree, usage)
    assert (world.report_now().counted(), world.reported()) == ({}, reported)
    world.processed(done=1)
    world.in_step()
    assert slurm.ask("sacctmgr", "--version").split()[-1].startswith("26.05")
    assert world.members("a_one") == tree.users_of("a_one")
    assert world.members("a_three") == tree.users_of("a_one")


def test_from_22_05_to_24_11_by_a_dump_of_the_tree(
    waldur: SimulatedWaldur, tmp_path: Path, started: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further than SLURM converts at once. The agent's process goes on, and finds paths in place of places."""
    require("slurm-24.11")
    older = cluster_of(OWN_GENERATION, tmp_path / "old", started)
    install(older, tmp_path)
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    world = Upgraded(older, waldur, tmp_path, slurm_bin_path=str(tmp_path / "bin"))
    world.settle()
    tree, reported = world.tree(), world.reported()
    older.ask("sacctmgr", "-i", "dump", "test", f"file={tmp_path / 'tree.cfg'}")
    older.stop_slurm()
    world.waits()
    newer = cluster_of("24.11", tmp_path / "new", started)
    newer.ask("sacctmgr", "-i", "load", f"file={tmp_path / 'tree.cfg'}")
    install(newer, tmp_path)
    world.slurm = newer
    assert world.tree() == replace(tree, tres=world.tree().tres)
    # The jobs are not in a dump: what is reported is not taken back.
    assert "the cluster names no job in 2026-04" in str(world.report_now().notes)
    first = MONTHS[1].start(UTC)
    job = job_rows.JobRow("a_one", min(world.members("a_one")), first, first + timedelta(hours=1))
    job_rows.add(newer, [job])
    assert "usage" in str(world.report_now().held)
    assert world.reported() == reported
    world.processed(done=1)
    world.in_step()
