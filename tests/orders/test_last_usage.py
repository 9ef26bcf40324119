# SPDX-License-Identifier: MIT
"""The last usage of a resource is told before its termination is done: Waldur takes none afterwards."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agent.cli import status as status_text
from agent.cli import status_page
from agent.config.model import Mode
from agent.core import model
from agent.core.associations import Association
from agent.core.ownership import Origin
from agent.run import passes, status
from agent.run.results import PassReport, Result
from agent.run.site import connect
from agent.run.status import BrokerStatus
from agent.run.usage import last as last_usage
from agent.state import forget, journal, ledger, reported_accounts
from agent.state.held_plans import HeldPlans
from rig.processes import wait_until
from rig.site import COMPONENTS, configuration, settings_of, site_of
from rig.slurm_cluster import SlurmCluster
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OrderState, ResourceState
from simulator.world.seed import Scenario
from tests.orders.test_lifecycle import create, settled, tree
from tests.report.conftest import AGES, MODERN, WorldFactory, make_world
from tests.report.world import NOW, THIS, World, scenario
from tests.scale import steps
from tests.step_faults import FAULTS, MortalClient, killed_at

__all__ = ["make_world"]

NOT_VALID = json.dumps({"resource": ["Resource is not in valid state."]})
SET_USAGE = "set_usage/"
LAST_SECOND = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
STEPS_AT_MOST = 200


class Endings:
    """Terminate orders in a world of reports. `process`: one pass over orders, by the clock of that world."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        monkeypatch.setattr(last_usage, "present", lambda _: world.clock())
        for account in world.accounts:
            # Older than the month before, so that this is open as well until a report has counted it.
            world.waldur.site.change("resources", world.resource(account), created=NOW - timedelta(days=100))
        made = dict.fromkeys(world.accounts, Origin.MADE)
        ledger.write(world.state_dir, world.backend.cluster, world.site.offering, made, is_seen=True)
        self.reported()

    def reported(self) -> None:
        """A report that went well has counted the month before."""
        self.world.busy()
        assert not self.world.report().failed
        self.world.backend.queries.clear()
        self.world.waldur.requests.reset()

    @property
    def site(self) -> Any:
        return replace(self.world.site, usage_backend=self.world.backend)

    def end(self, *accounts: str) -> list[str]:
        return [self.world.waldur.orders.place_terminate(self.world.resource(a)) for a in accounts]

    def process(self) -> PassReport:
        return passes.process_orders(self.site)

    def state(self, account: str) -> ResourceState:
        return self.world.waldur.resource(self.world.resource(account)).state

    def is_over(self, account: str) -> bool:
        gone = account not in self.world.cluster.accounts
        return gone and self.state(account) is ResourceState.TERMINATED

    def untold(self) -> list[str]:
        """What `status` says of usage that is not in Waldur."""
        found = status.of_site(self.world.settings, self.world.settings.offerings, BrokerStatus())
        return [line.strip() for line in status_text.lines(found) if "is not in Waldur" in line]

    def tries(self) -> list[dict[str, Any]]:
        """What the journal has of usage that failed."""
        lines = journal.read(self.world.state_dir)
        return [
            line for line in lines if line["outcome"] == "failed" and "report usage" in line["action"]["text"]
        ]


@pytest.fixture
def make(make_world: WorldFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Endings]:
    return lambda *args, **options: Endings(make_world(*args, **options), monkeypatch)


@pytest.fixture
def endings(make: Callable[..., Endings]) -> Endings:
    return make("2024")


@pytest.mark.parametrize("age", AGES)
def test_what_was_used_since_the_last_report_is_told_first(make: Callable[..., Endings], age: str) -> None:
    endings = make(age)
    world = endings.world
    world.ran("a_1", "ann", 8)
    endings.end("a_1")
    found = endings.process()
    assert found.counted() == {"done": 1}, found.as_json()
    assert endings.is_over("a_1")
    assert world.shown()["a_1"]["cpu"] == "9.00"
    assert world.shares("a_1") == {"u1": "1.00", "ann": "8.00"}
    told = [entry.endpoint for entry in world.waldur.requests.entries("POST *")]
    assert told.index("marketplace-component-usages/set_usage/") < told.index(
        "marketplace-orders/{uuid}/set_state_done/"
    )
    assert endings.untold() == []
    assert world.shown()["a_2"]["cpu"] == "2.00"


