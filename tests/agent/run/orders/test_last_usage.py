# SPDX-License-Identifier: MIT
"""The last usage of a resource is reported before its termination is done: Waldur takes none afterwards."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agent.cli import status_page
from agent.config.model import Mode
from agent.core import model
from agent.core.ownership import Origin
from agent.run import passes
from agent.run.diagnosis import picture
from agent.run.results import Result
from agent.run.site import connect
from agent.state import forget, ledger, reported_accounts
from agent.state.held_plans import HeldPlans
from rig.processes import wait_until
from rig.site import COMPONENTS, configuration, settings_of, site_of
from rig.slurm_cluster import SlurmCluster
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OrderState, ResourceState
from simulator.world.seed import Scenario
from tests.agent.run.orders.endings import NOT_VALID, SET_USAGE, Endings, endings, make
from tests.agent.run.orders.test_lifecycle import create, processed, tree
from tests.agent.run.usage.conftest import AGES, make_world
from tests.agent.run.usage.world import THIS, World, scenario

pytestmark = pytest.mark.every_slurm(one_of=10)

__all__ = ["endings", "make", "make_world"]


@pytest.mark.parametrize("age", AGES)
def test_what_was_used_since_the_last_report_is_reported_first(
    make: Callable[..., Endings], age: str
) -> None:
    endings = make(age)
    world = endings.world
    world.ran("a_1", "ann", 8)
    endings.end("a_1")
    found = endings.process()
    assert found.counted() == {"done": 1}, found.as_json()
    assert endings.is_over("a_1")
    assert world.in_waldur()["a_1"]["cpu"] == "9.00"
    assert world.shares("a_1") == {"u1": "1.00", "ann": "8.00"}
    posted = [entry.endpoint for entry in world.waldur.requests.entries("POST *")]
    assert posted.index("marketplace-component-usages/set_usage/") < posted.index(
        "marketplace-orders/{uuid}/set_state_done/"
    )
    assert endings.unreported() == []
    assert world.in_waldur()["a_2"]["cpu"] == "2.00"


def test_all_that_end_in_a_pass_are_counted_once(endings: Endings) -> None:
    for account in ("a_1", "a_2", "a_3", "a_4"):
        endings.world.ran(account, "ann", 8)
    endings.end("a_1", "a_2", "a_3")
    assert endings.process().counted() == {"done": 3}
    assert [query.month for query in endings.world.backend.queries] == [THIS]
    shown = {account: figures["cpu"] for account, figures in endings.world.in_waldur().items()}
    assert shown == {"a_1": "9.00", "a_2": "10.00", "a_3": "11.00", "a_4": "4.00"}


def test_a_resource_without_jobs_ends_without_a_figure(endings: Endings) -> None:
    world = endings.world
    for job in [job.id for job in world.backend.jobs if job.account == "a_1"]:
        world.forget(job)
    for row in [row for row in world.rows() if row.resource_uuid == world.resource("a_1")]:
        world.waldur.store.usages.remove(row)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert "a_1" not in world.in_waldur()
    assert endings.unreported() == []


def test_an_account_that_was_removed_by_hand_was_used_all_the_same(endings: Endings) -> None:
    endings.world.ran("a_1", "ann", 8)
    endings.world.drop("a_1")
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert endings.world.in_waldur()["a_1"]["cpu"] == "9.00"


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
    assert endings.is_over("a_1") and world.in_waldur()["a_1"]["cpu"] == "9.00"


@pytest.mark.parametrize("status_code", [503, 403])
def test_what_waldur_does_not_take_now_lets_the_order_wait(endings: Endings, status_code: int) -> None:
    """An outage passes by itself, and a right is given by a person."""
    world = endings.world
    world.ran("a_1", "ann", 8)
    endings.end("a_1")
    world.waldur.inject(Fault(path=SET_USAGE, status=status_code, times=None))
    (order,) = endings.process().orders
    assert order.result is (Result.RETRY if status_code == 503 else Result.STUCK)
    assert "a_1" in world.cluster.accounts and endings.unreported() == []
    world.waldur.faults.clear()
    assert endings.process().counted() == {"done": 1}
    assert endings.is_over("a_1") and world.in_waldur()["a_1"]["cpu"] == "9.00"


def test_what_cannot_be_reported_any_more_stands_in_status_and_journal(endings: Endings) -> None:
    world = endings.world
    world.ran("a_1", "ann", 8)
    endings.end("a_1")
    world.waldur.inject(Fault(path=SET_USAGE, status=400, body=NOT_VALID, content_type="application/json"))
    assert endings.process().counted() == {"done": 1}
    assert endings.is_over("a_1")
    (line,) = endings.unreported()
    assert line.startswith("usage of a_1 in 2026-11 is not in Waldur: cpu 1.00 -> 9.00")
    assert "Resource is not in valid state." in line
    (total, *_) = endings.tries()
    assert "cpu 1.00 -> 9.00" in total["action"]["text"] and "not in valid state" in total["error"]
    shown = picture.of_site(world.settings, world.settings.offerings)
    needs = [need for need in status_page.needs(shown) if "is not in Waldur" in need.found]
    (need,) = needs
    assert "`forget unreported-usage --offering" in need.remedy
    assert shown.offerings[0].as_json()["unreported_usage"][0]["account"] == "a_1"
    assert forget.forget(world.state_dir, "unreported-usage", world.site.offering.uuid) == 1
    assert endings.unreported() == []


def test_a_report_that_is_held_holds_the_order(endings: Endings) -> None:
    world = endings.world
    world.backend.jobs = [job for job in world.backend.jobs if job.account != "a_1"]
    world.ran("a_1", "u1", 0.5)
    endings.end("a_1")
    (order,) = endings.process().orders
    assert order.result is Result.WAITING
    assert order.message.startswith("its last usage is not reported yet: held as plan ")
    assert "cpu from 1.00 to 0.50" in order.message
    assert "a_1" in world.cluster.accounts
    held = HeldPlans(world.state_dir, world.site.offering, Mode.REPORT)
    (waiting,) = held.waiting()
    assert not world.report().failed
    assert [each.id for each in held.waiting()] == [waiting.id]
    held.approvals.approve(waiting.id, expires=world.now.replace(year=2100), by="tester")
    assert endings.process().counted() == {"done": 1}
    assert endings.is_over("a_1") and world.in_waldur()["a_1"]["cpu"] == "0.50"


def test_without_a_job_in_the_whole_answer_nothing_is_believed(endings: Endings) -> None:
    """slurmdbd gives an empty answer, with rc 0, when it fails to read its own database."""
    world = endings.world
    jobs, world.backend.jobs = world.backend.jobs, []
    endings.end("a_1")
    (order,) = endings.process().orders
    assert (order.result, "the cluster names no job in 2026-11" in order.message) == (Result.RETRY, True)
    world.backend.jobs = jobs
    assert endings.process().counted() == {"done": 1}


def test_what_two_offerings_name_is_reported_of_neither_and_written_down(endings: Endings) -> None:
    world = endings.world
    other = "f" * 32
    world.site = replace(world.site, counting_alike={other: "Other"})
    named = model.Resource("e" * 32, "theirs", "", model.ResourceState.OK, backend_id="a_1")
    reported_accounts.write(world.state_dir, world.site.backend.cluster, other, [named])
    world.ran("a_1", "ann", 8)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert world.in_waldur()["a_1"]["cpu"] == "1.00"
    (line,) = endings.unreported()
    assert "cpu 9.00" in line and "is named by offering Other as well" in line


def test_an_offering_without_usage_reports_ends_its_resources_as_before(endings: Endings) -> None:
    endings.world.ran("a_1", "ann", 8)
    endings.end("a_1")
    assert passes.process_orders(endings.world.site).counted() == {"done": 1}
    assert endings.world.backend.queries == []


def test_requests_of_a_terminate_order(make: Callable[..., Endings], record_property: Any) -> None:
    """One with nothing new to report asks four more things: dates, whose the account is, two figures."""
    endings = make("2024")
    world = endings.world
    counts = {}
    for account, site in (("a_1", world.site), ("a_2", endings.site), ("a_3", endings.site)):
        if account == "a_3":
            world.ran(account, "u3", 8)
        endings.end(account)
        requests = passes.process_orders(site).effort.requests
        assert requests["GET /api/marketplace-provider-offerings/{uuid}/"] == 1
        counts[account] = requests.total()
    record_property("requests", counts)
    assert counts["a_2"] - counts["a_1"] <= 4
    assert counts["a_3"] - counts["a_2"] <= 2


def sacct_of(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if "/sacct " in line]


@pytest.mark.by_commands
def test_jobs_that_a_termination_ends_are_counted_to_their_end_by_one_sacct(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    """Two accounts end: one with a job that runs, one with jobs that have ended. Real processes, counted."""
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
        processed(site, {"done": 2})
        user = getpass.getuser()
        for account in ("a_one", "a_two"):
            slurm.ask("sacctmgr", "-i", "add", "user", f"name={user}", f"account={account}")
        slurm.ask("sbatch", "-A", "a_two", "-o", "/dev/null", "--wrap", "sleep 2")
        slurm.wait_idle()
        slurm.ask("sbatch", "-A", "a_one", "-t", "60", "-o", "/dev/null", "--wrap", "sleep 300")
        known = ("sacct", "-a", "-X", "-n", "-P", "--state=R", "-o", "Account,ElapsedRaw")
        wait_until(
            "slurmdbd knows the job, which has run for some time",
            lambda: slurm.ask(*known).strip().partition("|")[2] not in ("", "0"),
        )
        for resource in made:
            waldur.orders.place_terminate(resource)
        log.write_text("")
        processed(site, {"done": 2})
        assert len(sacct_of(log)) == 1
        reported = {
            row.resource_uuid: row.usage for row in waldur.store.usages if row.component_type == "cpu"
        }
        shares = {row.username for row in waldur.store.user_usages}
    lines = slurm.ask(
        "sacct", "-a", "-X", "-n", "-P", "-S", "now-1hours", "-o", "Account,ElapsedRaw,AllocCPUS"
    )
    rows = [line.split("|") for line in lines.splitlines()]
    ran = {
        account: int(elapsed) * int(cpus) for account, elapsed, cpus in rows if account in ("a_one", "a_two")
    }
    assert min(ran.values()) > 0 and set(reported) == set(made), (ran, reported, made)
    factor = Decimal(60) * Decimal("0.01")
    found = {name: reported[uuid] for name, uuid in zip(("a_one", "a_two"), made, strict=True)}
    for account, seconds in ran.items():
        assert abs(found[account] - seconds / factor) < Decimal("0.01"), (account, found, ran)
    assert shares == {user}


def test_an_account_that_stays_after_its_end_is_reported_all_the_same(endings: Endings) -> None:
    world = endings.world
    world.site = replace(world.site, offering=replace(world.site.offering, soft_delete=True))
    world.ran("a_1", "ann", 8)
    endings.end("a_1")
    assert endings.process().counted() == {"done": 1}
    assert "a_1" in world.cluster.accounts
    assert endings.state("a_1") is ResourceState.TERMINATED
    assert world.in_waldur()["a_1"]["cpu"] == "9.00"


def test_a_soft_deletion_on_slurm_is_read_back_after_the_count(slurm: SlurmCluster, tmp_path: Path) -> None:
    with SimulatedWaldur("2024", scenario=Scenario(members_per_project=2)) as waldur:
        path = configuration(waldur, tmp_path, backend={"soft_delete": True}, reporting_backend="slurm")
        site = site_of(path)
        resource = create(waldur, "one", cpu=10, mem=1)
        processed(site, {"done": 1})
        waldur.orders.place_terminate(resource)
        processed(site, {"done": 1})
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
    """Moved to another offering, or terminated by staff: no order reports the last usage."""
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
        (sentence,) = endings.unreported()
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
    assert endings.unreported() == []
