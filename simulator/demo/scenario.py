# SPDX-License-Identifier: MIT
"""The demo: the whole system on embedded parts, with orders that travel from a simulated Waldur to accounts.

Waldur (simulated) -> beat, or an event and the bridge (`demo_events`) -> broker -> worker -> cluster
(`demo_clusters`) -> order done. Used by `manage.py demo`.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from agent.config import load
from agent.config.model import Mode
from agent.core.model import Snapshot
from agent.run import site as sites
from simulator.demo import events as demo_events
from simulator.demo import parts
from simulator.demo.clusters import DemoCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OrderState

POLL_PERIOD_MINUTES = 0.05
# What a site may have set for its real agent: the demo speaks to nobody but itself.
APART = {
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
    "SENTRY_DSN": "",
    "FLOWER_ADDRESS": "127.0.0.1",
    # Celery takes these before its own settings.
    "CELERY_BROKER_URL": "",
    "CELERY_BROKER_READ_URL": "",
    "CELERY_BROKER_WRITE_URL": "",
}
ENDED = (OrderState.DONE, OrderState.ERRED, OrderState.REJECTED)


@dataclass(slots=True)
class Demo:
    """A running demo. `orders` are the uuids of the orders that were placed, with when (monotonic seconds)."""

    folder: Path
    kind: DemoCluster
    waldur: SimulatedWaldur
    children: parts.Children
    broker: str
    environment: dict[str, str]
    flower_url: str = ""
    flower_password: str = ""
    orders: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    event_broker: str = ""
    event_latency_s: float | None = None

    @property
    def config(self) -> Path:
        return self.folder / "site.yaml"

    def place_orders(self) -> None:
        projects = self.waldur.seed.project_uuids
        for number, (name, limits) in enumerate(self.kind.orders):
            uuid = self.waldur.place_create_order(projects[number % len(projects)], name, limits=dict(limits))
            self.orders[uuid] = time.monotonic()

    def measure_event(self) -> None:
        """Send one more order through a system that has nothing else to do: only its event brings it there at once."""
        project = self.waldur.seed.project_uuids[0]
        limits = dict(self.kind.orders[0][1])
        self.event_latency_s = demo_events.travel_s(
            self.waldur, lambda: self.waldur.place_create_order(project, "By an event", limits=limits)
        )

    def finished(self) -> bool:
        """Whether every order has ended; notes when each of them did."""
        for uuid in self.orders:
            if uuid not in self.ended and self.waldur.order(uuid).state in ENDED:
                self.ended[uuid] = time.monotonic()
        return len(self.ended) == len(self.orders)

    def cluster(self) -> Snapshot:
        """The cluster as the backend sees it."""
        settings = load.require(self.config, self.environment)
        return sites.connect(settings, settings.offerings[0], Mode.ORDER_PROCESS).backend.observe()

    def faults(self) -> list[str]:
        """What is not as it should be at the end; empty when all is right."""
        found = [f"{name} has ended" for name in self.children.dead()]
        if self.finished() and self.event_latency_s is None:
            found.append("the order that was to travel by an event did not arrive")
        snapshot = self.cluster()
        for uuid in self.orders:
            order, resource = self.waldur.order(uuid), self._resource(uuid)
            account = snapshot.accounts.get(resource.backend_id)
            if order.state is not OrderState.DONE:
                found.append(f"order {resource.name} is {order.state.value}: {order.error_message}")
            elif account is None or not account.limits or not snapshot.users_of(account.name):
                found.append(
                    f"account {resource.backend_id or '(none)'} does not stand with limits and members"
                )
        return found

    def summary(self) -> dict[str, Any]:
        faults = self.faults()
        return {
            "ok": not faults,
            "faults": faults,
            "orders": dict(Counter(self.waldur.order(uuid).state.value for uuid in self.orders)),
            "seconds_per_order": {
                self._resource(uuid).name: round(self.ended[uuid] - placed_s, 1)
                for uuid, placed_s in self.orders.items()
                if uuid in self.ended
            },
            "event_latency_s": None if self.event_latency_s is None else round(self.event_latency_s, 2),
            "broker": self.broker,
            "flower": self.flower_url,
        }

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Name, state, account and seconds of each order, for the live view."""
        now_s = time.monotonic()
        return [
            (
                self._resource(uuid).name,
                self.waldur.order(uuid).state.value,
                self._resource(uuid).backend_id,
                f"{self.ended.get(uuid, now_s) - placed_s:.1f}",
            )
            for uuid, placed_s in self.orders.items()
        ]

    def _resource(self, order_uuid: str) -> Any:
        return self.waldur.resource(self.waldur.order(order_uuid).resource_uuid)


