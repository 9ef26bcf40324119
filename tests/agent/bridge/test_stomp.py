# SPDX-License-Identifier: MIT
"""STOMP on a real RabbitMQ: set-up, what is refused, what is lost and found again. The queue of tasks is a stand-in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from agent.bridge import stomp as wire
from agent.bridge.inbox import HEAD_BYTES
from agent.config.model import Settings
from agent.core.events import JobKind, ObjectType
from rig.bridge_brokers import rabbitmq_side, stomp_keys
from rig.processes import wait_until
from rig.rabbitmq import RabbitMq
from rig.site import configuration, settings_of
from simulator.events.changes import Message
from simulator.events.publisher import Publisher
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.bridge.inprocess import RunningBridge, quick

pytestmark = pytest.mark.events


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)


@pytest.fixture
def waldur(rabbitmq: RabbitMq) -> Iterator[SimulatedWaldur]:
    """Each has users, and so virtual hosts, of its own."""
    with SimulatedWaldur("8.0", scenario=Scenario(allocations_per_project=1)) as server:
        server.publish_to(rabbitmq_side(rabbitmq))
        yield server
    forget(rabbitmq)


def forget(rabbitmq: RabbitMq) -> None:
    """Seeds are alike: the next test's users have the same uuids."""
    _, vhosts = rabbitmq.ask("GET", "vhosts")
    assert isinstance(vhosts, list)
    for vhost in vhosts:
        if vhost["name"] != "/":
            rabbitmq.ask("DELETE", f"vhosts/{vhost['name']}")


def publisher(waldur: SimulatedWaldur) -> Publisher:
    assert waldur.publisher is not None
    return waldur.publisher


def settings(waldur: SimulatedWaldur, rabbitmq: RabbitMq, folder: Path, **more: Any) -> Settings:
    keys = {"membership_sync_backend": "slurm", **stomp_keys(rabbitmq, **more)}
    return settings_of(configuration(waldur, folder, **keys))


def queues(rabbitmq: RabbitMq, vhost: str) -> dict[str, dict[str, Any]]:
    _, found = rabbitmq.ask("GET", f"queues/{quote(vhost)}")
    assert isinstance(found, list)
    return {queue["name"]: queue for queue in found if queue["name"].startswith(("sub", "con"))}


def vhost_of(waldur: SimulatedWaldur) -> str:
    return waldur.store.users.where("username", "agent")[0].uuid


def order(waldur: SimulatedWaldur, slug: str = "one") -> str:
    return waldur.place_create_order(waldur.seed.project_uuids[0], slug, slug=slug)


def orders(bridge: RunningBridge) -> int:
    return sum(job.kind is JobKind.ORDERS for job in bridge.outbox.jobs)


def test_set_up_asks_for_what_is_needed_once_and_finds_it_again(
    waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path
) -> None:
    configured = settings(waldur, rabbitmq, tmp_path, stomp_membership_sync_enabled=False)
    for _ in range(2):
        with RunningBridge(configured) as bridge:
            bridge.listens()
            assert bridge.types() == {ObjectType.ORDER}
    (identity,) = waldur.store.identities
    assert identity.name == f"agent-{waldur.seed.offering_uuid}"
    assert (identity.version, identity.dependencies) == ("1.0", [{"package": "celery", "version": "5"}])
    assert [s.observable_objects for s in waldur.store.subscriptions] == [[{"object_type": "order"}]]
    assert [q.object_type for q in waldur.store.queues] == ["order"]
    assert [(s.name, s.state) for s in waldur.store.services] == [("event_process", "Active")]
    assert [p.backend_type for p in waldur.store.processors] == ["slurm", "slurm"]
    counts = waldur.request_counts()
    assert counts["PUT marketplace-site-agent-identities/{uuid}/"] == 1
    assert counts["POST marketplace-site-agent-identities/"] == 1


