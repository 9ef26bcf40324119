# SPDX-License-Identifier: MIT
"""A kill at every step of the loop, for each mode: ordinary passes finish the work, once, without double charges.

The budgets have room for what is due and for nothing more, so that a charge that counted twice would be held. Orders
have their own: `tests/agent/run/orders/test_every_step.py`, and so do people and homes: `test_people_at_every_step.py`,
`test_names_and_homes_at_every_step.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.actions import BlockMember, CancelJobs
from agent.core.associations import Association
from agent.core.policy import Charge, Cost
from agent.run import passes
from agent.run.membership import rebuild
from agent.run.results import PassReport
from agent.run.site import Site
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.run.engine import kills
from tests.agent.run.engine.worlds import (
    Moment,
    charged,
    cut_off_everywhere,
    erred,
    killed_everywhere,
    members_pass,
    with_room_for,
)
from tests.agent.run.usage.world import LAST, THIS
from tests.agent.run.usage.world import World as Report
from tests.agent.run.usage.world import scenario as report_scenario
from tests.world import World, approve, held, waiting

pytestmark = pytest.mark.safety

# Membership ------------------------------------------------------------------------------------------


PROJECTS = {"one": 0, "cut": 0, "paused": 1, "moved": 1, "lost": 1, "closed": 1, "gone": 2}
ROOM = {
    Cost.MEMBERS_REMOVED: 4,
    Cost.ACCOUNTS_EMPTIED: 2,
    Cost.ACCOUNTS_BLOCKED: 1,
    Cost.ACCOUNTS_MOVED: 1,
    Cost.LIMITS_CUT: 1,
}


class Due(World):
    """Something of every kind is due: leavers, a joiner, a pause, a cut, a move, a lost backend id, a closed
    allocation, and a team that is gone as a whole, which waits for a person.
    """

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        backend = {"qos_default": "normal", "qos_paused": "stop"}
        super().__init__(waldur, folder, backend=backend, limits_source="waldur")
        projects = waldur.seed.project_uuids
        orders = {
            name: waldur.place_create_order(projects[place], name, limits={"cpu": 10, "mem": 2}, slug=name)
            for name, place in PROJECTS.items()
        }
        passes.process_orders(self.site)
        self.uuids = {name: waldur.order(order).resource_uuid for name, order in orders.items()}
        self.leaver, self.mover = sorted(self.members("a_one"))[:2]
        self.busy, self.keeper = sorted(self.members("a_gone"))[:2]
        for user in (self.mover, self.keeper):
            self.join(self.person(user), project=1, account=user)
        self.converge()
        self.teams = {name: self.members(f"a_{name}") for name in PROJECTS}
        self.place = self.cluster.accounts["a_moved"].parent
        self.fall_due()
        self.site = with_room_for(self.site, ROOM)
        self.moment = Moment(waldur, self.site, folder)

    def fall_due(self) -> None:
        for user in (self.leaver, self.mover):
            self.leave(user)
        self.join("newcomer", project=1)
        for user in self.members("a_gone"):
            self.leave(user, project=2)
        self.change(self.uuids["one"], state="Erred", error_message="old")
        self.change(self.uuids["cut"], limits={"cpu": 5, "mem": 2})
        self.change(self.uuids["paused"], paused=True)
        self.change(self.uuids["lost"], backend_id="")
        self.change(self.uuids["closed"], restrict_member_access=True)
        self.alter("a_moved", parent="root")
        self.backend.state = replace(
            self.cluster,
            used={"a_cut": {"cpu": 10}},
            active_jobs={"a_one": 1, "a_gone": 1},
            active_users={("a_one", self.leaver): 1, ("a_gone", self.busy): 1},
        )

    def wrong(self, *, gone: bool = False) -> list[str]:
        """Everything that is not as it must be in the end; `gone`: what waited has been released."""
        left = {self.leaver, self.mover}
        expected = {
            "one": self.teams["one"] - left,
            "cut": self.teams["cut"] - left,
            "closed": set[str](),
            "gone": set[str]() if gone else self.teams["gone"],
            **{name: self.teams[name] | {"newcomer"} for name in ("paused", "moved", "lost")},
        }
        accounts = self.cluster.accounts
        checks = {
            "a state": {self.resource(uuid).state.value for uuid in self.uuids.values()} == {"OK"},
            "the cut": accounts["a_cut"].limits["cpu"] == 300,
            "the pause": accounts["a_paused"].default_qos == "stop",
            "the place": accounts["a_moved"].parent == self.place,
            "the backend id": self.resource(self.uuids["lost"]).backend_id == "a_lost",
            "a default account": all(
                self.cluster.default_accounts[each.user] in self.cluster.accounts_of(each.user)
                for each in self.cluster.associations
            ),
        }
        found = [name for name, is_right in checks.items() if not is_right]
        found += [name for name, users in expected.items() if self.members(f"a_{name}") != users]
        # Whoever still has jobs is blocked, and these are cancelled, for as long as they are in.
        once = [a for a in self.backend.applied if not isinstance(a, BlockMember | CancelJobs)]
        twice = [action for action, count in Counter(once).items() if count > 1]
        return found + [f"twice: {action.render()}" for action in twice]

    def charges(self) -> set[Charge]:
        """What all of it costs people, but for what waits."""
        removed = {
            Charge(Cost.MEMBERS_REMOVED, account, user)
            for account in ("a_one", "a_cut")
            for user in (self.leaver, self.mover)
        }
        others = {
            Cost.ACCOUNTS_EMPTIED: "a_closed",
            Cost.ACCOUNTS_BLOCKED: "a_paused",
            Cost.ACCOUNTS_MOVED: "a_moved",
            Cost.LIMITS_CUT: "a_cut",
        }
        return removed | {Charge(cost, account) for cost, account in others.items()}


@pytest.fixture(scope="module")
def due(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Due]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=4, projects_per_customer=3)) as waldur:
        yield Due(waldur, tmp_path_factory.mktemp("members"))


def test_a_membership_pass(due: Due) -> None:
    """What waits for a person waits on, and all else is done by two passes."""

    def then(site: Site, place: str) -> None:
        known = {plan.id for plan in waiting(site)}
        last = [members_pass(site) for _ in range(2)][-1]
        assert due.wrong() == [], place
        assert charged(site) == due.charges(), place
        assert len(last.held) == 1, [plan.reason for plan in last.held]
        assert {plan.id for plan in last.held} == {plan.id for plan in waiting(site)} >= known, place

    assert killed_everywhere(due.moment, members_pass, then) > 20


@pytest.mark.parametrize("part", ["Waldur", "the cluster"])
def test_an_outage_between_two_modes_of_a_membership_pass(due: Due, part: str) -> None:
    """Whatever is away from a mode on costs what is left, and no member anything."""

    def away() -> None:
        if part == "Waldur":
            due.waldur.inject(Fault(times=None))
        else:
            due.backend.outage = lambda _: True

    members_pass(due.moment.again())
    undisturbed = set(due.backend.applied)
    due.moment.again()
    before = erred(due.waldur)
    failed = []
    for site, report, place in cut_off_everywhere(due.moment, Mode.MEMBERSHIP_SYNC, away):
        due.waldur.faults.clear()
        due.backend.outage = kills.in_memory
        failed.append(report.failed)
        assert set(due.backend.applied) <= undisturbed, place
        assert report.failed or set(due.backend.applied) == undisturbed, f"{place}: {report.as_json()}"
        assert erred(due.waldur) <= before, place
        last = [members_pass(site) for _ in range(2)][-1]
        assert (due.wrong(), len(last.held)) == ([], 1), place
        assert charged(site) == due.charges(), place
    # Between the names and the members: nothing of these is done.
    assert failed[0]


def test_an_approved_plan_that_was_cut_off_needs_no_second_approval(due: Due, tmp_path: Path) -> None:
    """Nor does what is left of it overdraw a budget that is spent."""
    site = due.moment.again()
    for _ in range(2):
        members_pass(site)
    approve(site)

    def then(site: Site, place: str) -> None:
        reports = [members_pass(site) for _ in range(2)]
        assert [plan.reason for report in reports for plan in report.held] == [], place
        assert due.wrong(gone=True) == [], place
        assert charged(site) == due.charges(), place
        assert (waiting(site), held(site).approvals.open()) == ([], []), place

    assert killed_everywhere(Moment(due.waldur, site, tmp_path), members_pass, then) > 10


# A flood of events ------------------------------------------------------------------------------------


class Flood(World):
    """Every team is gone; events named the projects one by one, and all but the first wait for their number."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        super().__init__(waldur, folder)
        self.fill()
        self.converge()
        self.before = self.cluster.associations
        self.site = with_room_for(self.site, {Cost.ACCOUNTS_EMPTIED: 1, Cost.MEMBERS_REMOVED: 20})
        for project, team in waldur.seed.members.items():
            for username in team:
                waldur.people.remove_member(project, username)
        for project in waldur.seed.project_uuids:
            self.sync(project=project)
        self.moment = Moment(waldur, self.site, folder)

    def emptied(self) -> int:
        return len({a.account for a in self.before} - {a.account for a in self.cluster.associations})


