# SPDX-License-Identifier: MIT
"""Create orders in one pass on the real SLURM, with and without latency of the API; and a pass that finds nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

from agent.run import passes
from benchmarks.parts import Parts
from rig.site import configuration, site_of
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

MEMBERS = 5
CASES = ((10, 0), (10, 20), (50, 0), (50, 20))


def run(parts: Parts) -> Iterator[str]:
    for count, latency_ms in CASES:
        yield _pass(parts, count, latency_ms)


def _pass(parts: Parts, count: int, latency_ms: int) -> str:
    parts.slurm.reset()
    scenario = Scenario(customers=2, projects_per_customer=count // 2, members_per_project=MEMBERS)
    with SimulatedWaldur(scenario=scenario) as waldur:
        site = site_of(configuration(waldur, parts.new_folder()))
        for number, project in enumerate(waldur.seed.project_uuids):
            waldur.place_create_order(project, f"order {number}", limits={"cpu": 10, "mem": 2})
        if latency_ms:
            waldur.inject(Fault(kind=FaultKind.DELAY, latency_ms=latency_ms, times=None))
        report = passes.process_orders(site)
        started_s = time.monotonic()
        idle = passes.process_orders(site)
        idle_s = time.monotonic() - started_s
    assert report.counted() == {"done": count}, report.as_json()
    commands, requests = report.effort.commands, report.effort.requests
    return (
        f"{count} create orders x {MEMBERS} members, {latency_ms} ms of API latency: {report.effort.seconds:.1f} s, "
        f"{commands['read']} reads, {commands['write']} writes, {requests.total()} requests; "
        f"idle pass {idle_s * 1000:.0f} ms, {idle.effort.commands.total()} commands, "
        f"{idle.effort.requests.total()} requests"
    )
