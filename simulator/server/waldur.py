# SPDX-License-Identifier: MIT
"""The simulated Waldur as one object: starts a server on loopback in a thread of its own and steers it.

Tests, the demo and the CLI use `SimulatedWaldur`; nothing else of the package needs to be known to them
but `Scenario` and `Settings` to describe it and `Fault` to break it.
"""

from __future__ import annotations

from types import TracebackType

from simulator.control.experiments import OrderControl, PeopleControl, SiteControl
from simulator.control.http import Controls
from simulator.events.broker import EventBroker
from simulator.events.publisher import Publisher
from simulator.events.stomp import StompBroker
from simulator.server.application import application
from simulator.server.faults import Fault, Faults
from simulator.server.listener import Listener
from simulator.server.request_log import RequestLog
from simulator.world import seed
from simulator.world.ages import Age
from simulator.world.records import JsonObject, Order, Resource
from simulator.world.seed import Scenario
from simulator.world.store import Settings, Store


class SimulatedWaldur:
    """`orders`, `people` and `site` change the world; `requests` and `faults` watch and break the API.

    `idle_s`: how long an idle connection is kept. An hour, as what is sent in the moment in which it is closed has no
    answer, and a busy machine may pause a client of the tests for seconds.
    """

    def __init__(
        self,
        age: str = "8.0",
        *,
        scenario: Scenario | None = None,
        settings: Settings | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
        idle_s: float = 3600.0,
    ) -> None:
        self.store = Store(Age(age), settings=settings)
        self.seed = seed.populate(self.store, scenario or Scenario())
        self.orders = OrderControl(self.store, self.seed)
        self.people = PeopleControl(self.store, self.seed)
        self.site = SiteControl(self.store, self.seed)
        self.requests = RequestLog()
        self.faults = Faults()
        controls = Controls(
            orders=self.orders,
            people=self.people,
            site=self.site,
            faults=self.faults,
            requests=self.requests,
            seeded=self.seed,
        )
        # Its own broker, on its own port; nothing comes there before `publish_to`.
        self.stomp = StompBroker()
        self._listener = Listener(
            application(self.store, controls, self.stomp),
            address=address,
            port=port,
            idle_s=idle_s,
        )
        self.publisher: Publisher | None = None

    @property
    def url(self) -> str:
        """The address of the API, with its `/api/`."""
        return f"{self.root_url}/api/"

    @property
    def root_url(self) -> str:
        return f"http://{self._listener.address}:{self._listener.port}"

    def start(self) -> SimulatedWaldur:
        """Serve in a background thread; returns once the port is open. May follow a `stop`."""
        self._listener.start()
        return self

    def stop(self) -> None:
        self.stop_publishing()
        self._listener.stop()

    def stop_publishing(self) -> None:
        """Publish no changes any more. Before that broker is stopped: its connection would be made again."""
        if self.publisher is not None:
            self.publisher.stop()
            self.publisher = None

    def publish_to(self, broker: EventBroker) -> Publisher:
        """From now on publish every change to this broker; logins and queues of subscriptions are made there."""
        self.publisher = Publisher(self.store, broker)
        return self.publisher

    def serve_forever(self) -> None:
        """Serve in this thread until `stop` is called from another one, or the process is interrupted."""
        self._listener.run()

    def __enter__(self) -> SimulatedWaldur:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def place_create_order(
        self, project_uuid: str, name: str, *, limits: JsonObject | None = None, slug: str | None = None
    ) -> str:
        """Place a Create order and return its uuid; `orders` has the other kinds."""
        return self.orders.place_create(project_uuid, name, limits=limits, slug=slug)

    def order(self, order_uuid: str) -> Order:
        return self.orders.get(order_uuid)

    def resource(self, resource_uuid: str) -> Resource:
        return self.site.resource(resource_uuid)

    def request_counts(self) -> dict[str, int]:
        return self.requests.counts()

    def inject(self, fault: Fault) -> None:
        self.faults.add(fault)

    def token(self, username: str = "agent") -> str:
        """Return the API token of a user, for an Authorization header of `Token ...`."""
        with self.store.lock:
            user = self.store.users.where("username", username)[0]
            return next(t.key for t in self.store.tokens.values() if t.user_uuid == user.uuid)
