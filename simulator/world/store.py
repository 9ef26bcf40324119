# SPDX-License-Identifier: MIT
"""The whole state of one simulated server, its lock, its clock and its settings.

Rules and handlers are given a Store; every access from outside happens inside `with store.lock`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date

from simulator.events.broker import EventBroker
from simulator.world import agent_records as agent_rows
from simulator.world import records as rows
from simulator.world.ages import Age
from simulator.world.background import Background
from simulator.world.clock import SimClock
from simulator.world.identifiers import Slugs, UuidSource
from simulator.world.table import Table


@dataclass(kw_only=True)
class Settings:
    """Settings that a test or a demo may change while the server runs."""

    processor_delay_s: float = 0.0
    page_size_default: int = 10
    page_size_max: int = 300
    # The processor that runs after approval resets the resource's backend_id once per resource.
    loses_backend_id: bool = False
    oidc_expires_in_s: int = 300


@dataclass(kw_only=True)
class ServiceProvider(rows.Record):
    customer_uuid: str
    created: object


class Store:
    def __init__(self, age: Age, *, seed: int = 0, settings: Settings | None = None) -> None:
        self.age = age
        self.settings = settings or Settings()
        self.lock = threading.RLock()
        self.clock = SimClock()
        self.background = Background(self.clock)
        self.uuids = UuidSource(seed)
        self.slugs = Slugs(age)
        self.tokens: dict[str, rows.Token] = {}
        self.oidc_clients: dict[str, tuple[str, str]] = {}
        self.denied: set[tuple[str, str]] = set()
        # Permissions of roles that a site has made, or changed, by name.
        self.made_roles: dict[str, frozenset[str]] = {}
        # The day whose start and end dates were looked at, as long as no order, resource or project changes.
        self.dates_checked_on: date | None = None
        # Who reports changes to others: called, with the lock held, after anything may have changed.
        self.watchers: list[Callable[[], None]] = []
        # Where logins and queues are made for subscriptions; without brokers they are bookkeeping only.
        self.brokers: list[EventBroker] = []
        self._make_market_tables()
        self._make_agent_tables()

    def _make_market_tables(self) -> None:
        self.customers: Table[rows.Customer] = Table()
        self.projects: Table[rows.Project] = Table(customer=lambda p: p.customer_uuid)
        self.users: Table[rows.User] = Table(username=lambda u: u.username)
        self.grants: Table[rows.Grant] = Table(scope=lambda g: g.scope_uuid, user=lambda g: g.user_uuid)
        self.keys: Table[rows.SshKey] = Table(user=lambda k: k.user_uuid)
        self.providers: Table[ServiceProvider] = Table(customer=lambda p: p.customer_uuid)
        self.offerings: Table[rows.Offering] = Table(customer=lambda o: o.customer_uuid)
        self.resources: Table[rows.Resource] = Table(
            offering=lambda r: r.offering_uuid, project=lambda r: r.project_uuid
        )
        self.orders: Table[rows.Order] = Table(
            resource=lambda o: o.resource_uuid, offering=lambda o: o.offering_uuid
        )
        self.offering_users: Table[rows.OfferingUser] = Table(
            pair=lambda o: (o.offering_uuid, o.user_uuid), offering=lambda o: o.offering_uuid
        )
        self.project_groups: Table[rows.ProjectGroup] = Table(provider=lambda g: g.provider_uuid)
        self.usages: Table[rows.ComponentUsage] = Table(resource=lambda u: u.resource_uuid)
        self.user_usages: Table[rows.UserUsage] = Table(usage=lambda u: u.component_usage_uuid)
        self.user_limits: Table[rows.UserUsageLimit] = Table(resource=lambda u: u.resource_uuid)
        self.accounts: Table[rows.SharedAccount] = Table(kind=lambda a: a.kind)

    def _make_agent_tables(self) -> None:
        self.identities: Table[agent_rows.AgentIdentity] = Table()
        self.services: Table[agent_rows.AgentService] = Table(identity=lambda s: s.identity_uuid)
        self.processors: Table[agent_rows.AgentProcessor] = Table(service=lambda p: p.service_uuid)
        self.logs: list[agent_rows.AgentLogLine] = []
        self.subscriptions: Table[agent_rows.EventSubscription] = Table(user=lambda s: s.user_uuid)
        self.queues: Table[agent_rows.EventQueue] = Table(subscription=lambda q: q.subscription_uuid)
        self.consumers: Table[agent_rows.EventConsumer] = Table(identity=lambda c: c.identity_uuid)
        self.statuses: Table[agent_rows.IntegrationStatus] = Table(offering=lambda s: s.offering_uuid)
        self.policies: Table[agent_rows.PeriodicPolicy] = Table(offering=lambda p: p.offering_uuid)
        self.import_requests: Table[agent_rows.BackendResourceRequest] = Table()
        self.backend_resources: Table[agent_rows.BackendResource] = Table()
        self.api_keys: Table[agent_rows.ApiKey] = Table()
        # By resource, person and role: state and message.
        self.member_statuses: dict[tuple[str, str, str], tuple[str, str]] = {}
        self.command_results: list[agent_rows.CommandResult] = []

    def changed(self) -> None:
        for watcher in self.watchers:
            watcher()

    def offering_of(self, row: rows.Resource | rows.Order) -> rows.Offering:
        return self.offerings[row.offering_uuid]

    def customer_of(self, row: rows.Resource | rows.Order) -> rows.Customer:
        return self.customers[self.projects[row.project_uuid].customer_uuid]

    def plan_of(self, row: rows.Resource | rows.Order) -> rows.Plan | None:
        return self.offerings[row.offering_uuid].plan(row.plan_uuid)

    def offering_user(self, offering_uuid: str, user_uuid: str) -> rows.OfferingUser | None:
        return self.offering_users.first("pair", (offering_uuid, user_uuid))

    def active_grants(self, *scope_uuids: str) -> list[rows.Grant]:
        return self._unexpired(self.grants.where("scope", *scope_uuids))

    def active_roles(self, user_uuid: str) -> list[rows.Grant]:
        return self._unexpired(self.grants.where("user", user_uuid))

    def pending_order(self, resource_uuid: str) -> rows.Order | None:
        """Return the unfinished order of the resource; a real server has at most one."""
        unfinished = [o for o in self.orders.where("resource", resource_uuid) if not o.state.is_terminal]
        return unfinished[-1] if unfinished else None

    def _unexpired(self, grants: Iterable[rows.Grant]) -> list[rows.Grant]:
        now = self.clock.now()
        return [g for g in grants if g.expiration_time is None or g.expiration_time > now]
