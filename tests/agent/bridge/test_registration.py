# SPDX-License-Identifier: MIT
"""What the bridge asks Waldur for, and what it makes of its answers. The STOMP broker is a stand-in or away."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.bridge.registration import Registration, is_unknown_type
from agent.config.model import Offering
from agent.core.errors import WaldurError
from agent.core.events import ObjectType
from agent.run import site as sites
from agent.waldur.identities import Program
from rig.processes import wait_until
from rig.site import configuration, settings_of
from simulator.api import events
from simulator.events.broker import BrokerFailed
from simulator.server.routes import Call
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import JsonObject
from tests.agent.bridge.inprocess import RunningBridge, quick

pytestmark = pytest.mark.events

PROGRAM = Program("1.0", {}, "/etc/site.yaml", datetime(2026, 1, 1, tzinfo=UTC))
KEYS = {
    "stomp_enabled": True,
    "stomp_ws_host": "127.0.0.1",
    "stomp_ws_port": 9,
    "websocket_use_tls": False,
    "membership_sync_backend": "slurm",
}
EIGHT = {
    "order",
    "resource_api_key_rotation",
    "user_role",
    "resource",
    "service_account",
    "course_account",
    "offering_user",
    "offering_resources_sync",
}
LATE = "resource_api_key_rotation"


class AwayBroker:
    """As the simulated Waldur meets a RabbitMQ that is away, until `is_away` is false."""

    has_topics = False
    is_away = True

    def add_login(self, vhost: str, login: str, passcode: str) -> None:
        self._meet()

    def add_queue(self, vhost: str, name: str) -> None:
        self._meet()

    def publish(self, vhost: str, name: str, payload: JsonObject) -> None:
        self._meet()

    def close(self) -> None:
        return

    def _meet(self) -> None:
        if self.is_away:
            raise BrokerFailed("RabbitMQ: [Errno 111] Connection refused")


def offering_of(waldur: SimulatedWaldur, folder: Path) -> Offering:
    return settings_of(configuration(waldur, folder, **KEYS)).offerings[0]


def registration_of(waldur: SimulatedWaldur, folder: Path) -> Registration:
    offering = offering_of(waldur, folder)
    return Registration(offering, sites.client(offering, "event_process"), PROGRAM)


@pytest.mark.parametrize(
    ("detail", "is_refused"),
    [
        ("observable_object_type: Not one of the choices", True),
        ("object_type: no", True),
        ('7: "x" is not a valid choice.', True),
        ("offering_uuid: There is no such offering.", False),
        ("RabbitMQ: [Errno 111] Connection refused", False),
    ],
)
def test_words_that_refuse_a_type(detail: str, is_refused: bool) -> None:
    error = WaldurError("no", method="POST", path="x", status=400, detail=detail)
    assert is_unknown_type(error) is is_refused


@pytest.mark.parametrize("age", ["8.0", "8.1"])
def test_a_broker_that_is_away_while_waldur_prepares_refuses_nothing(
    age: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quick(monkeypatch)
    broker = AwayBroker()
    with SimulatedWaldur(age) as waldur:
        waldur.store.brokers.append(broker)
        configured = settings_of(configuration(waldur, tmp_path, **KEYS))
        with RunningBridge(configured) as bridge:
            (state,) = bridge.bridge._states.values()
            wait_until("it is logged", lambda: "no events yet" in caplog.text)
            assert not state.is_prepared
            broker.is_away = False
            wait_until("all is prepared", lambda: state.is_prepared)
            assert ObjectType.ORDER in {kind for s in state.prepared.sources for kind in s.types}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What types the one queue was given, by an 8.1 that does not know one of them."""
    sets: list[list[str]] = []
    require, make = events._require_type, events._make_consumer

    def strict(call: Call, name: str, object_type: object) -> None:
        if object_type == LATE:
            raise events.bad_field(name, f"Not one of the choices: {object_type}")
        require(call, name, object_type)

    def noted(call: Call, row: events.EventConsumer) -> None:
        sets.append(list(row.object_types))
        make(call, row)

    monkeypatch.setattr(events, "_require_type", strict)
    monkeypatch.setattr(events, "_make_consumer", noted)
    return sets


def test_types_of_the_one_queue_are_never_fewer_than_they_were(
    tmp_path: Path, taken: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with SimulatedWaldur("8.1") as waldur:
        made = registration_of(waldur, tmp_path)
        first = made.prepare()
        assert first.is_narrowed
        assert set(first.refused) == {LATE}
        assert [len(kinds) for kinds in taken] == [1, 2, 3, 4, 5, 6, 7]
        taken.clear()
        again = made.prepare()
        assert [set(kinds) for kinds in taken] == [EIGHT - {LATE}]
        assert (again.sources, again.is_narrowed) == (first.sources, False)
        monkeypatch.undo()
        (source,) = made.prepare().sources
        assert source.types == EIGHT


def test_a_server_that_refuses_all_types_is_never_asked_for_all_of_them(
    tmp_path: Path, taken: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To Waldur an empty list means all types."""

    def none(_: Call, name: str, object_type: object) -> None:
        raise events.bad_field(name, f"Not one of the choices: {object_type}")

    with SimulatedWaldur("8.1") as waldur:
        monkeypatch.setattr(events, "_require_type", none)
        prepared = registration_of(waldur, tmp_path).prepare()
        assert (prepared.sources, set(prepared.refused)) == ((), EIGHT)
        assert taken == []


@pytest.mark.parametrize("age", ["8.0", "8.1"])
def test_an_identity_that_was_deleted_is_made_again(age: str, tmp_path: Path) -> None:
    with SimulatedWaldur(age) as waldur:
        made = registration_of(waldur, tmp_path)
        made.prepare()
        for asked_again in (made.prepare, made.renew_service):
            forget(waldur)
            found = asked_again()
            if asked_again == made.renew_service:
                assert found is False
                made.prepare()
            assert made.renew_service()
            (identity,) = waldur.store.identities
            assert [service.identity_uuid for service in waldur.store.services] == [identity.uuid]


def forget(waldur: SimulatedWaldur) -> None:
    store = waldur.store
    with store.lock:
        for table in (store.identities, store.consumers, store.services, store.processors):
            for row in list(table):
                table.remove(row)
