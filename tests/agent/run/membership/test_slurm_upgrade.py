# SPDX-License-Identifier: MIT
"""Sites upgrade SLURM while a worker and beat run: tasks wait, then go on; nothing is planned, and no usage changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.model import Snapshot
from agent.core.periods import Month, last_months
from agent.core.usage import UsageQuery
from agent.state import journal, passes
from agent.state.passes import Figure
from rig import job_rows
from rig.celery_process import CeleryProcess, environment
from rig.parts import OWN_GENERATION, SLURM_SUITES, require
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.membership.on_slurm import OnSlurm
from tests.world import waiting

pytestmark = [pytest.mark.safety, pytest.mark.real_part]

MODES = (Mode.ORDER_PROCESS, Mode.MEMBERSHIP_SYNC, Mode.REPORT)
OUTCOMES = ("ok", "failed", "error")
PERIODS = {f"WALDUR_SITE_AGENT_{mode.name}_PERIOD_MINUTES": "0.05" for mode in MODES}
# The months before are reported, too, if another one begins meanwhile.
REPORTED = "reporting_periods: 4\n"


class Upgraded(OnSlurm):
    """Two accounts of a project, with limits, members and reported jobs of two months, that a worker and beat serve."""

    def __init__(
        self, slurm: SlurmCluster, waldur: SimulatedWaldur, folder: Path, started: ExitStack, **backend: str
    ) -> None:
        super().__init__(slurm, waldur, folder, backend=backend, reporting_backend="slurm")
        with self.path.open("a") as settings:
            settings.write(REPORTED)
        self.months = last_months(Month.of(datetime.now(UTC)), 3)[:2]
        redis = RedisServer(folder / "redis")
        started.callback(redis.stop)
        redis.start()
        env = environment(self.path, redis.url, PERIODS)
        self.worker, beat = (CeleryProcess(role, folder / f"{role}.log", env) for role in ("worker", "beat"))
        started.callback(lambda: print(self.worker.output()))
        for process in (self.worker, beat):
            started.callback(process.end)
            process.start()
        self._settle()

    def _settle(self) -> None:
        self.done(self.place("one", "two", cpu=10))
        accounts = {name: sorted(self.members(name)) for name in ("a_one", "a_two")}
        for month in self.months:
            job_rows.add(self.slurm, job_rows.random_jobs(accounts, month, 200))
        start = self.months[0].start(UTC) + timedelta(days=3)
        paused = (start + timedelta(hours=1), start + timedelta(hours=3))
        row = job_rows.JobRow(
            "a_one", accounts["a_one"][0], start, start + timedelta(hours=9), suspended=(paused,)
        )
        job_rows.add(self.slurm, [row])
        wait_until("both months of both are reported", lambda: len(self.reported()) >= 4)
        self.passes_end("ok")

    def done(self, resources: list[str]) -> None:
        """Wait until they are there, with their people."""
        for uuid in resources:
            wait_until("the order is done", lambda uuid=uuid: self.resource(uuid).state.value == "OK")
            account = self.resource(uuid).backend_id
            wait_until("its people are in", lambda name=account: len(self.members(name)) == 3)

    def passes_end(self, *outcomes: str) -> None:
        """Wait until a pass of each mode that began after this moment has ended so, or any way."""
        before = self._passes(outcomes)
        wait_until(
            "two passes of each mode", lambda: all(self._passes(outcomes)[m] >= before[m] + 2 for m in MODES)
        )

    def _passes(self, outcomes: tuple[str, ...]) -> Counter[str]:
        found: Counter[str] = Counter()
        for each in passes.counts(self.site.state_dir, self.site.offering.uuid):
            if (each.figure, each.kind) == (Figure.PASSES, "all") and each.outcome in (outcomes or OUTCOMES):
                found[each.mode] += int(each.value)
        return found

    def last_pass(self, mode: Mode) -> dict[str, Any]:
        return passes.last(self.site.state_dir, self.site.offering.uuid, mode)[0]

    def meets_the_outage(self) -> list[str]:
        """An order comes, and passes of each mode end by the outage. Return the order's resource."""
        resources = self.place("three", cpu=10)
        self.passes_end()
        for mode in MODES:
            assert "the accounting database does not answer" in str(self.last_pass(mode)["failures"])
        assert {self.resource(uuid).state.value for uuid in resources} == {"Creating"}
        return resources

    def reported(self) -> dict[tuple[str, str, date], Decimal]:
        """What Waldur has of the months before."""
        days = {month.first_day for month in self.months}
        return {
            (row.resource_uuid, row.component_type, row.billing_period): row.usage
            for row in self.waldur.store.usages
            if row.billing_period in days and row.usage
        }

    def usage(self) -> dict[Month, object]:
        return {month: self.site.backend.usage(UsageQuery(month)) for month in self.months}

    def tree(self) -> Snapshot:
        """The cluster without what came in the outage."""
        found = self.site.backend.observe()
        return replace(
            found,
            accounts={name: account for name, account in found.accounts.items() if name != "a_three"},
            associations={each for each in found.associations if each.account != "a_three"},
        )

    def changes_of_others(self) -> list[str]:
        """What passes have changed, or tried to, but for what came in the outage."""
        texts = [str(line["action"]["text"]) for line in journal.read(self.site.state_dir)]
        return [text for text in texts if "three" not in text]


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
    world = Upgraded(slurm, waldur, tmp_path, started)
    tree, usage, reported, changes = world.tree(), world.usage(), world.reported(), world.changes_of_others()
    assert all(usage.values())
    slurm.stop_slurm()
    ordered = world.meets_the_outage()
    slurm.start_upgraded("26.05")
    world.done(ordered)
    world.passes_end("ok")
    assert slurm.ask("sacctmgr", "--version").split()[-1].startswith("26.05")
    assert (world.tree(), world.usage(), world.reported()) == (tree, usage, reported)
    assert world.members("a_three") == tree.users_of("a_one")
    assert world.changes_of_others() == changes
    assert not any(waiting(world.site, mode) for mode in MODES)


