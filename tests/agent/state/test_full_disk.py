# SPDX-License-Identifier: MIT
"""A disk that is full under the journal: the work goes on with a warning, or stops before anything is changed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.errors import StateUnwritable
from agent.state import journal
from agent.state.journal import RESERVE_BYTES
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.world import World

pytestmark = pytest.mark.safety

ROOM_BYTES = 2 * RESERVE_BYTES


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own below the journal."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    folder = tmp_path / "state" / "journal"
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path) -> None:
    free = os.statvfs(disk)
    with (disk / "full").open("ab") as file:
        file.write(bytes(free.f_bavail * free.f_frsize))
    assert os.statvfs(disk).f_bavail == 0


def world(waldur: SimulatedWaldur, folder: Path, failures: str) -> World:
    made = World(waldur, folder, policy={"journal_failures": failures})
    made.fill()
    for username in waldur.seed.members[waldur.seed.project_uuids[0]][:1]:
        waldur.people.remove_member(waldur.seed.project_uuids[0], username)
    return made


@pytest.mark.parametrize("failures", ["go_on", "stop"])
def test_the_work_goes_on_or_nothing_is_changed(
    disk: Path, tmp_path: Path, failures: str, caplog: pytest.LogCaptureFixture
) -> None:
    with SimulatedWaldur(scenario=Scenario(allocations_per_project=1, members_per_project=3)) as waldur:
        place = world(waldur, tmp_path, failures)
        assert place.site.state_dir == disk.parent
        before = set(place.cluster.associations)
        fill(disk)
        report = place.sync()
        after = set(place.cluster.associations)
        if failures == "go_on":
            assert report.error is None and after < before
            assert "journal.jsonl cannot be written: No space left on device" in caplog.text
            return
        assert isinstance(report.error, StateUnwritable)
        assert "nothing is changed without it (policy.journal_failures is stop): make room" in str(
            report.error
        )
        assert after == before
        (disk / "full").unlink()
        assert place.sync().error is None
        assert set(place.cluster.associations) < before
        assert list(journal.read(disk.parent))


def test_what_is_under_way_when_the_disk_fills_is_written_down(disk: Path, tmp_path: Path) -> None:
    with SimulatedWaldur(scenario=Scenario(allocations_per_project=1, members_per_project=3)) as waldur:
        place = world(waldur, tmp_path, "stop")
        journal.reserve(disk.parent)
        fill(disk)
        before = len(place.cluster.associations)
        assert place.sync().error is None
        assert len(place.cluster.associations) < before
        assert "remove member" in " ".join(line["action"]["text"] for line in journal.read(disk.parent))
        fill(disk)
        username = waldur.seed.members[waldur.seed.project_uuids[0]][1]
        waldur.people.remove_member(waldur.seed.project_uuids[0], username)
        assert isinstance(place.sync().error, StateUnwritable)