def test_all_that_end_in_a_pass_are_counted_once(endings: Endings) -> None:
    for account in ("a_1", "a_2", "a_3", "a_4"):
        endings.world.ran(account, "ann", 8)
    endings.end("a_1", "a_2", "a_3")
    assert endings.process().counted() == {"done": 3}
    assert [query.month for query in endings.world.backend.queries] == [THIS]
    shown = {account: figures["cpu"] for account, figures in endings.world.shown().items()}
    assert shown == {"a_1": "9.00", "a_2": "10.00", "a_3": "11.00", "a_4": "4.00"}


def test_a_resource_without_jobs_ends_without_a_figure(endings: Endings) -> None:
    world = endings.world
    for job in [job.id for job in world.backend.jobs if job.account == "a_1"]:
        world.forget(job)
    for row in [row for row in world.rows() if row.resource_uuid == world.resource("a_1")]:
        world.waldur.store.usages.remove(row)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert "a_1" not in world.shown()
    assert endings.untold() == []


def test_an_account_that_somebody_removed_by_hand_was_used_all_the_same(endings: Endings) -> None:
    endings.world.ran("a_1", "ann", 8)
    endings.world.drop("a_1")
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert endings.world.shown()["a_1"]["cpu"] == "9.00"


def test_accounting_away_lets_the_order_wait_and_no_other(endings: Endings) -> None:
    world = endings.world
    world.ran("a_1", "ann", 8)
    endings.end("a_1")
    made = world.waldur.place_create_order(world.waldur.seed.project_uuids[0], "new", limits={"cpu": 1})
    world.backend.outage = lambda call: call == "usage"
    found = endings.process()
    assert found.counted() == {"retry": 1, "done": 1}, found.as_json()
    assert world.waldur.order(made).state is OrderState.DONE
    assert "a_1" in world.cluster.accounts
    assert endings.state("a_1") is ResourceState.TERMINATING
    world.backend.outage = lambda _: False
    assert endings.process().counted() == {"done": 1}
    assert endings.is_over("a_1") and world.shown()["a_1"]["cpu"] == "9.00"


@pytest.mark.parametrize("status_code", [503, 403])
def test_what_waldur_does_not_take_now_lets_the_order_wait(endings: Endings, status_code: int) -> None:
    """An outage passes by itself, and a right is given by a person."""
    world = endings.world
    world.ran("a_1", "ann", 8)
    endings.end("a_1")
    world.waldur.inject(Fault(path=SET_USAGE, status=status_code, times=None))
    (order,) = endings.process().orders
    assert order.result is (Result.RETRY if status_code == 503 else Result.STUCK)
    assert "a_1" in world.cluster.accounts and endings.untold() == []
    world.waldur.faults.clear()
    assert endings.process().counted() == {"done": 1}
    assert endings.is_over("a_1") and world.shown()["a_1"]["cpu"] == "9.00"


def test_what_cannot_be_told_any_more_stands_in_status_and_journal(endings: Endings) -> None:
    world = endings.world
    world.ran("a_1", "ann", 8)
    endings.end("a_1")
    world.waldur.inject(Fault(path=SET_USAGE, status=400, body=NOT_VALID, content_type="application/json"))
    assert endings.process().counted() == {"done": 1}
    assert endings.is_over("a_1")
    (line,) = endings.untold()
    assert line.startswith("usage of a_1 in 2026-11 is not in Waldur: cpu 1.00 -> 9.00")
    assert "Resource is not in valid state." in line
    (total, *_) = endings.tries()
    assert "cpu 1.00 -> 9.00" in total["action"]["text"] and "not in valid state" in total["error"]
    shown = status.of_site(world.settings, world.settings.offerings, BrokerStatus())
    needs = [need for need in status_page.needs(shown) if "is not in Waldur" in need.text]
    assert [need.command.split()[1:3] for need in needs] == [["forget", "untold-usage"]]
    assert shown.offerings[0].as_json()["untold_usage"][0]["account"] == "a_1"
    assert forget.forget(world.state_dir, "untold-usage", world.site.offering.uuid) == 1
    assert endings.untold() == []


def test_a_report_that_is_held_holds_the_order(endings: Endings) -> None:
    world = endings.world
    world.backend.jobs = [job for job in world.backend.jobs if job.account != "a_1"]
    world.ran("a_1", "u1", 0.5)
    endings.end("a_1")
    (order,) = endings.process().orders
    assert order.result is Result.WAITING
    assert order.message.startswith("its last usage is not told yet: held as plan ")
    assert "cpu from 1.00 to 0.50" in order.message
    assert "a_1" in world.cluster.accounts
    held = HeldPlans(world.state_dir, world.site.offering, Mode.REPORT)
    (waiting,) = held.waiting()
    assert not world.report().failed
    assert [each.id for each in held.waiting()] == [waiting.id]
    held.approvals.approve(waiting.id, expires=world.now.replace(year=2100), by="tester")
    assert endings.process().counted() == {"done": 1}
    assert endings.is_over("a_1") and world.shown()["a_1"]["cpu"] == "0.50"


