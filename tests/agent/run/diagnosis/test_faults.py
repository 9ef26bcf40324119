# SPDX-License-Identifier: MIT
"""The rules of what is wrong with a site, over pictures of it: the same for `doctor`, the page and `healthz`."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.cli import status, status_page
from agent.config.model import Mode, Settings
from agent.core.checks import CheckState
from agent.host.heartbeat import Heartbeat, LastHeartbeat, Part
from agent.run.diagnosis import faults, figures, heartbeats, picture
from agent.run.diagnosis.picture import LATE_AFTER, BrokerStatus, Picture, QueueStatus
from agent.state import passes, pauses, unreported_usage
from agent.state.held_plans import HeldPlans, HeldRow
from agent.state.store import stamp
from agent.state.unreported_usage import UnreportedUsage
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur

MODE = Mode.ORDER_PROCESS
WELL = BrokerStatus("redis://here", queues=(QueueStatus("site.demo", 0, ("one@here",)),), beats=("here:1",))


@dataclass(frozen=True)
class Site:
    """A site of one offering and mode."""

    settings: Settings

    def look(self, ago: timedelta = timedelta(), broker: BrokerStatus = WELL, **entry: object) -> Picture:
        """Return its picture when its last pass ended so long ago, with this in its record."""
        (offering,) = self.settings.offerings
        ended = stamp(datetime.now(UTC) - ago)
        record = {"ended": ended, "result": "ok", "last_good": ended, **entry}
        passes.add(self.settings.state_dir, offering.uuid, MODE, record)
        return picture.of_site(self.settings, self.settings.offerings, broker)


@pytest.fixture
def site(waldur: SimulatedWaldur, tmp_path: Path) -> Site:
    return Site(settings_of(configuration(waldur, tmp_path)))


def test_a_site_where_all_is_well_needs_no_operator(site: Site) -> None:
    found = site.look()
    found_states = {(each.name, each.state) for each in faults.of_site(found)}
    assert found_states == {(name, CheckState.OK) for name in ("workers", "beat", "passes")}
    assert status_page.needs(found) == []


def test_a_queue_whose_length_the_broker_does_not_say_is_not_called_empty(site: Site) -> None:
    found = site.look(broker=replace(WELL, queues=(QueueStatus("site.demo", None),)))
    said = "no worker serves the queue site.demo (an unknown number waiting)"
    assert [each.found for each in faults.of_site(found) if each.name == "workers"] == [said]
    assert "  queue site.demo: an unknown number of tasks waiting, NO WORKER SERVES IT" in status.lines(found)


def test_a_pass_is_late_when_its_period_and_the_allowance_are_over(site: Site) -> None:
    due = timedelta(minutes=site.settings.periods.minutes_of(MODE)) + LATE_AFTER
    assert status_page.needs(site.look(due - timedelta(seconds=30))) == []
    (need,) = status_page.needs(site.look(due + timedelta(seconds=30)))
    assert (need.name, need.state) == ("passes", CheckState.PROBLEM)
    assert need.found == "order_process is late: the next pass was due 2 min ago"


def test_a_pass_that_failed_and_is_late_is_both(site: Site) -> None:
    found = site.look(timedelta(days=1), result="ended by an error", failures=["slurmdbd is away"])
    first, second = status_page.needs(found)
    assert "ended as `ended by an error`: slurmdbd is away" in first.found
    assert "is late" in second.found


def test_what_waits_for_a_person_is_named_with_the_command_that_ends_it(site: Site) -> None:
    state_dir, (offering,) = site.settings.state_dir, site.settings.offerings
    pauses.pause(state_dir, offering, by="ann", reason="move")
    plan = HeldRow("abcdef0123456789", "all", "too many", "demo", {"k": "x"})
    HeldPlans(state_dir, offering, MODE).hold(plan)
    unreported_usage.add(
        state_dir, offering.uuid, UnreportedUsage("r", "a_one", "2026-10", "cpu 1 -> 2", "closed")
    )
    order = {"order": "e" * 32, "type": "Create", "result": "stuck", "message": "no right"}
    found = site.look(orders=[{**order, "since": "2026-11-25T00:00:00Z"}])
    needs = {need.name: need for need in status_page.needs(found)}
    assert list(needs) == ["pause", "held plans", "stuck orders", "last usage"]
    assert needs["pause"].remedy == f"`pause {offering.uuid} --off` ends the pause"
    assert needs["held plans"].remedy == f"`approve {plan.short_id}` releases it"
    assert needs["stuck orders"].found.endswith("no right")
    assert f"`forget unreported-usage --offering {offering.uuid}`" in needs["last usage"].remedy
    assert {need.about for need in needs.values()} == {"Test SLURM"}


@pytest.mark.parametrize(
    ("broker", "faulty"),
    [
        (BrokerStatus(problem="it is away"), {"broker"}),
        (BrokerStatus(problem="none is needed", alone=("report",)), set()),
        (replace(WELL, queues=(QueueStatus("site.demo", 3),)), {"workers"}),
        (replace(WELL, beats=()), {"beat"}),
        (replace(WELL, beats=None), set()),
    ],
)
def test_the_broker_and_what_runs_behind_it(site: Site, broker: BrokerStatus, faulty: set[str]) -> None:
    assert {need.name for need in status_page.needs(site.look(broker=broker))} == faulty


def test_a_bridge_is_missed_only_where_events_are_wanted(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    settings = settings_of(configuration(waldur, tmp_path, stomp_enabled=True))
    (offering,) = settings.offerings
    (need,) = status_page.needs(picture.of_site(settings, settings.offerings, WELL))
    assert (need.name, need.state) == ("bridge", CheckState.WARNING)
    listening = replace(WELL, covered={offering.uuid: ("order_process",)})
    assert status_page.needs(picture.of_site(settings, settings.offerings, listening)) == []
    assert status_page.needs(picture.of_site(settings, settings.offerings, replace(WELL, beats=None))) == []


def test_a_part_is_silent_after_the_age_that_is_asked_for(tmp_path: Path) -> None:
    last = LastHeartbeat(Part.WORKER, "one@here", "here", 7, 300.0, tmp_path / "worker.json")
    (well,) = heartbeats.of_heartbeats([last], 300.0)
    (silent,) = heartbeats.of_heartbeats([replace(last, age_s=301.0)], 300.0)
    assert (well.state, silent.state) == (CheckState.OK, CheckState.PROBLEM)
    assert silent.name == "heartbeat of worker one@here"
    assert str(last.path) in silent.remedy


def test_heartbeats_of_this_host_are_in_the_picture_and_all_that_shows_it(site: Site) -> None:
    state_dir = site.settings.state_dir
    Heartbeat(state_dir, Part.BEAT).renew(now_s=0)
    silent = Heartbeat(state_dir, Part.WORKER, "one@here")
    silent.renew(now_s=0)
    written_s = time.time() - 1000
    os.utime(silent.path, (written_s, written_s))
    found = site.look()
    beat, worker = found.heartbeats
    assert worker.age_s is not None and worker.age_s >= 1000
    (need,) = status_page.needs(found)
    assert (need.name, need.state) == ("heartbeat of worker one@here", CheckState.PROBLEM)
    shown = [line for line in status.lines(found) if line.startswith("on this host")]
    assert [line.partition("; ")[0].rpartition(" (")[0] or line for line in shown] == [
        f"on this host: heartbeat of beat: ok, {beat.age_s:.0f} s ago",
        f"on this host: heartbeat of worker one@here: the last one is {worker.age_s:.0f} s old",
    ]
    assert [each["part"] for each in found.as_json()["heartbeats"]] == ["beat", "worker"]
    samples = {(each.metric, each.labels): each.value for each in figures.of_picture(found)}
    sent_samples = figures.of_heartbeats(found.heartbeats)
    samples |= {(each.metric, each.labels): each.value for each in sent_samples}
    sent = samples["part_heartbeat_timestamp_seconds", (Part.WORKER, "one@here")]
    assert written_s <= sent <= time.time() - worker.age_s
    assert samples["faults", ("", "heartbeat of worker one@here", CheckState.PROBLEM)] == 1
