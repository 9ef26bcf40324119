# SPDX-License-Identifier: MIT
"""The demo: the whole system on embedded parts, with orders that travel from a simulated Waldur to accounts.

Waldur (simulated, with a broker of events in it) -> bridge -> broker of tasks -> worker -> cluster (`clusters`) ->
order done. beat starts the passes for which there are no events. Used by `manage.py demo`.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from agent.config import load
from agent.config.model import Mode
from agent.core.model import Snapshot
from agent.host.children import StopRequest
from agent.observability import logs
from agent.run import site as sites
from agent.state.store import JOURNAL
from simulator.demo import parts
from simulator.demo.clusters import DemoCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OrderState

POLL_PERIOD_MINUTES = 0.05
# Of passes over members and of reports, which read the cluster each time.
SLOWER_PERIOD_MINUTES = 0.1
EVENT_PAUSE_S = 0.01
PROGRAM = "waldur-site-cluster"
# What a site may have set for its real agent: the demo connects to nothing outside itself.
ISOLATION = {
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
    """A running demo."""

    folder: Path
    kind: DemoCluster
    waldur: SimulatedWaldur
    stop_request: StopRequest
    children: parts.Children
    broker: str
    environment: dict[str, str]
    # What its commands need that a shell does not have.
    own_environment: Mapping[str, str]
    # The commands of the cluster.
    tools: Path
    flower_url: str = ""
    flower_password: str = ""
    console_url: str = ""
    # Uuids of orders, with the monotonic seconds when they were placed.
    orders: dict[str, float] = field(default_factory=dict)
    # The same with those when they ended.
    ended: dict[str, float] = field(default_factory=dict)
    # From an order, placed while the system is idle, to its end in Waldur.
    event_latency_s: float = 0.0
    _seen: tuple[int, Snapshot] | None = None

    @property
    def config(self) -> Path:
        return self.folder / "site.yaml"

    @property
    def activation(self) -> Path:
        """A file that leads the commands of a shell to this demo."""
        return self.folder / "activate"

    def write_activation(self) -> None:
        """Write it: the environment, our program and the commands of the cluster."""
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / PROGRAM).symlink_to(Path(sys.executable).with_name(PROGRAM))
        self.activation.touch(mode=0o600)
        # Lines of the log are for people here, also where they go through a pipe.
        variables = {**self.own_environment, "WALDUR_SITE_AGENT_LOG_FORMAT": logs.TEXT}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        lines.append(f"export PATH={shlex.quote(f'{programs}:{self.tools}')}:$PATH")
        self.activation.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def order_line(self) -> str:
        """Return a command line that places one more order, in any shell."""
        limits = [f"{name}={amount}" for name, amount in self.kind.orders[-1][1].items()]
        words = [sys.executable, "-m", "simulator.place_order", self.waldur.root_url, "Tide tables", *limits]
        return shlex.join(words)

    def place_orders(self) -> None:
        projects = self.waldur.seed.project_uuids
        for number, (name, limits) in enumerate(self.kind.orders):
            uuid = self.waldur.place_create_order(projects[number % len(projects)], name, limits=dict(limits))
            self.orders[uuid] = time.monotonic()

    def measure_event(self) -> None:
        """Place one more order while the system is idle: only its event can bring it there at once. Raises
        NeverCame.
        """
        started_s = time.monotonic()
        order = self.waldur.place_create_order(
            self.waldur.seed.project_uuids[0], "By an event", limits=dict(self.kind.orders[0][1])
        )
        self.children.wait_for_work(
            "the end of the order that arrives by an event",
            lambda: self.waldur.order(order).state in ENDED,
            EVENT_PAUSE_S,
        )
        self.event_latency_s = time.monotonic() - started_s

    def finished(self) -> bool:
        """Return whether every order has ended, and note when each of them did."""
        for uuid in self.orders:
            if uuid not in self.ended and self.waldur.order(uuid).state in ENDED:
                self.ended[uuid] = time.monotonic()
        return len(self.ended) == len(self.orders)

    def cluster(self) -> Snapshot:
        """Observe the cluster through the backend."""
        settings = load.require(self.config, self.environment)
        return sites.connect(settings, settings.offerings[0], Mode.ORDER_PROCESS).backend.observe()

    def changed_cluster(self) -> Snapshot:
        """Return the last observation, a new one where the journal has grown since: each starts programs of the
        emulator, which take the processor from the worker.
        """
        journal = self.folder / "state" / JOURNAL
        size = journal.stat().st_size if journal.exists() else 0
        if self._seen is None or self._seen[0] != size:
            self._seen = size, self.cluster()
        return self._seen[1]

    def faults(self) -> list[str]:
        """Return what is wrong at the end, a sentence each."""
        found = self.children.dead()
        snapshot = self.cluster()
        for uuid in self.orders:
            order, resource = self.waldur.order(uuid), self._resource(uuid)
            account = snapshot.accounts.get(resource.backend_id)
            if order.state is not OrderState.DONE:
                found.append(f"order {resource.name} is {order.state.value}: {order.error_message}")
            elif account is None or not account.limits or not snapshot.users_of(account.name):
                found.append(
                    f"account {resource.backend_id or '(none)'} does not exist with limits and members"
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
            "event_latency_s": round(self.event_latency_s, 2),
            "broker": self.broker,
            "flower": self.flower_url,
            "console": self.console_url,
        }

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return name, state, account and seconds of each order, for the live view."""
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
def running(
    folder: Path, kind: DemoCluster, stop_request: StopRequest, say: Callable[[str], None]
) -> Iterator[Demo]:
    """Start everything, in the order in which the parts need each other, and stop it at the end. `say` gets a line now
    and then of what takes long.

    Raises Stopped where a stop is asked for while it starts.
    """
    children = parts.Children(folder, stop_request, say)
    say("starting the simulated Waldur")
    with SimulatedWaldur("8.0", scenario=kind.scenario) as waldur:
        waldur.publish_to(waldur.stomp)
        try:
            broker_url, broker = parts.start_broker(children, folder)
            settings, cluster_environment = kind.start(children, folder)
            own = {
                **cluster_environment,
                "WALDUR_SITE_AGENT_CONFIG": str(folder / "site.yaml"),
                "WALDUR_SITE_AGENT_BROKER_URL": broker_url,
                "WALDUR_SITE_AGENT_STATE_DIR": str(folder / "state"),
                "WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES": str(POLL_PERIOD_MINUTES),
                "WALDUR_SITE_AGENT_MEMBERSHIP_SYNC_PERIOD_MINUTES": str(SLOWER_PERIOD_MINUTES),
                "WALDUR_SITE_AGENT_REPORT_PERIOD_MINUTES": str(SLOWER_PERIOD_MINUTES),
            }
            environment = {**os.environ, **ISOLATION, **own}
            tools = Path(settings[f"{kind.backend}_bin_path"])
            demo = Demo(folder, kind, waldur, stop_request, children, broker, environment, own, tools)
            _write_configuration(demo, settings)
            os.environ.update(cluster_environment)
            demo.cluster()  # a cluster that does not work is reported now, not when the orders are overdue
            _start_agent(demo)
            yield demo
        finally:
            children.stop()


