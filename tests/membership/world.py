# SPDX-License-Identifier: MIT
"""A simulated Waldur with allocations in use, and a cluster in memory on which they stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.core.associations import Association
from agent.core.model import Account, Snapshot
from agent.run import passes
from agent.run.results import PassReport
from agent.run.scope import PassScope
from agent.run.site import Site
from agent.waldur.client import WaldurClient
from backends.testing.memory import MemoryBackend, slurm_settings
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import Resource
from tests.one_mode import planned_members

CPU = {"cpu": 10, "mem": 2}


class World:
    """`allocate` makes what orders would; `sync` is one pass."""

    def __init__(
        self,
        waldur: SimulatedWaldur,
        folder: Path,
        *,
        backend: Mapping[str, Any] | None = None,
        user: str = "agent",
        **offering: Any,
    ) -> None:
        self.waldur = waldur
        settings = dict(backend or {})
        self.backend = MemoryBackend(settings=slurm_settings(**settings))
        keys = {"membership_sync_backend": "slurm", "waldur_api_token": waldur.token(user), **offering}
        configured = settings_of(configuration(waldur, folder, backend=settings, **keys)).offerings[0]
        client = WaldurClient(
            configured.access,
            user_agent="waldur-site-agent-test",
            offering_uuid=configured.uuid,
            attempts=1,
        )
        self.site = Site(configured, client, self.backend, folder / "state")

    @property
    def cluster(self) -> Snapshot:
        return self.backend.state

    def allocate(self, name: str, *, project: int = 0, **limits: float) -> str:
        """Place a create order and let it be done; the uuid of its resource."""
        project_uuid = self.waldur.seed.project_uuids[project]
        order = self.waldur.place_create_order(project_uuid, name, limits=limits or CPU, slug=name)
        report = passes.process_orders(self.site)
        assert report.counted() == {"done": 1}, report.as_json()
        return self.waldur.order(order).resource_uuid

    def fill(self) -> None:
        """The cluster as it is when every resource of the scenario is in step."""
        store = self.waldur.store
        accounts: dict[str, Account] = dict(self.cluster.accounts)
        members: set[Association] = set()
        names = {row.user_uuid: row.username for row in store.offering_users}
        for resource in store.resources:
            project = store.projects[resource.project_uuid]
            customer = store.customers[project.customer_uuid]
            accounts |= {
                f"c_{customer.slug}": Account(f"c_{customer.slug}", "root"),
                f"p_{project.slug}": Account(f"p_{project.slug}", f"c_{customer.slug}"),
            }
            name = resource.backend_id.lower()
            accounts[name] = Account(name, f"p_{project.slug}")
            members |= {Association(name, names[g.user_uuid]) for g in store.active_grants(project.uuid)}
            self.change(resource.uuid, last_sync=datetime.now(UTC))
        homes = {member.user: member.account for member in sorted(members, key=lambda m: m.account)}
        self.backend.state = replace(
            self.cluster, accounts=accounts, associations=frozenset(members), default_accounts=homes
        )

    def settled(self) -> None:
        """Passes until nothing is left to do."""
        for _ in range(3):
            report = self.sync()
            assert report.error is None, report.error
            assert not report.failed, report.as_json()
        assert self.changes(report) == []

    def sync(self, *, resource: str = "", project: str = "", seconds: float = 1000) -> PassReport:
        scope = PassScope.of(resource_uuid=resource, project_uuid=project)
        return passes.sync_members(self.site, scope=scope, seconds=seconds)

    def changes(self, report: PassReport) -> list[str]:
        """All that a pass did, but for saying that it was there."""
        return [o.action.render() for o in report.outcomes if o.done and o.action.verb != "refresh last sync"]

    def planned(self) -> list[str]:
        return sorted(action.render().split("  (")[0] for action in planned_members(self.site).actions)

    def join(self, username: str, *, project: int = 0, account: str | None = None) -> None:
        """Into the project's team, under this name on the cluster (the same one, when none is given)."""
        uuid = self.waldur.seed.project_uuids[project]
        self.waldur.people.add_member(uuid, username, account=username if account is None else account)

    def leave(self, username: str, *, project: int = 0) -> None:
        self.waldur.people.remove_member(self.waldur.seed.project_uuids[project], self.person(username))

    def person(self, account: str) -> str:
        """Whoever has this name on the cluster, by username in Waldur."""
        for row in self.waldur.store.offering_users:
            if row.username == account:
                return self.waldur.store.users[row.user_uuid].username
        return account

    def stray(self, user: str, account: str, *, default: str = "") -> None:
        """Somebody in an account of whom Waldur knows nothing."""
        state = self.backend.state
        homes = {**state.default_accounts, user: default or state.default_accounts.get(user, account)}
        joined = state.associations | {Association(account, user)}
        self.backend.state = replace(state, associations=joined, default_accounts=homes)

    def alter(self, account: str, **fields: Any) -> None:
        """Change an account behind everybody's back."""
        accounts = self.cluster.accounts
        changed = replace(accounts[account], **fields)
        self.backend.state = replace(self.cluster, accounts={**accounts, account: changed})

    def change(self, resource: str, **values: Any) -> None:
        self.waldur.site.change("resources", resource, **values)

    def in_step(self) -> None:
        """One more pass changes nothing and sends nothing but reads."""
        self.waldur.requests.reset()
        report = self.sync()
        assert (report.error, self.changes(report), report.failed) == (None, [], False), report.as_json()
        assert {line.split()[0] for line in self.waldur.request_counts()} <= {"GET"}

    def members(self, account: str) -> set[str]:
        return set(self.cluster.users_of(account))

    def resource(self, uuid: str) -> Resource:
        return self.waldur.resource(uuid)

    def project_of(self, uuid: str) -> str:
        return self.resource(uuid).project_uuid
