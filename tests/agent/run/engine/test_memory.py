# SPDX-License-Identifier: MIT
"""The memory of the gate through the loop: who shares a budget, and what clocks, copies and broken files do to it.

Workers and offerings of one head node share the budgets of a cluster. Two head nodes have a state file each, so that a
cluster that two of them write to may lose twice a budget, and never more.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.config.secret import Secret
from agent.core.actions import ClusterAction
from agent.core.errors import StateError
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from agent.core.policy import Budget, Cost
from agent.core.scope import PassScope
from agent.run import gate, passes
from agent.run.results import PassReport
from agent.run.site import Site
from agent.state import empty_answers, held_plans, hints, journal, pauses, store
from backends.base import Scope
from backends.slurm.schema import SlurmSettings
from backends.testing.memory import MemoryBackend
from simulator.server.waldur import SimulatedWaldur
from simulator.world import seed
from simulator.world.seed import Scenario
from tests.agent.run.engine.worlds import charged, restarted
from tests.agent.state.conftest import OTHER_USER, foreign_folder, needs_root
from tests.agent.state.obstacles import block, damage, unblock
from tests.world import World, approve, held

__all__ = ["foreign_folder"]

HOUR, DAY = 3, 5
TEAMS = 12


class SharedBackend(MemoryBackend):
    """One writer at a time, as on a real cluster. Whoever asks for jobs is about to decide: `together` waits there."""

    together: threading.Barrier | None = None

    def __init__(self, settings: SlurmSettings, state: Snapshot) -> None:
        super().__init__(settings, state)
        self._one = threading.Lock()

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        if scope.jobs_of and self.together is not None:
            self.together.wait(600)
        return super().observe(scope)

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        with self._one:
            return super().apply(actions)


class Teams(World):
    """Projects with one allocation and one member each, all in step; `HOUR` accounts may be emptied in an hour."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        super().__init__(waldur, folder)
        self.fill()
        self.backend = SharedBackend(self.backend.settings, self.backend.state)
        rules = self.site.offering.policy
        budgets = {**rules.budgets, Cost.ACCOUNTS_EMPTIED: Budget(HOUR, DAY)}
        rules = replace(rules, budgets=budgets, max_removed_accounts=HOUR)
        offering = replace(self.site.offering, policy=rules)
        self.site = replace(self.site, offering=offering, backend=self.backend)
        self.converge()
        self.before = self.cluster.associations

    def emptied(self) -> int:
        return len({a.account for a in self.before} - {a.account for a in self.cluster.associations})

    def gone(self, number: int) -> str:
        """The team of a project has left; its uuid."""
        project = self.waldur.seed.project_uuids[number]
        for username in self.waldur.seed.members[project]:
            self.waldur.people.remove_member(project, username)
        return project


def event(site: Site, project: str) -> PassReport:
    """A pass over one project, as an event brings it."""
    return passes.sync_members(site, scope=PassScope.of(project_uuid=project))


@pytest.fixture
def teams(tmp_path: Path) -> Iterator[Teams]:
    scenario = Scenario(projects_per_customer=TEAMS, members_per_project=1, allocations_per_project=1)
    with SimulatedWaldur(scenario=scenario) as waldur:
        yield Teams(waldur, tmp_path)


# Who shares a budget ----------------------------------------------------------------------------------


def test_two_workers_that_decide_at_the_same_moment_share_one_budget(teams: Teams) -> None:
    projects = [teams.gone(number) for number in range(10)]
    teams.backend.together = threading.Barrier(2)

    def work(mine: Sequence[str]) -> list[PassReport]:
        site = restarted(teams.site)
        return [event(site, project) for project in mine]

    with ThreadPoolExecutor(2) as pool:
        reports = [report for part in pool.map(work, (projects[::2], projects[1::2])) for report in part]
    assert [report.error for report in reports] == [None] * 10
    assert (teams.emptied(), sum(bool(report.held) for report in reports)) == (HOUR, 10 - HOUR)
    assert len({c for c in charged(teams.site) if c.cost is Cost.ACCOUNTS_EMPTIED}) == HOUR


def test_two_workers_on_the_same_project_pay_once(teams: Teams) -> None:
    project = teams.gone(0)
    teams.backend.together = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: event(restarted(teams.site), project), range(2)))
    teams.backend.together = None
    assert teams.emptied() == 1
    for number in range(1, HOUR):
        assert event(teams.site, teams.gone(number)).held == ()
    assert event(teams.site, teams.gone(HOUR)).held


