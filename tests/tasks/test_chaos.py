# SPDX-License-Identifier: MIT
"""A tenth of the benchmark: each part is killed once, in a random order, while its twin goes on."""

from __future__ import annotations

from pathlib import Path

from rig import chaos
from rig.event_kills import on_mosquitto
from rig.mosquitto import Mosquitto
from rig.slurm_cluster import SlurmCluster


def test_two_of_each_part_and_kills_at_random_end_in_the_right_state(
    slurm: SlurmCluster, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    outcome = chaos.run(on_mosquitto(slurm, mosquitto, tmp_path, qos=1), kills=len(chaos.VICTIMS))
    print(outcome)
    assert outcome.faults == []
    assert set(outcome.kills) == set(chaos.VICTIMS)