def test_types_that_a_server_refuses_are_left_out_and_the_others_cover_the_polls(
    waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with RunningBridge(settings(waldur, rabbitmq, tmp_path)) as bridge:
        bridge.listens()
        wait_until("all types", lambda: len(bridge.types()) == 6)
        wait_until("a heartbeat", lambda: len(set(*bridge.outbox.heartbeats.values())) == 2)
    assert ObjectType.KEY_ROTATION not in bridge.types()
    assert "refused: resource_api_key_rotation (observable_object_type: Not one of the choices" in caplog.text


def test_one_connection_per_login(waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path) -> None:
    """Two offerings of one Waldur user: a login belongs to user and type, so they share each connection."""
    configured = settings(waldur, rabbitmq, tmp_path, stomp_membership_sync_enabled=False)
    with waldur.store.lock:
        second = waldur.store.offerings.add(
            replace(waldur.store.offerings[waldur.seed.offering_uuid], uuid="e" * 32)
        )
    configured = replace(
        configured, offerings=(*configured.offerings, replace(configured.offerings[0], uuid=second.uuid))
    )
    with RunningBridge(configured) as bridge:
        bridge.listens()
        wait_until("both", lambda: bool(bridge.bridge.listened_to(second.uuid)))
        assert connections_to(rabbitmq.ports["web_stomp"]) == 1


def connections_to(port: int) -> int:
    """Established TCP connections to a port of this machine, as the kernel lists them."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(remote.endswith(f":{port:04X}") and state == "01" for _, _, remote, state, *_ in rows)


def test_the_one_queue_of_an_agent(rabbitmq: RabbitMq, tmp_path: Path) -> None:
    with SimulatedWaldur("8.1") as waldur:
        waldur.publish_to(rabbitmq_side(rabbitmq))
        with RunningBridge(settings(waldur, rabbitmq, tmp_path)) as bridge:
            bridge.listens()
            assert len(bridge.types()) == 8
            assert set(queues(rabbitmq, vhost_of(waldur))) == {
                f"consumer_{c.uuid}" for c in waldur.store.consumers
            }
            before = len(bridge.outbox.jobs)
            order(waldur)
            waldur.people.add_member(waldur.seed.project_uuids[0], "newcomer", account="newcomer")
            wait_until("jobs", lambda: len(bridge.outbox.jobs) >= before + 2)
            publisher(waldur).send(Message("weather", waldur.seed.offering_uuid, {}))
        assert waldur.store.subscriptions.where("user", vhost_of(waldur)) == []
    forget(rabbitmq)


def test_a_queue_of_another_user_leads_to_the_queues_of_types(rabbitmq: RabbitMq, tmp_path: Path) -> None:
    with SimulatedWaldur("8.1") as waldur:
        waldur.publish_to(rabbitmq_side(rabbitmq))
        configured = settings(waldur, rabbitmq, tmp_path)
        with RunningBridge(configured) as bridge:
            bridge.listens()
        with waldur.store.lock:
            for consumer in waldur.store.consumers:
                consumer.user_uuid = waldur.store.users.where("username", "agent-offering-manager")[0].uuid
        with RunningBridge(configured) as bridge:
            bridge.listens()
            assert all(s.name.startswith("subscription_") for s in sources(bridge))
    forget(rabbitmq)


def sources(bridge: RunningBridge) -> list[Any]:
    states = bridge.bridge._states.values()
    return [source for state in states for source in state.prepared.sources]


def test_a_queue_that_is_dropped_is_made_again_and_everything_looked_at(
    waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path
) -> None:
    with RunningBridge(settings(waldur, rabbitmq, tmp_path, stomp_membership_sync_enabled=False)) as bridge:
        bridge.listens()
        (name,) = queues(rabbitmq, vhost_of(waldur))
        gaps = bridge.counts["gaps"]
        rabbitmq.delete_queue(vhost_of(waldur), name)
        wait_until("a full pass", lambda: bridge.counts["gaps"] > gaps)
        bridge.listens()
        before = orders(bridge)
        order(waldur)
        wait_until("the next order", lambda: orders(bridge) > before)


def test_a_virtual_host_that_is_gone_is_made_again(
    waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningBridge(settings(waldur, rabbitmq, tmp_path, stomp_membership_sync_enabled=False)) as bridge:
        bridge.listens()
        rabbitmq.ask("DELETE", f"vhosts/{vhost_of(waldur)}")
        wait_until("it is logged", lambda: "refuses the login" in caplog.text)
        bridge.listens()
        before = orders(bridge)
        order(waldur)
        wait_until("the next order", lambda: orders(bridge) > before)


def test_a_wrong_token_is_logged_without_the_token(
    waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with RunningBridge(settings(waldur, rabbitmq, tmp_path, stomp_membership_sync_enabled=False)) as bridge:
        bridge.listens()
        (subscription,) = waldur.store.subscriptions
    rabbitmq.ask("PUT", f"users/{subscription.uuid}", {"password": "another", "tags": ""})
    waldur.store.brokers.clear()  # Waldur does not mend it
    with RunningBridge(settings(waldur, rabbitmq, tmp_path, stomp_membership_sync_enabled=False)) as bridge:
        wait_until("it is logged", lambda: "refuses the login" in caplog.text)
    assert "Access refused" in caplog.text
    assert waldur.token() not in caplog.text
    assert bridge.outbox.heartbeats == {}


def test_tls_is_verified(
    waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"stomp_ws_host": "localhost", "stomp_ws_port": rabbitmq.ports["tls"], "websocket_use_tls": True}
    configured = settings(waldur, rabbitmq, tmp_path, **keys)
    with RunningBridge(configured):
        wait_until("it is logged", lambda: "CERTIFICATE_VERIFY_FAILED" in caplog.text)
    (offering,) = configured.offerings
    trusting = replace(offering, access=replace(offering.access, ca_file=str(rabbitmq.certificate)))
    with RunningBridge(replace(configured, offerings=(trusting,))) as bridge:
        bridge.listens()


def test_a_certificate_of_the_sites_own_is_taken_without_verify_ssl(
    waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path
) -> None:
    keys = {"stomp_ws_host": "localhost", "stomp_ws_port": rabbitmq.ports["tls"], "websocket_use_tls": True}
    with RunningBridge(settings(waldur, rabbitmq, tmp_path, verify_ssl=False, **keys)) as bridge:
        bridge.listens()


def test_plain_tcp(waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path) -> None:
    keys = {"event_transport": "tcp", "stomp_ws_port": rabbitmq.ports["stomp"]}
    with RunningBridge(settings(waldur, rabbitmq, tmp_path, **keys)) as bridge:
        bridge.listens()
        before = orders(bridge)
        order(waldur)
        wait_until("the order", lambda: orders(bridge) > before)


def test_a_queue_with_other_arguments_is_read_all_the_same(
    waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path
) -> None:
    configured = settings(waldur, rabbitmq, tmp_path, stomp_membership_sync_enabled=False)
    with RunningBridge(configured) as bridge:
        bridge.listens()
        (name,) = queues(rabbitmq, vhost_of(waldur))
    rabbitmq.delete_queue(vhost_of(waldur), name)
    place = f"queues/{vhost_of(waldur)}/{name}"
    assert rabbitmq.ask("PUT", place, {"durable": True, "arguments": {"x-max-length": 7}})[0] == 201
    waldur.store.brokers.clear()
    with RunningBridge(configured) as bridge:
        bridge.listens()


def test_what_cannot_be_understood_is_a_dead_letter_and_holds_nothing_up(
    waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path
) -> None:
    own = waldur.seed.offering_uuid
    with RunningBridge(settings(waldur, rabbitmq, tmp_path)) as bridge:
        bridge.listens()
        send = publisher(waldur).send
        send(Message("order", own, {"order_state": "pending-provider"}))
        send(Message("order", own, {"order_uuid": "not-one"}))
        send(Message("user_role", own, {"project_uuid": 7}))
        send(Message("order", own, {"order_uuid": "a" * 32, "filling": "x" * 5_000_000}))
        raw(waldur, "order", {"order_uuid": "a" * 32, "offering_uuid": "f" * 32})
        raw(waldur, "order", "no object")
        before = orders(bridge)
        order(waldur)
        wait_until("the order behind them", lambda: orders(bridge) > before)
        wait_until("those of the other queues, and the long one", lambda: len(bridge.dead_letters()) >= 6)
        # What is on its way to the broker when the bridge ends may come again.
        wait_until("the acknowledgements", lambda: acknowledged(rabbitmq, vhost_of(waldur)) >= 7)
        reasons = sorted(letter.reason for letter in bridge.dead_letters())
    assert reasons == [
        "it has 5000118 bytes; no message of Waldur's has more than 65536",
        "it has no order_uuid",
        "it has no project_uuid",
        f"it is about offering {'f' * 32}, and came for {own}",
        "it is not a JSON object",
        "its order_uuid is no uuid: 'not-one'",
    ]
    assert left_over(rabbitmq, vhost_of(waldur)) == []


def raw(waldur: SimulatedWaldur, object_type: str, payload: Any) -> None:
    """A message past all that the simulated Waldur adds to it."""
    made = publisher(waldur)
    (queue,) = [q for q in waldur.store.queues if q.object_type == object_type]
    subscription = waldur.store.subscriptions[queue.subscription_uuid]
    name = f"subscription_{subscription.uuid}_offering_{queue.offering_uuid}_{object_type}"
    made._broker.publish(subscription.user_uuid, name, payload)


def acknowledged(rabbitmq: RabbitMq, vhost: str) -> int:
    """How many messages the broker knows to be acknowledged; it counts every few seconds."""
    several = queues(rabbitmq, vhost).values()
    return sum(queue.get("message_stats", {}).get("ack", 0) for queue in several)


def left_over(rabbitmq: RabbitMq, vhost: str) -> list[Any]:
    """Messages that were not acknowledged; only once no bridge listens."""
    found: list[Any] = []
    for name in queues(rabbitmq, vhost):
        body = {"count": 1000, "ackmode": "ack_requeue_true", "encoding": "auto"}
        _, got = rabbitmq.ask("POST", f"queues/{vhost}/{name}/get", body)
        assert isinstance(got, list)
        found += got
    return found


def test_nothing_is_acknowledged_while_the_queue_of_tasks_is_away(
    waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.bridge.service.DRAIN_S", 1.0)
    configured = settings(waldur, rabbitmq, tmp_path, stomp_membership_sync_enabled=False)
    with RunningBridge(configured) as bridge:
        bridge.listens()
        bridge.outbox.is_away = True
        for n in range(120):
            publisher(waldur).send(Message("order", waldur.seed.offering_uuid, {"order_uuid": f"{n:032x}"}))
        wait_until("it tries", lambda: bridge.outbox.refusals > 0)
        bridge.stop()
        assert bridge.counts["understood"] == 0
    wait_until("the broker has all", lambda: len(left_over(rabbitmq, vhost_of(waldur))) == 120)
    with RunningBridge(configured) as after:
        after.listens()
        wait_until("all of them", lambda: after.counts["understood"] == 120)


def test_a_silent_broker_is_left(
    waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With heart-beats each second, silence is noticed after two and a half."""
    monkeypatch.setattr(wire, "HEARTBEATS_MS", (1000, 1000))
    monkeypatch.setattr(wire, "SILENCE_S", 2.5)
    with RunningBridge(settings(waldur, rabbitmq, tmp_path, stomp_membership_sync_enabled=False)) as bridge:
        bridge.listens()
        rabbitmq.freeze()
        try:
            wait_until("it is noticed", lambda: not bridge.types())
        finally:
            rabbitmq.resume()
        bridge.listens()


@pytest.mark.parametrize("transport", ["websocket", "tcp"])
def test_a_message_that_is_too_large_is_a_dead_letter_and_the_next_one_comes(
    waldur: SimulatedWaldur, rabbitmq: RabbitMq, tmp_path: Path, transport: str
) -> None:
    more = {"event_transport": "tcp", "stomp_ws_port": rabbitmq.ports["stomp"]} if transport == "tcp" else {}
    configured = settings(waldur, rabbitmq, tmp_path, stomp_membership_sync_enabled=False, **more)
    with RunningBridge(configured) as bridge:
        bridge.listens()
        before = orders(bridge)
        large = {"order_uuid": "0" * 32, "text": "x" * 20_000_000}
        publisher(waldur).send(Message("order", waldur.seed.offering_uuid, large))
        order(waldur)
        wait_until("the order behind it", lambda: orders(bridge) > before)
        (letter,) = bridge.dead_letters()
    assert letter.size > 20_000_000
    assert len(letter.body) == HEAD_BYTES
    assert bridge.counts["gaps"] == 1, "the connection goes on"