def test_two_offerings_of_a_cluster_share_its_budget(teams: Teams) -> None:
    second = second_offering(teams)
    first = replace(teams.site, neighbours={second.site.offering.uuid: "the second"})
    for site in (first, second.site, first):
        assert passes.sync_members(site).error is None
    reports = [event(first, teams.gone(number)) for number in range(HOUR - 1)]
    for project, username in second.members.items():
        teams.waldur.people.remove_member(project, username)
        reports.append(event(second.site, project))
    held = [bool(report.held) for report in reports]
    assert held == [False] * HOUR + [True] * (len(second.members) - 1)
    assert f"after {HOUR} within the last hour" in reports[-1].held[0].reason


@dataclass
class SecondOffering:
    """An offering on the same cluster; the only member by project."""

    site: Site
    members: dict[str, str]


def second_offering(teams: Teams) -> SecondOffering:
    """Of another provider, with four teams like ours, all in step."""
    waldur, own = teams.waldur, teams.site.offering
    scenario = Scenario(
        agent_username="second",
        backend_prefix="a_second_",
        projects_per_customer=4,
        members_per_project=1,
        allocations_per_project=1,
    )
    made = seed.populate(waldur.store, scenario)
    teams.fill()
    access = replace(own.access, token=Secret(waldur.token("second")))
    offering = replace(own, uuid=made.offering_uuid, name="the second", access=access)
    site = replace(teams.site, offering=offering, neighbours={own.uuid: own.name})
    return SecondOffering(restarted(site), {project: team[0] for project, team in made.members.items()})


def test_two_head_nodes_have_a_budget_each(teams: Teams, tmp_path: Path) -> None:
    """At most twice the budget: what one of them has spent the other does not know."""
    other = restarted(replace(teams.site, state_dir=tmp_path / "other"))
    passes.sync_members(other)
    projects = [teams.gone(number) for number in range(TEAMS - 1)]
    for number, project in enumerate(projects):
        event((teams.site, other)[number % 2], project)
    assert teams.emptied() == 2 * HOUR


# Clocks -----------------------------------------------------------------------------------------------


class Clock(datetime):
    """What the site takes for the present."""

    ahead = timedelta()

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + cls.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Clock]]:
    for module in (gate, empty_answers, held_plans, hints, pauses, store, journal):
        monkeypatch.setattr(module, "datetime", Clock)
    yield Clock
    Clock.ahead = timedelta()


def at(teams: Teams, **ahead: float) -> None:
    """It is so much later now than it really is; what was written as the present has that time."""
    stamp(teams)
    Clock.ahead = timedelta(**ahead)


def stamp(teams: Teams) -> None:
    path = teams.site.state_dir / store.JOURNAL
    if path.exists():
        moment_s = Clock.now(UTC).timestamp()
        os.utime(path, (moment_s, moment_s))


def emptied_by_events(teams: Teams, numbers: range) -> int:
    """How many of these teams' accounts are emptied when an event names each."""
    before = teams.emptied()
    for number in numbers:
        event(teams.site, teams.gone(number))
        stamp(teams)
    return teams.emptied() - before


def test_a_clock_that_is_set_back_an_hour_neither_frees_nor_blocks(teams: Teams, clock: type[Clock]) -> None:
    at(teams, hours=1)
    assert emptied_by_events(teams, range(4)) == HOUR
    at(teams, hours=0)
    assert emptied_by_events(teams, range(4, 6)) == 0, "what was spent in the future is spent now"
    at(teams, minutes=59)
    assert emptied_by_events(teams, range(6, 7)) == 0
    at(teams, minutes=61)
    assert emptied_by_events(teams, range(7, 8)) == 1, "an hour later, as ever"


def test_a_clock_that_is_set_forward_a_day_gives_the_budget_once_more(
    teams: Teams, clock: type[Clock]
) -> None:
    """And not for good: once it is right again, what was spent in the future counts as of now."""
    assert emptied_by_events(teams, range(4)) == HOUR
    passes.sync_members(teams.site)
    approve(teams.site)
    assert held(teams.site).approvals.open()
    at(teams, days=1, minutes=1)
    assert held(teams.site).approvals.open() == [], "approvals have expired"
    assert emptied_by_events(teams, range(4, 8)) == HOUR
    at(teams, minutes=2)
    assert emptied_by_events(teams, range(8, 9)) == 0
    at(teams, hours=1, minutes=10)
    assert emptied_by_events(teams, range(9, 10)) == 0, "more than a day's budget is spent within this day"
    at(teams, days=1, minutes=10)
    assert emptied_by_events(teams, range(10, 11)) == 1


