# SPDX-License-Identifier: MIT
"""Membership through the queue: beat, Redis and a worker, all real, on the real SLURM; and a worker that is killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import redis

from agent.state import journal
from agent.state.journal import Query
from rig.celery_process import REPOSITORY, CeleryProcess, environment
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.slurm_cluster import SlurmCluster
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.tasks.conftest import Start
from tests.tasks.emulated import settings, variables


@pytest.fixture
def config(slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path) -> Path:
    return configuration(waldur, tmp_path, backend=settings(slurm), membership_sync_backend="slurm")


def members(slurm: SlurmCluster, account: str) -> set[str]:
    rows = slurm.ask("sacctmgr", "-nP", "show", "assoc", f"account={account}", "format=user").split()
    return {user for user in rows if user}


def allocated(waldur: SimulatedWaldur) -> str:
    """An order that is placed; the uuid of its resource."""
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
    return waldur.order(order).resource_uuid


def test_who_joins_and_leaves_in_waldur_does_so_on_the_cluster(
    slurm: SlurmCluster, waldur: SimulatedWaldur, start: Start
) -> None:
    project = waldur.seed.project_uuids[0]
    resource = allocated(waldur)
    worker = start("worker")
    start("beat")
    wait_until("the order is done", lambda: len(members(slurm, "a_one")) == 3)
    waldur.people.add_user("newcomer")
    waldur.people.add_member(project, "newcomer", account="newcomer")
    wait_until("the newcomer is in", lambda: "newcomer" in members(slurm, "a_one"))
    waldur.people.remove_member(project, "newcomer")
    wait_until("the leaver is out", lambda: "newcomer" not in members(slurm, "a_one"))
    assert waldur.resource(resource).state.value == "OK"
    done = "membership_sync of offering Test SLURM: 1 done"
    wait_until("that is logged", lambda: done in worker.output())


def test_people_who_get_their_names_after_the_order_join_at_once(
    slurm: SlurmCluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Waldur makes users of an offering once a resource of their project is OK. No beat runs here."""
    redis_server.flush()
    with SimulatedWaldur("2024", scenario=Scenario(members_per_project=0)) as waldur:
        project = waldur.seed.project_uuids[0]
        for name in ("ann", "bob"):
            waldur.people.add_user(name, full_name=f"{name.title()} Smith")
            waldur.people.add_member(project, name)
        config = configuration(
            waldur,
            tmp_path,
            backend=settings(slurm),
            membership_sync_backend="slurm",
            username_management_backend="template",
        )
        waldur.place_create_order(project, "one", limits={"cpu": 10}, slug="one")
        env = environment(config, redis_server.url, variables(slurm))
        worker = CeleryProcess("worker", tmp_path / "worker.log", env).start()
        try:
            code = f"from tasks.orders import enqueue_orders as f; f('{waldur.seed.offering_uuid}')"
            subprocess.run([python(), "-c", code], cwd=REPOSITORY, env=env, check=True)
            wait_until("the people are in", lambda: members(slurm, "a_one") == {"asmith", "bsmith"})
            assert "2 of its team have no username here yet: a membership pass adds them" in worker.output()
        finally:
            worker.end()


def test_who_joins_while_an_order_is_carried_out_is_in_though_no_event_names_them(
    slurm: SlurmCluster, waldur: SimulatedWaldur, redis_server: RedisServer, config: Path, start: Start
) -> None:
    """Waldur sends an offering events of those who join projects with a resource that is OK. No beat runs here."""
    config.write_text(
        config.read_text().replace("offerings:\n- ", "offerings:\n- stomp_enabled: true\n  ", 1)
    )
    project, offering = waldur.seed.project_uuids[0], waldur.seed.offering_uuid
    waldur.place_create_order(project, "one", limits={"cpu": 10}, slug="one")
    waldur.people.add_user("newcomer")
    start("worker")
    slurm.freeze_slurmdbd()
    try:
        code = f"from tasks.orders import enqueue_orders as f; f('{offering}')"
        env = environment(config, redis_server.url, {"PYTHONPATH": str(REPOSITORY)})
        subprocess.run([python(), "-c", code], cwd=REPOSITORY, env=env, check=True)
        wait_until("the team is read", lambda: any("/team/" in path for path in waldur.request_counts()))
        waldur.people.add_member(project, "newcomer", account="newcomer")
    finally:
        slurm.resume_slurmdbd()
    wait_until("the newcomer is in", lambda: "newcomer" in members(slurm, "a_one"))