def test_without_a_job_in_the_whole_answer_nothing_is_believed(endings: Endings) -> None:
    """slurmdbd gives an empty answer, with rc 0, when it fails to read its own database."""
    world = endings.world
    jobs, world.backend.jobs = world.backend.jobs, []
    endings.end("a_1")
    (order,) = endings.process().orders
    assert (order.result, "the cluster names no job in 2026-11" in order.message) == (Result.RETRY, True)
    world.backend.jobs = jobs
    assert endings.process().counted() == {"done": 1}


@pytest.mark.parametrize("age", MODERN)
def test_a_month_that_ended_in_between_is_told_with_its_date(make: Callable[..., Endings], age: str) -> None:
    endings = make(age, user="staff")
    world = endings.world
    world.ran("a_1", "ann", 8)
    world.now = LAST_SECOND + timedelta(hours=20)
    world.ran("a_1", "ann", 2, month=THIS.next)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert world.shown()["a_1"]["cpu"] == "9.00"
    assert world.shown(THIS.next)["a_1"]["cpu"] == "2.00"
    assert endings.untold() == []


@pytest.mark.parametrize("age", AGES)
def test_a_month_that_waldur_takes_no_more_is_written_down(make: Callable[..., Endings], age: str) -> None:
    """In 2024 no month but the present one; since 8.0 from a provider's token what is billed by limits only."""
    endings = make(age)
    world = endings.world
    world.demote("agent")
    world.ran("a_1", "ann", 8)
    world.now = LAST_SECOND + timedelta(hours=20)
    world.ran("a_1", "ann", 2, month=THIS.next)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert world.shown()["a_1"]["cpu"] == "1.00"
    assert world.shown(THIS.next)["a_1"]["cpu"] == "2.00"
    (line,) = endings.untold()
    assert line.startswith("usage of a_1 in 2026-11 is not in Waldur: cpu 1.00 -> 9.00")
    assert any("cpu 1.00 -> 9.00" in each["action"]["text"] for each in endings.tries())


def test_a_month_that_a_report_has_counted_to_its_end_is_not_counted_again(
    make: Callable[..., Endings], monkeypatch: pytest.MonkeyPatch
) -> None:
    endings = make("8.0", user="staff")
    world = endings.world
    world.now = LAST_SECOND + timedelta(days=2)
    world.busy(THIS.next)
    assert not world.report().failed
    monkeypatch.setattr(last_usage.passes, "last", lambda *_: [{"last_good": world.now.isoformat()}])
    world.backend.queries.clear()
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert [query.month for query in world.backend.queries] == [THIS.next]


@pytest.mark.parametrize("age", AGES)
def test_in_the_last_second_of_a_month(make: Callable[..., Endings], age: str) -> None:
    """A server without dates may have begun the next one: what it is told now may be filed there."""
    endings = make(age, user="staff")
    world = endings.world
    world.ran("a_1", "ann", 8)
    world.now = LAST_SECOND
    endings.end("a_1")
    found = endings.process()
    if age == "2024":
        (order,) = found.orders
        assert order.result is Result.RETRY and "another month than 2026-11" in order.message
        assert world.rows(THIS.next) == []
        world.now = LAST_SECOND + timedelta(minutes=10)
        found = endings.process()
    assert found.counted() == {"done": 1}, found.as_json()
    assert world.rows(THIS.next) == []
    assert (world.shown()["a_1"]["cpu"] == "9.00") is (age != "2024")
    assert len(endings.untold()) == (age == "2024")


@pytest.mark.parametrize("age", MODERN)
def test_before_the_date_of_a_new_month_has_come(make: Callable[..., Endings], age: str) -> None:
    """The moment by which its usage is filed is noon of the first: till then it goes without a date."""
    endings = make(age, user="staff")
    world = endings.world
    world.now = LAST_SECOND + timedelta(hours=3)
    world.ran("a_1", "ann", 2, month=THIS.next)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert world.shown(THIS.next)["a_1"]["cpu"] == "2.00"


