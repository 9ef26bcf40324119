# SPDX-License-Identifier: MIT
"""A year of history of 200 accounts with 100,000 jobs, from the real slurmdbd; and the same once more."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.parts import Parts
from rig.history import YEAR, HistoryOnSlurm, in_units
from rig.reports import scenario
from simulator.server.waldur import SimulatedWaldur

ACCOUNTS, USERS, JOBS = 200, 5, 100_000


def run(parts: Parts) -> Iterator[str]:
    parts.slurm.reset()
    with SimulatedWaldur(scenario=scenario(ACCOUNTS)) as waldur:
        site = HistoryOnSlurm(parts.slurm, waldur, parts.new_folder())
        counted = site.fill(YEAR, USERS, JOBS // len(YEAR))
        yield f"twelve months of {ACCOUNTS} accounts, {JOBS} jobs: {_load(site)}"
        assert site.reported() == in_units(counted)
        yield f"the same again: {_load(site)}"


def _load(site: HistoryOnSlurm) -> str:
    before = site.started()
    site.waldur.requests.reset()
    started_s = time.monotonic()
    site.load(YEAR)
    seconds = time.monotonic() - started_s
    started = site.started() - before
    sent = site.waldur.requests.count("POST *")
    return (
        f"{seconds:.1f} s, {started['sacct']} sacct, {started['sacctmgr']} sacctmgr, "
        f"{site.waldur.requests.count()} requests, {sent} of them writes"
    )
