# SPDX-License-Identifier: MIT
"""A site whose commands all go through the program that sudo starts, on the real SLURM: it refuses bulk loads only."""

from __future__ import annotations

import sys
from pathlib import Path

from agent.run import passes
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests import REPOSITORY
from tests.agent.run.membership.on_slurm import OnSlurm

CHECKED = REPOSITORY / "systemd" / "examples" / "checked-slurm"
PROGRAMS = ("sacctmgr", "sacct", "squeue", "scancel", "scontrol", "sreport", "sdiag")


def by_checked_slurm(slurm: SlurmCluster, folder: Path) -> tuple[Path, Path]:
    """Return a folder of programs as `slurm-by-sudo` makes them, but for sudo; and what was refused."""
    folder.mkdir()
    program, refused = folder / "checked-slurm", folder / "refused"
    text = CHECKED.read_text()
    program.write_text(
        text.replace("ENVIRONMENT = {}", f"ENVIRONMENT = {{'SLURM_CONF': {slurm.env['SLURM_CONF']!r}}}")
    )
    for name in PROGRAMS:
        script = folder / name
        script.write_text(
            f'#!/bin/sh\n{sys.executable} -IS {program} {name} "$@"\ncode=$?\n'
            f'[ "$code" != 126 ] || echo {name} "$@" >> {refused}\nexit "$code"\n'
        )
        script.chmod(0o755)
    refused.touch()
    return folder, refused


def test_a_life_of_an_allocation_needs_no_command_that_is_refused_but_bulk_loads(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    programs, refused = by_checked_slurm(slurm, tmp_path / "programs")
    slurm.change("add qos name=slow,stop")
    with SimulatedWaldur(scenario=Scenario(members_per_project=3)) as waldur:
        site = OnSlurm(
            slurm,
            waldur,
            tmp_path,
            backend={
                "slurm_bin_path": str(programs),
                "qos_default": "normal", "qos_downscaled": "slow", "qos_paused": "stop",
            },
            limits_source="waldur",
        )  # fmt: skip
        one, two = site.allocate_all("one", "two")
        site.join("ffrost9")
        site.converge()
        assert "ffrost9" in site.members("a_one")
        site.leave("ffrost9")
        site.change(one, paused=True, limits={"cpu": 20})
        site.converge()
        assert "ffrost9" not in site.members("a_one")
        assert site.assoc("qos,grptresmins", "a_one")[0] == "stop|cpu=1200"
        site.change(one, paused=False)
        site.converge()
        for resource in (one, two):
            waldur.orders.place_terminate(resource)
        report = passes.process_orders(site.orders)
        assert report.counted() == {"done": 2}, report.as_json()
    words = [line.split() for line in refused.read_text().splitlines()]
    assert words, "new accounts were to be loaded at once"
    assert {line[3] for line in words} == {"load"}, words