def test_what_two_offerings_name_is_told_of_neither_and_written_down(endings: Endings) -> None:
    world = endings.world
    other = "f" * 32
    world.site = replace(world.site, counting_alike={other: "Other"})
    named = model.Resource("e" * 32, "theirs", "", model.ResourceState.OK, backend_id="a_1")
    reported_accounts.write(world.state_dir, world.site.backend.cluster, other, [named])
    world.ran("a_1", "ann", 8)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert world.shown()["a_1"]["cpu"] == "1.00"
    (line,) = endings.untold()
    assert "cpu 9.00" in line and "is named by offering Other as well" in line


def test_an_offering_whose_usage_nobody_reports_ends_its_resources_as_before(endings: Endings) -> None:
    endings.world.ran("a_1", "ann", 8)
    endings.end("a_1")
    assert passes.process_orders(endings.world.site).counted() == {"done": 1}
    assert endings.world.backend.queries == []


def test_requests_of_a_terminate_order(make: Callable[..., Endings], record_property: Any) -> None:
    """One with nothing new to tell asks five more things: the offering, dates, whose the account is, two figures."""
    endings = make("2024")
    world = endings.world
    counts = {}
    for account, site in (("a_1", world.site), ("a_2", endings.site), ("a_3", endings.site)):
        if account == "a_3":
            world.ran(account, "u3", 8)
        endings.end(account)
        counts[account] = passes.process_orders(site).effort.requests.total()
    record_property("requests", counts)
    assert counts["a_2"] - counts["a_1"] <= 5
    assert counts["a_3"] - counts["a_2"] <= 2


def finished(endings: Endings) -> None:
    world = endings.world
    assert endings.is_over("a_1")
    assert world.shown()["a_1"]["cpu"] == "9.00"
    assert world.shares("a_1") == {"u1": "1.00", "ann": "8.00"}
    assert endings.untold() == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_of_any_one_request_loses_nothing(make: Callable[..., Endings], fault: str) -> None:
    for skip in steps(40, start=list(FAULTS).index(fault) % 3, stride=4):
        endings = make("2024")
        world = endings.world
        world.site = world.connected(attempts=1)
        world.ran("a_1", "ann", 8)
        endings.end("a_1")
        world.waldur.inject(Fault(skip=skip, times=1, **FAULTS[fault]))
        endings.process()
        struck = world.waldur.requests.count() > skip
        world.waldur.faults.clear()
        for _ in range(2):
            endings.process()
        finished(endings)
        if not struck:
            break


def test_a_pass_killed_at_any_step_loses_nothing_and_doubles_nothing(make: Callable[..., Endings]) -> None:
    for step in steps(STEPS_AT_MOST, start=1):
        endings = make("2024")
        world = endings.world
        world.ran("a_1", "ann", 8)
        state = replace(
            world.cluster, associations=frozenset({Association("a_1", "u1")}) | world.cluster.associations
        )
        world.backend.state = state
        endings.end("a_1")
        offering = world.site.offering
        client = MortalClient(
            offering.access, user_agent="waldur-site-agent-test", offering_uuid=offering.uuid, attempts=1
        )
        world.site = replace(world.site, client=client)
        killed = killed_at(step, client, world.backend, endings.process)
        for _ in range(2):
            endings.process()
        finished(endings)
        if not killed:
            break
    assert step < STEPS_AT_MOST - 1


def sacct_of(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if "/sacct " in line]