def test_a_pass_over_all_and_one_over_a_part_do_not_change_an_account_side_by_side(
    slurm: SlurmCluster, waldur: SimulatedWaldur, redis_server: RedisServer, config: Path, start: Start
) -> None:
    """Each would read the cluster before the other one has removed anybody, and note the removal. No beat runs."""
    resource, broker = allocated(waldur), redis.Redis.from_url(redis_server.url)
    env = environment(config, redis_server.url, {"PYTHONPATH": str(REPOSITORY)})

    def queue(code: str) -> None:
        command = [python(), "-c", f"from tasks import membership, orders; {code}"]
        subprocess.run(command, env=env, cwd=REPOSITORY, check=True, timeout=600)

    def at_work() -> list[bytes]:
        return [broker.get(key) or b"" for key in broker.keys("site-work:membership_sync*")]

    def is_quiet() -> bool:
        return not broker.keys("unacked*") + broker.keys("site.default*")

    start("worker")
    offering = waldur.seed.offering_uuid
    queue(f"orders.enqueue_orders('{offering}')")
    wait_until("the order is done", lambda: len(members(slurm, "a_one")) == 3)
    wait_until("that task has ended, too", is_quiet)
    waldur.site.change("resources", resource, restrict_member_access=True)
    part = f"membership.enqueue_part('{offering}', resource_uuid='{resource}')"
    slurm.freeze_slurmdbd()
    try:
        queue(f"{part}; membership.enqueue_part('{offering}')")
        wait_until(
            "both have begun", lambda: len(at_work()) == 2 or any(b"again" in each for each in at_work())
        )
    finally:
        slurm.resume_slurmdbd()
    wait_until("who is shut out has left", lambda: not members(slurm, "a_one"))
    wait_until("both tasks have ended", is_quiet)
    lines = journal.read(config.parent / "state", Query(account="a_one"))
    removed = [each["ids"]["user"] for each in lines if each["action"]["action"] == "RemoveMember"]
    assert len(removed) == len(set(removed)) == 3


def test_a_killed_worker_has_lost_nothing(tmp_path: Path, slurm: SlurmCluster, start: Start) -> None:
    """Killed as soon as it has begun to write; the next worker plans from what stands."""
    with SimulatedWaldur(
        scenario=Scenario(projects_per_customer=4, allocations_per_project=1, backend_prefix="a_")
    ) as waldur:
        path = configuration(waldur, tmp_path, backend=settings(slurm), membership_sync_backend="slurm")
        accounts = [waldur.resource(uuid).backend_id for uuid in waldur.seed.resource_uuids]
        slurm.ask("sacctmgr", "-i", "add", "account", "name=c_kask-institute-1")
        for number, account in enumerate(accounts, start=1):
            project = f"p_project-1-{number}"
            slurm.change(
                f"add account name={project} parent=c_kask-institute-1",
                f"add account name={account} parent={project}",
            )
        worker = start("worker")
        start("beat")
        wait_until(
            "something is being written", lambda: _is_writing(path.parent) or members(slurm, accounts[0])
        )
        worker.kill()
        start("worker")
        wait_until("all are in", lambda: all(len(members(slurm, name)) == 3 for name in accounts))
        assert {waldur.resource(uuid).state.value for uuid in waldur.seed.resource_uuids} == {"OK"}


def _is_writing(folder: Path) -> bool:
    """Whether a process holds the lock of the cluster's writes."""
    numbers = [f":{lock.stat().st_ino} " for lock in (folder / "state" / "locks").glob("writes-*.lock")]
    lines = Path("/proc/locks").read_text().splitlines()
    return any(number in line for line in lines for number in numbers)
