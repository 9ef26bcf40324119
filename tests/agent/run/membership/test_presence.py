# SPDX-License-Identifier: MIT
"""The agent shows itself in Waldur where it polls, too: once, and then by one request in a few minutes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.run.service import presence
from agent.run.site import Site
from agent.waldur.features import Features
from agent.waldur.identities import Program
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.membership.conftest import WorldFactory
from tests.world import World

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
PROGRAM = Program("1.0", {"celery": "5"}, "/etc/site.yaml", START - timedelta(minutes=1))
SYNC = Mode.MEMBERSHIP_SYNC
IDENTITY, SERVICE, PROCESSOR = (
    "GET marketplace-site-agent-identities/",
    "POST marketplace-site-agent-identities/{uuid}/register_service/",
    "POST marketplace-site-agent-services/{uuid}/register_processor/",
)


class Polls:
    """`at`: the requests of showing a mode so many minutes after the start."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.program = PROGRAM

    def at(self, minutes: float, *, mode: Mode = SYNC, site: Site | None = None) -> dict[str, int]:
        self.world.waldur.requests.reset()
        presence.report(site or self.world.site, mode, self.program, START + timedelta(minutes=minutes))
        return dict(self.world.waldur.request_counts())

    def journal(self) -> list[str]:
        path = self.world.site.state_dir / "journal" / "journal.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["action"]["text"] for line in lines]


@pytest.fixture
def polls(world: World) -> Polls:
    return Polls(world)


def test_requests_of_an_hour_of_polls_every_five_minutes(polls: Polls) -> None:
    """The heartbeat that Waldur needs within ten minutes, and nothing else."""
    assert polls.at(0) == {
        IDENTITY: 1,
        "POST marketplace-site-agent-identities/": 1,
        SERVICE: 1,
        PROCESSOR: 1,
    }
    hour = [polls.at(minutes) for minutes in range(5, 61, 5)]
    assert hour == [{PROCESSOR: 1}] * 12
    assert polls.journal() == ["register agent with service membership_sync on slurm"]
    store = polls.world.waldur.store
    (service,), (processor,) = store.services, store.processors
    assert (service.name, service.mode) == (SYNC, SYNC)
    assert (processor.name, processor.backend_type) == ("OfferingMembershipProcessor", "slurm")


def test_polls_every_minute_send_one_request_in_four(polls: Polls) -> None:
    polls.at(0)
    assert [sum(polls.at(minute).values()) for minute in range(1, 9)] == [0, 0, 0, 1, 0, 0, 0, 1]


def test_a_service_that_was_idle_is_made_active_again(polls: Polls) -> None:
    polls.at(0)
    assert polls.at(30) == {SERVICE: 1, PROCESSOR: 1}


def test_modes_share_the_identity_and_a_restart_or_another_version_renews_it(polls: Polls) -> None:
    polls.at(0)
    polls.at(0, mode=Mode.REPORT)
    store = polls.world.waldur.store
    assert (len(store.identities), len(store.services)) == (1, 2)
    polls.program = replace(PROGRAM, version="1.1")
    assert sum(polls.at(1).values()) == 4
    assert [row.version for row in store.identities] == ["1.1"]
    assert polls.at(2) == {}
    polls.program = replace(polls.program, started=START + timedelta(minutes=2))
    assert sum(polls.at(3).values()) == 4


def test_an_identity_that_was_deleted_is_made_again(polls: Polls) -> None:
    polls.at(0)
    store = polls.world.waldur.store
    with store.lock:
        store.services.remove(next(iter(store.services)))
        store.identities.remove(next(iter(store.identities)))
    polls.at(5)
    polls.at(10)
    assert (len(store.identities), len(store.services)) == (1, 1)


def test_a_server_of_2024_is_asked_once_in_an_hour(tmp_path: Path) -> None:
    with SimulatedWaldur("2024") as waldur:
        polls = Polls(World(waldur, tmp_path))
        assert polls.at(0) == {IDENTITY: 1}
        polls.world.site.client.features = Features()  # another process
        assert [polls.at(minutes) for minutes in (5, 59)] == [{}, {}]
        assert polls.at(61) == {IDENTITY: 1}
        assert polls.journal() == []


def test_a_refusal_costs_one_line_in_an_hour_and_no_pass(
    polls: Polls, caplog: pytest.LogCaptureFixture
) -> None:
    polls.world.waldur.people.deny("agent", "OFFERING.UPDATE")
    polls.at(0)
    assert "failed: register agent" in caplog.text
    assert polls.at(5) == {}
    polls.world.waldur.people.allow("agent", "OFFERING.UPDATE")
    assert sum(polls.at(61).values()) == 4


def test_nothing_is_reported_in_a_pause_or_in_observe(make_world: WorldFactory) -> None:
    assert Polls(make_world(policy={"mode": "observe"})).at(0) == {}
