# SPDX-License-Identifier: MIT
"""The everyday pass on the real SLURM: a first sync, passes with nothing to do, and how they grow with the site."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.core.plans import Plan
from agent.plan import accounts, allocations
from agent.run import passes
from agent.run import waldur_facts as membership_facts
from agent.run.site import Site, offering_rules
from benchmarks.parts import Parts
from rig.processes import REPOSITORY
from rig.site import configuration, site_of
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

PROJECTS_PER_CUSTOMER = 10
# Resources and members of each.
FIRST_SYNC = (200, 5)
IDLE = ((100, 10), (1000, 10))


@dataclass(frozen=True)
class World:
    waldur: SimulatedWaldur
    site: Site
    path: Path


def run(parts: Parts) -> Iterator[str]:
    count, members = FIRST_SYNC
    with _waldur(count, members) as waldur:
        yield from _first_sync(_world(parts, waldur), count, members)
    for count, members in IDLE:
        with _waldur(count, members) as waldur:
            yield from _idle(_world(parts, waldur), count, members)


def _waldur(resources: int, members: int) -> SimulatedWaldur:
    scenario = Scenario(
        customers=resources // PROJECTS_PER_CUSTOMER,
        projects_per_customer=PROJECTS_PER_CUSTOMER,
        members_per_project=members,
        allocations_per_project=1,
        backend_prefix="a_",
    )
    return SimulatedWaldur(scenario=scenario)


def _world(parts: Parts, waldur: SimulatedWaldur) -> World:
    """Make the accounts of all resources, without members."""
    parts.slurm.reset()
    path = configuration(waldur, parts.new_folder(), membership_sync_backend="slurm")
    site = site_of(path)
    facts = membership_facts.gather(site)
    rules = offering_rules(site, facts.offering)
    snapshot = site.backend.observe()
    specs = [
        site.backend.canonical(allocations.allocation(r, rules, r.backend_id, snapshot), snapshot)
        for r in facts.resources
    ]
    built = Plan.of(action for spec in specs for action in accounts.building(spec, snapshot, "bench"))
    failed = [o for o in site.backend.apply(built.cluster_actions()) if o.error]
    assert not failed, failed[0]
    return World(waldur, site, path)


def _first_sync(world: World, count: int, members: int) -> Iterator[str]:
    report = passes.sync_members(world.site)
    assert report.error is None, report.error
    assert not report.failed, report.as_json()
    commands = report.effort.commands
    yield (
        f"first sync of {count} resources x {members} new members: {report.effort.seconds:.1f} s, "
        f"{commands['read']} reads, {commands['write']} writes, {report.effort.requests.total()} requests"
    )
    yield from _passes(world, count, members)


def _idle(world: World, count: int, members: int) -> Iterator[str]:
    for _ in range(2):
        report = passes.sync_members(world.site)
        assert report.error is None, report.error
    yield from _passes(world, count, members)
    yield _in_a_process(world, count, members)


def _passes(world: World, count: int, members: int) -> Iterator[str]:
    site = world.site
    started_s = time.monotonic()
    site.backend.observe()
    cluster_s = time.monotonic() - started_s
    started_s = time.monotonic()
    membership_facts.gather(site)
    waldur_s = time.monotonic() - started_s
    report = passes.sync_members(site)
    assert report.in_step == count, report.as_json()
    yield (
        f"idle pass over {count} resources x {members} members: {report.effort.seconds:.2f} s "
        f"(bare reads: cluster {cluster_s:.2f} s, Waldur {waldur_s:.2f} s), "
        f"{report.effort.commands.total()} commands, {report.effort.requests.total()} requests"
    )


# Not getrusage of a child: what the child of a big process had at most begins with the size of that process.
WITH_PEAK = """
import atexit, runpy, sys
from pathlib import Path
status = Path("/proc/self/status")
atexit.register(lambda: print(status.read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr))
runpy.run_path("manage.py", run_name="__main__")
"""


def _in_a_process(world: World, count: int, members: int) -> str:
    """Measure the same as a command of its own: time from start to end, and peak memory."""
    command = [sys.executable, "-c", WITH_PEAK, "run", "membership_sync", "--once", "-c", str(world.path)]
    started_s = time.monotonic()
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    seconds = time.monotonic() - started_s
    peak_mib = int(done.stderr.split()[-1]) / 1024
    return (
        f"`run membership_sync --once` over {count} x {members}: {seconds:.1f} s, {peak_mib:.0f} MiB at most"
    )