def _start_agent(demo: Demo) -> None:
    children, port, console_port = demo.children, parts.free_port(), parts.free_port()
    demo.console_url = f"http://127.0.0.1:{console_port}/"
    demo.flower_url, demo.flower_password = f"http://127.0.0.1:{port}/", secrets.token_urlsafe(9)
    flower = {
        **demo.environment,
        "FLOWER_BASIC_AUTH": f"demo:{demo.flower_password}",
        "FLOWER_PORT": str(port),
    }
    children.say("starting the bridge, the worker, beat, Flower and the console")
    children.start("bridge", [sys.executable, *parts.COMMAND, "bridge"], demo.environment)
    children.start("worker", parts.celery("worker", "--without-mingle", "--without-gossip"), demo.environment)
    children.start("beat", parts.celery("beat"), demo.environment)
    children.start("flower", parts.celery("flower"), flower)
    console = [sys.executable, *parts.COMMAND, "console", "--listen", str(console_port)]
    children.start("console", console, demo.environment)
    children.wait("bridge", lambda: b"a full pass is queued" in children.log("bridge").read_bytes())
    children.wait("worker", lambda: b" ready." in children.log("worker").read_bytes())
    children.wait("flower", lambda: parts.listens(port))
    children.wait("console", lambda: parts.listens(console_port))


def _write_configuration(demo: Demo, settings: dict[str, Any]) -> None:
    waldur, backend = demo.waldur, demo.kind.backend
    offering = {
        "name": "Demo cluster",
        "waldur_api_url": waldur.url,
        "waldur_api_token": waldur.token(),
        "waldur_offering_uuid": waldur.seed.offering_uuid,
        "order_processing_backend": backend,
        "membership_sync_backend": backend,
        "reporting_backend": backend,
        "backend_type": backend,
        # Small, so that a plan is held.
        "policy": {"max_removed_accounts": 1},
        "stomp_enabled": True,
        "stomp_ws_port": urlsplit(waldur.url).port,
        "websocket_use_tls": False,
        "backend_settings": {
            "default_account": "root",
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