@pytest.fixture(scope="module")
def flood(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flood]:
    scenario = Scenario(members_per_project=2, projects_per_customer=4, allocations_per_project=1)
    with SimulatedWaldur(scenario=scenario) as waldur:
        yield Flood(waldur, tmp_path_factory.mktemp("flood"))


def test_a_pass_that_joins_what_events_brought(flood: Flood) -> None:
    def then(site: Site, place: str) -> None:
        for _ in range(2):
            (plan,) = members_pass(site).held
            assert [each.id for each in waiting(site)] == [plan.id], place
        assert flood.emptied() == 1, place

    assert killed_everywhere(flood.moment, members_pass, then) > 2


def test_the_approved_flood(flood: Flood, tmp_path: Path) -> None:
    site = flood.moment.again()
    members_pass(site)
    approve(site)

    def then(site: Site, place: str) -> None:
        reports = [members_pass(site) for _ in range(2)]
        assert [plan.reason for report in reports for plan in report.held] == [], place
        assert flood.emptied() == 4, place
        assert len(charged(site)) == 3, place
        assert (waiting(site), held(site).approvals.open()) == ([], []), place

    assert killed_everywhere(Moment(flood.waldur, site, tmp_path), members_pass, then) > 9


# Accounts that were lost -------------------------------------------------------------------------------