def test_from_22_05_to_24_11_by_a_dump_of_the_tree(
    waldur: SimulatedWaldur, tmp_path: Path, started: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further than SLURM converts at once. The agent's processes go on, and find paths in place of places."""
    require("slurm-24.11")
    older = cluster_of(OWN_GENERATION, tmp_path / "old", started)
    install(older, tmp_path)
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    world = Upgraded(older, waldur, tmp_path, started, slurm_bin_path=str(tmp_path / "bin"))
    tree, reported, changes = world.tree(), world.reported(), world.changes_of_others()
    older.ask("sacctmgr", "-i", "dump", "test", f"file={tmp_path / 'tree.cfg'}")
    older.stop_slurm()
    ordered = world.meets_the_outage()
    newer = cluster_of("24.11", tmp_path / "new", started)
    newer.ask("sacctmgr", "-i", "load", f"file={tmp_path / 'tree.cfg'}")
    install(newer, tmp_path)
    world.slurm = newer
    world.done(ordered)
    world.passes_end("ok")
    now = world.tree()
    assert now == replace(tree, tres=now.tres)
    # The jobs are not in a dump: what is reported is not taken back.
    last = world.months[-1]
    assert f"the cluster names no job in {last}" in str(world.last_pass(Mode.REPORT)["notes"])
    first = last.start(UTC)
    job = job_rows.JobRow("a_one", min(world.members("a_one")), first, first + timedelta(hours=1))
    job_rows.add(newer, [job])
    wait_until("lower usage is held", lambda: bool(waiting(world.site, Mode.REPORT)))
    assert (world.reported(), world.changes_of_others()) == (reported, changes)
    assert not any(waiting(world.site, mode) for mode in MODES if mode is not Mode.REPORT)
