# SPDX-License-Identifier: MIT
"""Markers of passes that wait in the queue: they live as long as the task does, not longer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fakeredis import FakeStrictRedis

import beat_schedule as table
from agent.config.load import load
from rig.site import configuration
from simulator.server.waldur import SimulatedWaldur
from tasks.locks import MARKER_PREFIX, mark_queued, unmark_queued


@pytest.mark.parametrize("minutes", ["5", "0.05", "720"])
def test_a_marker_ends_shortly_before_the_task_that_it_stands_for(tmp_path: Path, minutes: str) -> None:
    """A task that expires unseen leaves its marker: beat would be silent until that ends, too."""
    with SimulatedWaldur() as waldur:
        environ = {"WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES": minutes}
        settings = load(configuration(waldur, tmp_path), environ).settings
    assert settings is not None
    (slot,) = [slot for slot in table.slots(settings) if slot.task == "order_process.poll"]
    expires_s = table.entries(settings)[slot.name]["options"]["expires"]
    client = FakeStrictRedis()
    before_s = time.time()
    assert mark_queued(client, slot.task, slot.offering_uuid, slot.period_s)
    assert not mark_queued(client, slot.task, slot.offering_uuid, slot.period_s)
    ends_s = client.pexpiretime(f"{MARKER_PREFIX}{slot.task}:{slot.offering_uuid}") / 1000
    assert before_s + 0.8 * expires_s < ends_s < time.time() + expires_s
    unmark_queued(client, slot.task, slot.offering_uuid)
    assert mark_queued(client, slot.task, slot.offering_uuid, slot.period_s)