@contextmanager
def running(folder: Path, kind: DemoCluster) -> Iterator[Demo]:
    """Everything started, in the order in which the parts need each other; everything stopped at the end."""
    children = parts.Children(folder)
    with ExitStack() as stack:
        waldur = stack.enter_context(SimulatedWaldur("8.0", scenario=kind.scenario))
        try:
            broker_url, broker = parts.start_broker(children, folder)
            settings, of_cluster = kind.start(folder)
            environment = {
                **os.environ,
                **of_cluster,
                **APART,
                "WALDUR_SITE_AGENT_CONFIG": str(folder / "site.yaml"),
                "WALDUR_SITE_AGENT_BROKER_URL": broker_url,
                "WALDUR_SITE_AGENT_STATE_DIR": str(folder / "state"),
                "WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES": str(POLL_PERIOD_MINUTES),
            }
            demo = Demo(folder, kind, waldur, children, broker, environment)
            demo.event_broker, event_port = stack.enter_context(demo_events.broker(children, folder))
            _write_configuration(demo, settings, demo_events.keys(event_port))
            os.environ.update(of_cluster)
            demo.cluster()  # a cluster that does not work is told now, not when the orders are overdue
            demo_events.start_bridge(children, waldur, event_port, environment)
            _start_agent(demo)
            yield demo
        finally:
            children.stop()


def _start_agent(demo: Demo) -> None:
    children, port = demo.children, parts.free_port()
    demo.flower_url, demo.flower_password = f"http://127.0.0.1:{port}/", secrets.token_urlsafe(9)
    flower = {
        **demo.environment,
        "FLOWER_BASIC_AUTH": f"demo:{demo.flower_password}",
        "FLOWER_PORT": str(port),
    }
    children.start("worker", parts.celery("worker", "--without-mingle", "--without-gossip"), demo.environment)
    children.start("beat", parts.celery("beat"), demo.environment)
    children.start("flower", parts.celery("flower"), flower)
    demo_events.wait_for_bridge(children)
    children.wait("worker", lambda: b" ready." in children.log("worker").read_bytes())
    children.wait("flower", lambda: parts.listens(port))


def _write_configuration(demo: Demo, settings: dict[str, Any], events: dict[str, Any]) -> None:
    waldur, backend = demo.waldur, demo.kind.backend
    offering = {
        "name": "Demo cluster",
        "waldur_api_url": waldur.url,
        "waldur_api_token": waldur.token(),
        "waldur_offering_uuid": waldur.seed.offering_uuid,
        "order_processing_backend": backend,
        "membership_sync_backend": backend,
        "backend_type": backend,
        **events,
        "backend_settings": {
            "default_account": "root",
            "customer_prefix": "c_",
            "project_prefix": "p_",
            "allocation_prefix": "a_",
            "cluster_name": "demo",
            **settings,
            # The people of the demo are none of this machine's.
            "enable_user_homedir_account_creation": False,
        },
        "backend_components": {name: dict(given) for name, given in demo.kind.components.items()},
    }
    demo.config.touch(mode=0o600)
    demo.config.write_text(yaml.safe_dump({"offerings": [offering]}, sort_keys=False), encoding="utf-8")