def test_what_no_budget_counts_any_more_is_forgotten(teams: Teams, clock: type[Clock]) -> None:
    def rows() -> int:
        with store.Store(teams.site.state_dir).read() as db:
            return len(db.rows("SELECT * FROM charges WHERE cost = ?", Cost.ACCOUNTS_EMPTIED.value))

    assert (emptied_by_events(teams, range(HOUR)), rows()) == (HOUR, HOUR)
    at(teams, days=2, minutes=1)
    assert (emptied_by_events(teams, range(HOUR, HOUR + 1)), rows()) == (1, 1)


# What happens to the file -----------------------------------------------------------------------------


def test_a_copy_of_yesterday_drops_approvals_and_says_so(
    teams: Teams, clock: type[Clock], caplog: pytest.LogCaptureFixture
) -> None:
    """What was approved then has been done; it must not be done once more to people who have come back."""
    emptied_by_events(teams, range(5))
    assert passes.sync_members(teams.site).held
    approve(teams.site, hours=72)
    file = teams.site.state_dir / store.NAME
    kept = file.read_bytes()
    assert passes.sync_members(teams.site).held == ()
    at(teams, days=1)
    teams.backend.state = replace(teams.cluster, associations=teams.before)
    assert emptied_by_events(teams, range(5, 6)) == 1
    file.write_bytes(kept)
    report = passes.sync_members(teams.site)
    assert "a copy was put back. All approvals are dropped (1)" in caplog.text
    (plan,) = report.held
    approved = teams.waldur.seed.resource_uuids[HOUR:5]
    assert all(teams.members(teams.resource(uuid).backend_id) for uuid in approved), plan.reason


def test_a_day_without_removals_is_no_copy(
    teams: Teams, clock: type[Clock], caplog: pytest.LogCaptureFixture
) -> None:
    """Who joins is in the journal, and nothing of that in the state file."""
    emptied_by_events(teams, range(5))
    assert passes.sync_members(teams.site).held
    approve(teams.site)
    for hours in (2, 4, 6):
        at(teams, hours=hours)
        teams.join(f"newcomer{hours}", project=6)
        event(teams.site, teams.waldur.seed.project_uuids[6])
    assert len(teams.members(teams.resource(teams.waldur.seed.resource_uuids[6]).backend_id)) == 4
    assert passes.sync_members(teams.site).held == ()
    assert (teams.emptied(), "a copy was put back" in caplog.text) == (5, False)


def test_where_nothing_can_be_written_down_no_member_is_removed_and_people_join(teams: Teams) -> None:
    block(teams.site.state_dir)
    refused_and_joined(teams, teams.site)
    unblock(teams.site.state_dir)
    assert not passes.sync_members(teams.site).refused
    assert teams.emptied() == 1


@needs_root
def test_a_folder_of_another_user_that_is_read_only(teams: Teams, foreign_folder: Path) -> None:
    """Root writes there with its owner's rights, which are none."""
    shutil.copytree(teams.site.state_dir, foreign_folder, dirs_exist_ok=True)
    for path in (foreign_folder, *foreign_folder.rglob("*")):
        os.chown(path, OTHER_USER, OTHER_USER)
        path.chmod(0o500 if path.is_dir() else 0o400)
    refused_and_joined(teams, replace(teams.site, state_dir=foreign_folder))


def refused_and_joined(teams: Teams, site: Site) -> None:
    teams.gone(0)
    teams.join("newcomer", project=1)
    report = passes.sync_members(site)
    assert report.error is None
    assert {each.action.verb for each in report.refused} == {"remove member"}
    assert "what it costs people cannot be written down: the state file" in report.refused[0].sentence
    assert teams.emptied() == 0
    assert "newcomer" in {association.user for association in teams.cluster.associations}


def test_a_damaged_file_stops_all(teams: Teams) -> None:
    for path in teams.site.state_dir.glob(f"{store.NAME}*"):
        path.unlink()
    damage(teams.site.state_dir)
    teams.gone(0)
    teams.join("newcomer", project=1)
    before = teams.cluster
    teams.waldur.requests.reset()
    report = passes.sync_members(teams.site)
    assert teams.cluster == before
    assert {line.split()[0] for line in teams.waldur.request_counts()} <= {"GET"}
    assert isinstance(report.error, StateError), report.as_json()
