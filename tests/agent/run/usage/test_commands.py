# SPDX-License-Identifier: MIT
"""Reports from the command line: run, plan, apply, status, approve, audit, and what an operator reads there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.core.periods import Month
from backends.testing.memory import MemoryBackend
from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli.conftest import Command, command
from tests.agent.cli.usage.world import install, plugin
from tests.agent.run.usage.world import World, scenario

__all__ = ["command"]

Make = Callable[..., World]
NOW = datetime.now(UTC)
THIS, LAST = Month.of(NOW), Month.of(NOW).previous


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A site with the backend of a third party, for commands, which have the time of this day."""
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    waldurs: list[SimulatedWaldur] = []

    def begin(projects: int = 2) -> World:
        waldurs.append(SimulatedWaldur(scenario=scenario(projects_per_customer=projects)).start())
        keys = {"order_processing_backend": "", "reporting_backend": "counting"}
        world = World(waldurs[0], tmp_path, backend={"cluster_name": tmp_path.name}, **keys)
        plugin.clusters[tmp_path.name] = world.backend
        world.now = NOW
        return world

    yield begin
    for waldur in waldurs:
        waldur.stop()


@pytest.fixture
def world(make: Make) -> World:
    made = make()
    made.busy(THIS)
    return made


def test_a_report_of_many_resources_fits_a_table(make: Make, command: Command) -> None:
    world = make(projects=50)
    world.busy(THIS)
    world.ran("a_7", "second", 1, month=THIS)
    said = command("run", "report", "--once", "-c", world.path)
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in said.out.splitlines() if "│" in line
    ]
    assert (said.code, len(rows), len(world.accounts)) == (0, 100, 100)
    (row,) = [row for row in rows if row[2] == "a_7"]
    assert row == [
        world.resource("a_7"), "resource", "a_7", "done", f"{THIS}: cpu 8.00, mem 0.00; cpu of 2 users",
    ]  # fmt: skip
    assert max(map(len, said.out.splitlines())) < 140
    assert said.out.splitlines()[-1].startswith("Test SLURM: 100 resources, 100 in step (100 changed now), ")
    again = command("run", "report", "--once", "-c", world.path)
    assert again.out.startswith("Test SLURM: 100 resources, 100 in step, ")


def test_json_counts_and_names_what_was_reported(world: World, command: Command) -> None:
    world.busy(LAST)
    document = command("run", "report", "--once", "--json", "-c", world.path).document()
    assert document["resources"] == {"done": 4}
    assert document["actions"] == {"report usage": 4, "report usage of users": 4}
    (offering,) = document["offerings"]
    assert [note.partition(" from ")[0] for note in offering["notes"]] == [f"Waldur takes no usage of {LAST}"]
    action = next(a for a in offering["actions"] if a["action"] == "ReportUsage" and a["account"] == "a_2")
    assert (action["month"], action["before"], action["after"]) == (
        str(THIS),
        [["cpu", None], ["mem", None]],
        [["cpu", "2.00"], ["mem", "0.00"]],
    )


def test_notes_are_printed(world: World, command: Command) -> None:
    world.busy(LAST)
    said = command("run", "report", "--once", "-c", world.path)
    assert said.out.splitlines()[-1].startswith(
        f"Test SLURM: Waldur takes no usage of {LAST} from this token"
    )


