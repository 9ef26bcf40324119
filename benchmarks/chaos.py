# SPDX-License-Identifier: MIT
"""Chaos at full size: sixty kills of everything, in two random orders."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.parts import Parts
from rig import chaos
from rig.event_kills import on_mosquitto
from rig.mosquitto import Mosquitto

KILLS = 60


def run(parts: Parts) -> Iterator[str]:
    mosquitto = Mosquitto(parts.new_folder())
    mosquitto.start()
    try:
        for seed in (1, 2):
            parts.slurm.reset()
            setup = on_mosquitto(parts.slurm, mosquitto, parts.new_folder(), qos=1)
            outcome = chaos.run(setup, kills=KILLS, seed=seed)
            kills = ", ".join(f"{count} of {name}" for name, count in sorted(outcome.kills.items()))
            yield (
                f"{outcome.orders} orders and as many joins and leaves, kills: {kills} (seed {seed}), two of each "
                f"process: {outcome.seconds:.0f} s, faults: {outcome.faults or 'none'}"
            )
            mosquitto.stop()
            mosquitto.forget()
            mosquitto.start()
    finally:
        mosquitto.stop()
