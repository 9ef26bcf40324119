# SPDX-License-Identifier: MIT
"""What a membership pass reads of Waldur, next to the bare GETs of the same pages by plain requests, four at once; how
both grow with the offering and with the latency of the API.

`python -m benchmarks.listings CONFIG PATHS` measures one of both in a process of its own; the simulated Waldur has
another one's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from agent.config.model import Mode, WaldurAccess
from agent.run import site as sites
from agent.run import waldur_facts as membership_facts
from agent.waldur.listing import AT_ONCE
from benchmarks.parts import Parts
from rig.processes import REPOSITORY, peak_kib
from rig.site import configuration, settings_of
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

SIZES = (1_000, 5_000)
MEMBERS = 5
PROJECTS_PER_CUSTOMER = 10
LATENCIES_MS = (0, 20, 200)


def run(parts: Parts) -> Iterator[str]:
    for size in SIZES:
        scenario = Scenario(
            customers=size // PROJECTS_PER_CUSTOMER,
            projects_per_customer=PROJECTS_PER_CUSTOMER,
            members_per_project=MEMBERS,
            allocations_per_project=1,
            backend_prefix="a_",
        )
        with SimulatedWaldur(scenario=scenario) as waldur:
            yield from _measured(parts, waldur, f"{size:,} resources x {MEMBERS}")


def _measured(parts: Parts, waldur: SimulatedWaldur, what: str) -> Iterator[str]:
    folder = parts.new_folder()
    config, paths = configuration(waldur, folder, membership_sync_backend="slurm"), folder / "paths.json"
    for latency_ms in LATENCIES_MS:
        waldur.faults.clear()
        if latency_ms:
            waldur.inject(Fault(kind=FaultKind.DELAY, latency_ms=latency_ms, times=None))
        waldur.requests.reset()
        ours = _child(config, "")
        entries = waldur.requests.entries("GET *")
        paths.write_text(json.dumps([waldur.root_url + entry.path for entry in entries]))
        bare = _child(config, str(paths))
        yield (
            f"{what}, {latency_ms} ms of latency: read in {ours['seconds']:.2f} s ({ours['cpu_s']:.2f} s of them "
            f"computing), {len(entries)} requests, {ours['mib']:.0f} MiB more than before; the bare GETs "
            f"{bare['seconds']:.2f} s, {bare['mib']:.1f} MiB of answers"
        )


def _child(config: Path, paths: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.listings", str(config), paths]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(config: str, paths: str) -> None:
    settings = settings_of(Path(config))
    site = sites.connect(settings, settings.offerings[0], Mode.MEMBERSHIP_SYNC)
    before_kib, started_s, busy_s = peak_kib(), time.monotonic(), time.process_time()
    if paths:
        mib = _bare(json.loads(Path(paths).read_text()), site.offering.access) / 2**20
    else:
        membership_facts.gather(site)
        mib = (peak_kib() - before_kib) / 1024
    seconds, cpu_s = time.monotonic() - started_s, time.process_time() - busy_s
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "mib": mib}))


def _bare(urls: list[str], access: WaldurAccess) -> int:
    """Get these pages by plain requests. Return the bytes of their bodies."""
    session = requests.Session()
    session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=AT_ONCE))
    session.headers["Authorization"] = f"Token {access.token.reveal()}"

    def get(url: str) -> int:
        answer = session.get(url, timeout=60)
        answer.raise_for_status()
        answer.json()
        return len(answer.content)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(get, urls))


if __name__ == "__main__":
    main(*sys.argv[1:])