class Lost(World):
    """The accounting database is empty; that all is made again has been approved."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        super().__init__(waldur, folder)
        self.fill()
        self.converge()
        self.before = self.cluster
        root = {"root": self.before.accounts["root"]}
        self.backend.state = replace(
            self.before, accounts=root, associations=frozenset[Association](), default_accounts={}
        )
        self.site = with_room_for(self.site, {})
        rebuild.run_pass(self.site)
        approve(self.site, rebuild.KEY)
        self.moment = Moment(waldur, self.site, folder)


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    limits = {"cpu": 1000, "mem": 2000}
    scenario = Scenario(
        members_per_project=2, projects_per_customer=2, allocations_per_project=2, allocation_limits=limits
    )
    with SimulatedWaldur(scenario=scenario) as waldur:
        yield Lost(waldur, tmp_path_factory.mktemp("lost"))


def test_a_rebuild(lost: Lost) -> None:
    wanted = {name for name in lost.before.accounts if name.startswith("a_")}

    def then(site: Site, place: str) -> None:
        reports = [rebuild.run_pass(site) for _ in range(2)]
        assert [(report.error, report.held) for report in reports] == [(None, ())] * 2, place
        assert reports[-1].resources == [], place
        members_pass(site)
        assert set(lost.cluster.accounts) == set(lost.before.accounts), place
        limits = {name: lost.cluster.accounts[name].limits.get("cpu") for name in wanted}
        assert limits == dict.fromkeys(wanted, 60_000), place
        assert lost.cluster.associations == lost.before.associations, place
        assert len(lost.backend.applied) == len(set(lost.backend.applied)), place
        assert {r.limits["cpu"] for r in lost.waldur.store.resources} == {1000}, place
        assert (waiting(site, rebuild.KEY), held(site, rebuild.KEY).approvals.open()) == ([], []), place

    assert killed_everywhere(lost.moment, rebuild.run_pass, then) > 10


# Reports ------------------------------------------------------------------------------------------------


class Counted(Report):
    """Reported once; since then one account has more, one has a new user, one has less, in two months."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        # Staff may report past months.
        super().__init__(waldur, folder, user="staff")
        for month in (LAST, THIS):
            self.busy(month)
        self.ran("a_1", "ann", 5, job="77")
        assert not self.report().failed
        self.ran("a_2", "u2", 1)
        self.ran("a_3", "bob", 2)
        self.ran("a_3", "bob", 2, month=LAST)
        self.forget("77")
        self.moment = Moment(waldur, self.site, folder)

    def pass_(self, site: Site) -> PassReport:
        report = passes.report_usage(site, clock=self.clock)
        assert (report.error, report.failed) == (None, False), report.as_json()
        return report

    def wrong(self, first: str) -> list[str]:
        """What Waldur does not show as it must in the end; `first`: of the account that has less."""
        now = {"a_1": first, "a_2": "3.00", "a_3": "5.00", "a_4": "4.00"}
        then = {"a_1": "1.00", "a_2": "2.00", "a_3": "5.00", "a_4": "4.00"}
        found = []
        for month, expected in ((THIS, now), (LAST, then)):
            shown = {account: figures["cpu"] for account, figures in self.in_waldur(month).items()}
            found += [f"{month}: {shown}"] if shown != expected else []
            # Zeros are reported for the present month.
            if len(self.rows(month)) != (8 if month == THIS else 4):
                found.append(f"{len(self.rows(month))} records in {month}")
            if self.shares("a_3", month=month) != {"u3": "3.00", "bob": "2.00"}:
                found.append(f"{month}: {self.shares('a_3', month=month)}")
        ann = {"6.00": "5.00", "1.00": "0.00"}[first]
        if self.shares("a_1") != {"u1": "1.00", "ann": ann}:
            found.append(f"a_1: {self.shares('a_1')}")
        return found


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    with SimulatedWaldur(scenario=report_scenario()) as waldur:
        yield Counted(waldur, tmp_path_factory.mktemp("report"))


def test_a_report_of_which_a_decrease_waits(counted: Counted) -> None:
    def then(site: Site, place: str) -> None:
        known = [plan.id for plan in waiting(site, Mode.REPORT)]
        (plan,) = counted.pass_(site).held
        assert [each.id for each in waiting(site, Mode.REPORT)] == [plan.id], place
        assert set(known) <= {plan.id}, place
        assert counted.wrong("6.00") == [], place

    assert killed_everywhere(counted.moment, counted.pass_, then) > 15


def test_a_report_of_a_decrease_that_was_approved(counted: Counted, tmp_path: Path) -> None:
    site = counted.moment.again()
    counted.pass_(site)
    approve(site, Mode.REPORT)

    def then(site: Site, place: str) -> None:
        reports = [counted.pass_(site) for _ in range(2)]
        assert [plan.reason for report in reports for plan in report.held] == [], place
        assert counted.wrong("1.00") == [], place
        assert (waiting(site, Mode.REPORT), held(site, Mode.REPORT).approvals.open()) == ([], []), place

    assert killed_everywhere(Moment(counted.waldur, site, tmp_path), counted.pass_, then) > 8