def test_who_asks_is_shown_months_that_are_left_alone_and_how_they_are_tried_at_once(
    world: World, command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    """It was logged the first time."""
    world.busy(LAST)
    config, tomorrow = ("-c", str(world.path)), NOW + timedelta(hours=23, minutes=59)
    command("run", "report", "--once", *config)
    caplog.clear()
    (note,) = command("run", "report", "--once", "--json", *config).document()["offerings"][0]["notes"]
    assert note.startswith(
        f"{LAST}: Waldur does not take all of it from this token any more, and is not asked again"
    )
    assert datetime.fromisoformat(note.partition(" before ")[2][:16]).replace(tzinfo=UTC) > tomorrow
    assert command("run", "report", "--once", *config).out.splitlines()[-1] == f"Test SLURM: {note}"
    assert str(LAST) not in caplog.text
    (agent,) = world.waldur.store.users.where("username", "agent")
    agent.is_staff = True
    advice = note.rpartition("`forget ")[2].removesuffix("`").split()
    assert "(refused-months)" in command("forget", *advice, *config).out
    command("run", "report", "--once", *config)
    assert world.in_waldur(LAST)["a_1"]["cpu"] == "1.00"


def test_the_plan_is_what_the_report_does(world: World, command: Command) -> None:
    planned = command("plan", "report", "-c", world.path, "--exit-code")
    lines = planned.out.splitlines()
    assert planned.code == 3
    assert f"report usage of a_2 in {THIS}: cpu 2.00, mem 0.00" in lines
    assert f"report usage of users of a_2 in {THIS}, cpu: u2 2.00" in lines
    assert world.in_waldur(THIS) == {}
    command("run", "report", "--once", "-c", world.path)
    nothing = command("plan", "report", "-c", world.path, "--exit-code")
    assert (nothing.code, nothing.out) == (0, "# Test SLURM\nnothing to do\n")


def test_what_cannot_be_reported_is_in_the_plan(world: World, command: Command) -> None:
    world.drop("a_3")
    world.backend.jobs = [job for job in world.backend.jobs if job.account != "a_3"]
    said = command("plan", "report", "-c", world.path)
    assert (
        f"resource {world.resource('a_3')} waiting: account a_3 is not on the cluster: nothing is known of its usage"
        in said.out
    )


def test_a_decrease_is_shown_approved_and_reported(world: World, command: Command) -> None:
    config = ("-c", str(world.path))
    world.ran("a_1", "ann", 5, job="77", month=THIS, live=True)
    command("run", "report", "--once", *config)
    world.forget("77")
    planned = command("plan", "report", *config).out
    assert (
        f"usage of a_1 in {THIS} would get less: cpu from 6.00 to 1.00, cpu of ann from 5.00 to 0.00; job 77"
        in planned
    )
    assert command("run", "report", "--once", *config).code == 0
    (held,) = command("approve", "--json", *config).document()["held"]
    status = command("status", *config).out
    assert f"plan {held['id'][:12]}  Test SLURM, report, account a_1, {THIS}, held for 0 min" in status
    assert "job 77 had counted 18000 s and is gone" in status
    assert command("approve", held["id"], *config).code == 0
    command("run", "report", "--once", *config)
    assert world.in_waldur(THIS)["a_1"]["cpu"] == "1.00"
    assert command("approve", *config).out == "no plan is held\n"
    assert "report: ok 0 min ago: 1 done, 2 actions" in command("status", *config).out


def test_a_plan_in_a_file_stands_while_jobs_go_on(world: World, command: Command, tmp_path: Path) -> None:
    """Figures that grow, and resources that have something to report only now, are no other plan."""
    config, file = ("-c", str(world.path)), tmp_path / "plan.json"
    command("run", "report", "--once", *config)
    world.ran("a_1", "u1", 1, month=THIS)
    offering = world.site.offering.uuid
    assert command("plan", "report", "--offering", offering, "--out", str(file), *config).code == 0
    world.ran("a_1", "u1", 1, month=THIS)
    world.ran("a_2", "u2", 1, month=THIS)
    said = command("apply", str(file), *config)
    assert (said.code, said.out) == (0, "Test SLURM: 4 actions of 4 done\n")
    assert (world.in_waldur(THIS)["a_1"]["cpu"], world.in_waldur(THIS)["a_2"]["cpu"]) == ("3.00", "3.00")
    stale = command("apply", str(file), *config)
    assert stale.code == 1
    assert "Not needed any more: report usage of a_1" in stale.err


def test_a_plan_in_a_file_lets_nothing_get_less(world: World, command: Command, tmp_path: Path) -> None:
    config, file = ("-c", str(world.path)), tmp_path / "plan.json"
    text = world.path.read_text()
    world.path.write_text(f"policy: {{usage_decreases: allow}}\n{text}")
    command("run", "report", "--once", *config)
    job = world.ran("a_1", "u1", 1, month=THIS)
    command("plan", "report", "--offering", world.site.offering.uuid, "--out", str(file), *config)
    world.forget(job)
    world.alter("1", counts={"cpu": 0})
    said = command("apply", str(file), *config)
    assert said.code == 1
    assert "the cluster or Waldur has moved since the plan was made" in said.err
    assert world.in_waldur(THIS)["a_1"]["cpu"] == "1.00"


def test_what_was_reported_on_a_day_is_in_the_journal(world: World, command: Command) -> None:
    config = ("-c", str(world.path))
    command("run", "report", "--once", *config)
    world.ran("a_2", "u2", 1, month=THIS)
    command("run", "report", "--once", *config)
    lines = command("audit", "--account", "a_2", *config).out.splitlines()
    assert [line.partition("done    ")[2].partition("  [")[0] for line in lines] == [
        f"reported usage of a_2 in {THIS}: cpu 2.00, mem 0.00",
        f"reported usage of a_2 in {THIS}: cpu 3.00",
    ]
    everything = command("audit", *config).out.splitlines()
    assert sum(int(line.split(" account")[0].rpartition(" ")[2]) for line in everything) == 5
    last = json.loads(command("audit", "--json", *config).out.splitlines()[-1])
    assert last["action"]["reported"] == {"a_2": {"cpu": "3.00"}}


def test_drift_is_about_the_cluster_not_about_reports(world: World, command: Command) -> None:
    """Usage is reported as it grows: that would always be drift."""
    said = command("drift", "--exit-code", "--json", "-c", world.path)
    assert said.code == 0
    assert "report" not in said.out
    assert world.backend.queries == []


class Mute:
    """A backend that keeps accounts and counts nothing."""

    def __init__(self, backend: MemoryBackend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        if name in ("usage", "usage_command"):
            raise AttributeError(name)
        return getattr(self._backend, name)


def test_a_backend_that_counts_nothing_says_so(make: Make, command: Command) -> None:
    world = make()
    plugin.clusters[world.path.parent.name] = Mute(world.backend)  # type: ignore[assignment]
    said = command("run", "report", "--once", "-c", world.path)
    assert said.code == 1
    assert (
        "offering Test SLURM: its reporting_backend does not report what was used; take one that does"
        in said.err
    )
    assert world.sent() == []
