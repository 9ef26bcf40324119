# SPDX-License-Identifier: MIT
"""A tenth of the benchmark: a hundred people join thirty projects at once, and the worker is killed on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.state.passes import Figure
from rig import event_flood
from rig.bridge_brokers import mqtt_keys
from rig.mosquitto import Mosquitto
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.slurm_cluster import SlurmCluster
from simulator.events.changes import Message
from simulator.events.mqtt import MqttBroker

pytestmark = [pytest.mark.events, pytest.mark.floods]

JOINS, PROJECTS = 100, 30


def test_a_flood_of_joins_is_a_few_passes_and_none_is_lost(
    slurm: SlurmCluster, redis_server: RedisServer, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    broker = MqttBroker("127.0.0.1", mosquitto.port, qos=1)
    with event_flood.site(
        slurm, redis_server, broker, tmp_path, projects=PROJECTS, **mqtt_keys(mosquitto)
    ) as site:
        people, projects, publisher = (
            site.waldur.people,
            site.waldur.seed.project_uuids,
            site.waldur.publisher,
        )
        assert publisher is not None
        wait_until("quiet", site.is_quiet)
        before = {figure: site.sums(figure).total() for figure in Figure}
        for number in range(JOINS):
            project = projects[number % PROJECTS]
            people.add_member(project, f"flood{number}", account=f"flood{number}")
            if number % 10 == 0:
                people.remove_member(project, f"flood{number}")
            if number == JOINS // 2:
                wait_until("the first are in", lambda: "flood1" in site.joined())
                site.worker.kill()
        # Once more, the other way round, and one that Waldur does not know.
        for project in [*reversed(projects), "0123456789abcdef0123456789abcdef"]:
            role = {"project_uuid": project, "project_name": "x"}
            publisher.send(Message("user_role", site.waldur.seed.offering_uuid, role))
        site.worker.start()
        wait_until("the cluster is as Waldur wants it", lambda: not site.differences())
        wait_until("quiet", site.is_quiet)
        took = {figure: site.sums(figure) for figure in (Figure.PASSES, Figure.COMMANDS, Figure.REQUESTS)}
        print(took)
        assert not site.differences()
        assert site.backlog() == 0
        assert took[Figure.PASSES].total() - before[Figure.PASSES] < PROJECTS // 2
        assert took[Figure.COMMANDS]["write"] < PROJECTS
        assert took[Figure.REQUESTS].total() - before[Figure.REQUESTS] < 5 * PROJECTS
