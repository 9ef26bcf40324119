# SPDX-License-Identifier: MIT
"""What passes cost, counted: processes of the cluster and requests. Seconds are measured in benchmarks."""

from __future__ import annotations

import math
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType

import pytest

from agent.plan import membership
from agent.run import passes
from agent.waldur.listing import PAGE_SIZE
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.run.membership.on_slurm import OnSlurm
from tests.scale import FULL
from tests.world import World

pytestmark = pytest.mark.cost

MEMBERS = 5
READS = 3
# Lists of a pass: orders, resources, offering users, roles, service and course accounts, limits of users.
LISTS = 7
FIRST_SYNC = 200 if FULL else 20
# More resources than a page has, and people.
MANY = 1000 if FULL else 400


@pytest.mark.parametrize("number", [10, MANY])
def test_an_idle_pass_reads_the_cluster_once_and_pages_of_lists(tmp_path: Path, number: int) -> None:
    scenario = Scenario(
        customers=2,
        projects_per_customer=number // 4,
        members_per_project=MEMBERS,
        allocations_per_project=2,
        backend_prefix="a_",
    )
    with SimulatedWaldur(scenario=scenario) as waldur:
        resources = len(waldur.seed.resource_uuids)
        world = World(waldur, tmp_path)
        world.fill()
        world.sync()
        waldur.requests.reset()
        report = world.sync()
        asked = waldur.request_counts()
    assert report.in_step == resources >= number * 0.8
    assert report.effort.commands == Counter(read=1)
    people = MEMBERS * len(waldur.seed.project_uuids)
    pages = LISTS - 3 + pages_of(resources) + 2 * pages_of(people)
    assert sum(asked.values()) == pages, asked
    assert not [kind for kind in asked if "{uuid}/team" in kind or kind.startswith("POST")]


@pytest.mark.parametrize("age", ["2024", "8.1"])
def test_idle_passes_ask_for_the_same_however_many_resources_there_are(tmp_path: Path, age: str) -> None:
    """With names and statuses of members, empty projects, and people whom the token does not see."""

    def asked(number: int) -> tuple[dict[str, int], dict[str, int]]:
        folder = tmp_path / str(number)
        folder.mkdir()
        scenario = Scenario(
            projects_per_customer=number,
            members_per_project=2,
            allocations_per_project=1,
            backend_prefix="a_",
            plugin_options={
                "service_provider_can_create_offering_user": True,
                "enable_membership_sync_status": True,
            },
        )
        with SimulatedWaldur(age, scenario=scenario) as waldur:
            waldur.site.change("offerings", waldur.seed.offering_uuid, enforces_consent=age != "2024")
            for row in list(waldur.store.offering_users)[::3]:
                waldur.site.change("offering_users", row.uuid, has_consent=False)
            world = World(waldur, folder, username_management_backend="template")
            for project in waldur.seed.project_uuids[::3]:
                for grant in waldur.store.active_grants(project):
                    waldur.people.remove_member(project, waldur.store.users[grant.user_uuid].username)
            world.fill()
            world.converge()
            passes.process_orders(world.site)
            waldur.requests.reset()
            assert world.sync().in_step == number
            of_members = waldur.request_counts()
            waldur.requests.reset()
            passes.process_orders(world.site)
            return of_members, waldur.request_counts()

    assert asked(12) == asked(36)


def test_what_was_seen_in_step_at_one_time_is_not_reported_again_in_one_pass(tmp_path: Path) -> None:
    scenario = Scenario(projects_per_customer=100, members_per_project=0, allocations_per_project=1)
    with SimulatedWaldur(scenario=scenario) as waldur:
        world = World(waldur, tmp_path)
        world.fill()
        half_due = datetime.now(UTC) - timedelta(minutes=30 * (1 + membership.SYNC_SPREAD / 2))
        for resource in waldur.seed.resource_uuids:
            world.change(resource, last_sync=half_due)
        world.sync()
        assert 30 < waldur.requests.count("POST *refresh_last_sync/") < 70


def pages_of(items: int) -> int:
    return max(1, math.ceil(items / PAGE_SIZE))


@pytest.mark.every_slurm(one_of=1)
@pytest.mark.by_commands
@pytest.mark.parametrize(
    "number", [10, pytest.param(100, marks=pytest.mark.skipif(not FULL, reason="FULL_TESTS"))]
)
def test_an_idle_pass_on_the_real_slurm_starts_few_processes_however_many_resources(
    slurm: SlurmCluster, tmp_path: Path, number: int
) -> None:
    with SimulatedWaldur(scenario=Scenario(members_per_project=MEMBERS)) as waldur:
        site = OnSlurm(slurm, waldur, tmp_path)
        site.allocate_all(*(f"r{n}" for n in range(number)))
        site.converge()
        waldur.requests.reset()
        report = site.sync()
        asked = waldur.request_counts()
    print(
        f"\nidle pass over {number} resources: {dict(report.effort.commands)}, {sum(asked.values())} requests"
    )
    assert report.in_step == number
    assert report.effort.commands == Counter(read=READS)
    assert sum(asked.values()) == LISTS


@pytest.mark.every_slurm(one_of=1)
def test_the_first_sync_of_many_new_members_writes_once_for_each_changed_account_at_most(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    scenario = Scenario(customers=2, projects_per_customer=FIRST_SYNC // 2, members_per_project=0)
    with SimulatedWaldur(scenario=scenario) as waldur:
        site = OnSlurm(slurm, waldur, tmp_path)
        for number in range(FIRST_SYNC):
            waldur.place_create_order(
                waldur.seed.project_uuids[number], f"r{number}", limits={"cpu": 10}, slug=f"r{number}"
            )
        site.processed(done=FIRST_SYNC)
        for number in range(FIRST_SYNC):
            site.join(*(f"u{number}x{n}" for n in range(MEMBERS)), project=number)
        waldur.requests.reset()
        report = site.sync()
        asked = waldur.request_counts()
        counted = (
            f"{dict(report.effort.commands)}, {sum(asked.values())} requests, {report.effort.seconds:.1f} s"
        )
        print(f"\nfirst sync of {FIRST_SYNC} x {MEMBERS}: {counted}")
        assert report.counted() == {"done": FIRST_SYNC}, report.as_json()
        assert report.effort.commands["write"] <= FIRST_SYNC
        # What Waldur shows of the accounts is read once, right before it is written for each.
        assert sum(asked.values()) <= LISTS + 3 + 2 * pages_of(FIRST_SYNC * MEMBERS) + FIRST_SYNC, asked
        assert site.members("a_r0") == {f"u0x{n}" for n in range(MEMBERS)}
        site.in_step()


def test_the_plan_for_one_leaver_is_made_three_times(world: World) -> None:
    """When the leaver is found, when Waldur has confirmed it, and when the cluster is read back."""
    world.allocate("one")
    world.converge()
    world.leave(min(world.members("a_one")))
    made = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal made
        made += event == "call" and frame.f_code is membership.plans.__code__

    sys.setprofile(count)
    try:
        report = world.sync()
    finally:
        sys.setprofile(None)
    assert [o.action.verb for o in report.outcomes if o.done and o.action.where == "cluster"] == [
        "remove member"
    ]
    assert made == 3