def test_jobs_that_a_termination_ends_are_counted_to_their_end_by_one_sacct(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two accounts end: one with a job that runs, one with jobs that have ended. Real processes, counted."""
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    log, prefix = tmp_path / "commands", tmp_path / "prefix"
    prefix.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec "$@"\n')
    prefix.chmod(0o755)
    fine = {name: {**component, "unit_factor": 0.01} for name, component in COMPONENTS.items()}
    with SimulatedWaldur("2024", scenario=Scenario(members_per_project=2)) as waldur:
        backend = {"command_prefix": [str(prefix)], "slurm_bin_path": str(slurm.bin_path)}
        site = site_of(
            configuration(waldur, tmp_path, backend=backend, components=fine, reporting_backend="slurm")
        )
        made = [create(waldur, slug, cpu=100_000) for slug in ("one", "two")]
        settled(site, {"done": 2})
        user = getpass.getuser()
        for account in ("a_one", "a_two"):
            slurm.ask("sacctmgr", "-i", "add", "user", f"name={user}", f"account={account}")
        slurm.ask("sbatch", "-W", "-A", "a_two", "-o", "/dev/null", "--wrap", "sleep 2")
        slurm.ask("sbatch", "-A", "a_one", "-o", "/dev/null", "--wrap", "sleep 300")
        known = ("sacct", "-a", "-X", "-n", "-P", "--state=R", "-o", "Account,ElapsedRaw")
        wait_until(
            "slurmdbd knows the job, which has run for some time",
            lambda: slurm.ask(*known).strip().partition("|")[2] not in ("", "0"),
        )
        for resource in made:
            waldur.orders.place_terminate(resource)
        log.write_text("")
        settled(site, {"done": 2})
        assert len(sacct_of(log)) == 1
        told = {row.resource_uuid: row.usage for row in waldur.store.usages if row.component_type == "cpu"}
        shares = {row.username for row in waldur.store.user_usages}
    lines = slurm.ask(
        "sacct", "-a", "-X", "-n", "-P", "-S", "now-1hours", "-o", "Account,ElapsedRaw,AllocCPUS"
    )
    rows = [line.split("|") for line in lines.splitlines()]
    ran = {
        account: int(elapsed) * int(cpus) for account, elapsed, cpus in rows if account in ("a_one", "a_two")
    }
    assert min(ran.values()) > 0 and set(told) == set(made), (ran, told, made)
    factor = Decimal(60) * Decimal("0.01")
    found = {name: told[uuid] for name, uuid in zip(("a_one", "a_two"), made, strict=True)}
    for account, seconds in ran.items():
        assert abs(found[account] - seconds / factor) < Decimal("0.01"), (account, found, ran)
    assert shares == {user}


def test_an_account_that_stays_after_its_end_is_told_of_all_the_same(endings: Endings) -> None:
    world = endings.world
    world.site = replace(world.site, offering=replace(world.site.offering, soft_delete=True))
    world.ran("a_1", "ann", 8)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert "a_1" in world.cluster.accounts
    assert endings.state("a_1") is ResourceState.TERMINATED
    assert world.shown()["a_1"]["cpu"] == "9.00"


def test_a_soft_deletion_on_slurm_is_read_back_after_the_count(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    with SimulatedWaldur("2024", scenario=Scenario(members_per_project=2)) as waldur:
        path = configuration(waldur, tmp_path, backend={"soft_delete": True}, reporting_backend="slurm")
        site = site_of(path)
        resource = create(waldur, "one", cpu=10, mem=1)
        settled(site, {"done": 1})
        waldur.orders.place_terminate(resource)
        settled(site, {"done": 1})
        assert tree(slurm)["a_one"][1:] == ("cpu=0,mem=0", frozenset())


def test_a_reporting_backend_that_cannot_be_used_stops_endings_only(tmp_path: Path) -> None:
    with SimulatedWaldur("2024", scenario=scenario()) as waldur:
        world = World(waldur, tmp_path)
        settings = settings_of(configuration(waldur, tmp_path, reporting_backend="nowhere"))
        offering = replace(settings.offerings[0], stopped={Mode.REPORT: "nowhere is not installed"})
        made = connect(settings, offering, Mode.ORDER_PROCESS)
        ledger.write(made.state_dir, world.backend.cluster, offering, {"a_1": Origin.MADE}, is_seen=True)
        waldur.orders.place_terminate(world.resource("a_1"))
        waldur.place_create_order(waldur.seed.project_uuids[0], "new", limits={"cpu": 1})
        found = passes.process_orders(replace(made, backend=world.backend))
        assert found.counted() == {"stuck": 1, "done": 1}, found.as_json()
        assert any("nowhere is not installed" in order.message for order in found.orders)


@pytest.mark.parametrize("how", ["moved", "terminated", "renamed"])
def test_what_leaves_without_an_order_is_named_with_what_was_counted(endings: Endings, how: str) -> None:
    """Moved to another offering, or terminated by staff: no order tells the last usage."""
    world = endings.world
    world.ran("a_1", "ann", 8)
    changed = {
        "moved": {"offering_uuid": "f" * 32},
        "terminated": {"state": ResourceState.TERMINATED},
        "renamed": {"backend_id": "a_9"},
    }
    world.waldur.site.change("resources", world.resource("a_1"), **changed[how])
    for _ in range(2):
        world.report()
        (sentence,) = endings.untold()
        assert sentence.startswith("usage of a_1 in ") and "counted in all: cpu 9.00" in sentence
        assert "no order of this host ended it" in sentence


def test_what_an_order_has_ended_is_not_named_once_more(endings: Endings) -> None:
    """Also where its account stays."""
    world = endings.world
    world.site = replace(world.site, offering=replace(world.site.offering, soft_delete=True))
    world.ran("a_1", "ann", 8)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    world.report()
    assert endings.untold() == []
