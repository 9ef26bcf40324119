# SPDX-License-Identifier: MIT
"""The words that all tests have for what happens in Waldur, for a pass, and for what a person decides.

`AnyWorld` has them, whatever the cluster is; `World` is one on a cluster in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from agent.config.model import Mode, Offering
from agent.core.associations import Association
from agent.core.model import Account, Snapshot
from agent.core.ownership import Origin
from agent.core.scope import PassScope
from agent.run import passes
from agent.run.results import PassReport
from agent.run.site import Site
from agent.state import ledger
from agent.state.held_plans import HeldPlans, HeldRow, all_held
from agent.waldur.client import WaldurClient
from backends.testing.memory import MemoryBackend, slurm_settings
from rig.site import COMPONENTS, configuration, settings_of
from simulator.rules import order_rules
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import Resource
from tests.one_mode import planned_members

# Keys of an offering that change nothing of what a create order leaves.
PLAIN = frozenset(
    {"policy", "limits_source", "preserve_unmanaged_backend_users", "username_management_backend"}
)


def client_of(
    offering: Offering, kind: type[WaldurClient] = WaldurClient, *, attempts: int = 1, **options: Any
) -> Any:
    """A client as the agent makes it, that repeats nothing by itself."""
    return kind(
        offering.access,
        user_agent="waldur-site-agent-test",
        offering_uuid=offering.uuid,
        attempts=attempts,
        **options,
    )


def site_in_memory(
    waldur: SimulatedWaldur,
    folder: Path,
    cluster: MemoryBackend | None = None,
    kind: type[WaldurClient] = WaldurClient,
    **options: Any,
) -> Site:
    """The site of this configuration, on a cluster in memory."""
    offering = settings_of(configuration(waldur, folder, **options)).offerings[0]
    cluster = cluster or MemoryBackend(settings=slurm_settings(**options.get("backend", {})))
    return Site(offering, client_of(offering, kind), cluster, folder / "state")


def held(site: Site, mode: str = Mode.MEMBERSHIP_SYNC) -> HeldPlans:
    return HeldPlans(site.state_dir, site.offering, mode)


def waiting(site: Site, mode: str = Mode.MEMBERSHIP_SYNC) -> list[HeldRow]:
    return held(site, mode).waiting()


def approve(site: Site, mode: str = Mode.MEMBERSHIP_SYNC, *plans: str, hours: float = 24) -> None:
    """These plans, or all that wait."""
    store, until = held(site, mode), datetime.now(UTC) + timedelta(hours=hours)
    for plan in plans or [each.id for each in waiting(site, mode)]:
        store.approvals.approve(plan, expires=until, by="test")


def approve_all(site: Site) -> list[str]:
    """All that waits, whatever brought it. Return the ids of the plans."""
    approved = []
    for each in all_held(site.state_dir, [site.offering]):
        if plans := [plan.id for plan in each.planned()]:
            approve(site, each.mode, *plans)
            approved += plans
    return approved


class AnyWorld:
    """An offering of a simulated Waldur, and the site that serves it.

    `place`, `end`, `join`, `leave`, `change` happen in Waldur; `process_orders`, `sync`, `report` are one pass.
    """

    waldur: SimulatedWaldur
    site: Site
    # Of an order that asks for nothing else.
    LIMITS: ClassVar[Mapping[str, float]] = {"cpu": 10}

    def site_for(self, mode: Mode) -> Site:
        """The site as a pass of this mode has it."""
        return self.site

    def place(self, *names: str, project: int = 0, **limits: float) -> list[str]:
        """Place create orders. Return the uuids of their resources."""
        uuid, limits = self.waldur.seed.project_uuids[project], limits or dict(self.LIMITS)
        orders = [self.waldur.place_create_order(uuid, name, limits=limits, slug=name) for name in names]
        return [self.waldur.order(order).resource_uuid for order in orders]

    def end(self, *resources: str) -> list[str]:
        """Place terminate orders. Return their uuids."""
        return [self.waldur.orders.place_terminate(resource) for resource in resources]

    def allocate(self, name: str, *, project: int = 0, **limits: float) -> str:
        """An allocation as a create order leaves it. Return the uuid of its resource."""
        (resource,) = self.allocate_all(name, project=project, **limits)
        return resource

    def allocate_all(self, *names: str, project: int = 0, **limits: float) -> list[str]:
        """Here one pass makes them."""
        resources = self.place(*names, project=project, **limits)
        self.processed(done=len(names))
        return resources

    def join(self, *usernames: str, project: int = 0, account: str | None = None) -> None:
        """Into the project's team, under this name on the cluster (the same one, when none is given)."""
        uuid = self.waldur.seed.project_uuids[project]
        for name in usernames:
            self.waldur.people.add_member(uuid, name, account=name if account is None else account)

    def leave(self, *accounts: str, project: int = 0) -> None:
        """By their names on the cluster, or else in Waldur."""
        for account in accounts:
            self.waldur.people.remove_member(self.waldur.seed.project_uuids[project], self.person(account))

    def person(self, account: str) -> str:
        """Whoever has this name on the cluster, by username in Waldur."""
        for row in self.waldur.store.offering_users:
            if row.username == account:
                return self.waldur.store.users[row.user_uuid].username
        return account

    def change(self, resource: str, **values: Any) -> None:
        self.waldur.site.change("resources", resource, **values)

    def resource(self, uuid: str) -> Resource:
        return self.waldur.resource(uuid)

    def project_of(self, uuid: str) -> str:
        return self.resource(uuid).project_uuid

    def process_orders(self) -> PassReport:
        return passes.process_orders(self.site_for(Mode.ORDER_PROCESS))

    def processed(self, **counts: int) -> PassReport:
        """One pass over orders that ends so: `done=2`."""
        report = self.process_orders()
        assert report.counted() == counts, report.as_json()
        return report

    def sync(self, *, resource: str = "", project: str = "", seconds: float = 1000) -> PassReport:
        scope = PassScope.of(resource_uuid=resource, project_uuid=project)
        return passes.sync_members(self.site_for(Mode.MEMBERSHIP_SYNC), scope=scope, seconds=seconds)

    def report(self) -> PassReport:
        return passes.report_usage(self.site_for(Mode.REPORT))

    def changes(self, report: PassReport, *, reasons: bool = True) -> list[str]:
        """All that a pass did, but for saying that it was there; each with its reason in brackets, or without."""
        done = [o.action for o in report.outcomes if o.done and o.action.verb != "refresh last sync"]
        return [action.render() if reasons else action.render().split("  (")[0] for action in done]


class World(AnyWorld):
    """On a cluster in memory; `fill` makes what orders would have made."""

    LIMITS: ClassVar[Mapping[str, float]] = {"cpu": 10, "mem": 2}

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
        self._is_plain = waldur.store.age.is_modern and not backend and offering.keys() <= PLAIN
        keys = {"membership_sync_backend": "slurm", "waldur_api_token": waldur.token(user), **offering}
        self.site = site_in_memory(waldur, folder, backend=dict(backend or {}), **keys)
        self.backend: Any = self.site.backend

    @property
    def cluster(self) -> Snapshot:
        return self.backend.state

    def allocate_all(self, *names: str, project: int = 0, **limits: float) -> list[str]:
        """Here no pass makes them, where the configuration is plain: `place` and `processed` are for what one does."""
        if not self._is_plain:
            return super().allocate_all(*names, project=project, **limits)
        store, uuids = self.waldur.store, self.place(*names, project=project, **limits)
        resources = [store.resources[uuid] for uuid in uuids]
        for resource in resources:
            (order,) = store.orders.where("resource", resource.uuid)
            with store.lock:
                order_rules.finish(store, order)
            self.change(resource.uuid, backend_id=f"a_{resource.slug}".lower())
        made = self._stand(resources)
        for resource in resources:
            known = resource.limits.keys() & COMPONENTS.keys()
            amounts = {name: int(resource.limits[name] * COMPONENTS[name]["unit_factor"]) for name in known}
            self.alter(resource.backend_id, limits=amounts)
        origins = dict.fromkeys(made, Origin.MADE)
        ledger.write(self.site.state_dir, self.backend.cluster, self.site.offering, origins, is_seen=True)
        return uuids

    def fill(self) -> None:
        """The cluster as it is when every resource of the scenario is in step, but for limits and whose they are."""
        resources = list(self.waldur.store.resources)
        self._stand(resources)
        for resource in resources:
            self.change(resource.uuid, last_sync=datetime.now(UTC))

    def _stand(self, resources: Iterable[Resource]) -> dict[str, Account]:
        """Put the accounts and members of resources on the cluster. Return the accounts, with those above them."""
        store, accounts, members = self.waldur.store, dict[str, Account](), set[Association]()
        names = {row.user_uuid: row.username for row in store.offering_users}
        for resource in resources:
            project = store.projects[resource.project_uuid]
            customer = store.customers[project.customer_uuid]
            top, above, name = f"c_{customer.slug}", f"p_{project.slug}", resource.backend_id.lower()
            accounts |= {top: Account(top, "root"), above: Account(above, top), name: Account(name, above)}
            team = {names[grant.user_uuid] for grant in store.active_grants(project.uuid)}
            team |= {each.username.lower() for each in store.accounts if each.project_uuid == project.uuid}
            members |= {Association(name, user) for user in team - {""}}
        standing = self.cluster
        homes = {
            each.user: each.account for each in sorted(members, key=lambda each: each.account, reverse=True)
        }
        self.backend.state = replace(
            standing,
            accounts={**accounts, **standing.accounts},
            associations=standing.associations | members,
            default_accounts={**homes, **standing.default_accounts},
        )
        return accounts

    def converge(self) -> None:
        """Passes until nothing is left to do."""
        for _ in range(3):
            report = self.sync()
            assert report.error is None, report.error
            assert not report.failed, report.as_json()
            if not self.changes(report):
                return
        raise AssertionError(self.changes(report))

    def planned(self) -> list[str]:
        return sorted(action.render().split("  (")[0] for action in planned_members(self.site).actions)

    def stray(self, user: str, account: str, *, default: str = "") -> None:
        """A user in an account of whom Waldur knows nothing."""
        state = self.backend.state
        homes = {**state.default_accounts, user: default or state.default_accounts.get(user, account)}
        joined = state.associations | {Association(account, user)}
        self.backend.state = replace(state, associations=joined, default_accounts=homes)

    def alter(self, account: str, **fields: Any) -> None:
        """Change an account behind everybody's back."""
        accounts = self.cluster.accounts
        changed = replace(accounts[account], **fields)
        self.backend.state = replace(self.cluster, accounts={**accounts, account: changed})

    def in_step(self) -> None:
        """One more pass changes nothing and sends nothing but reads."""
        self.waldur.requests.reset()
        report = self.sync()
        assert (report.error, self.changes(report), report.failed) == (None, [], False), report.as_json()
        assert {line.split()[0] for line in self.waldur.request_counts()} <= {"GET"}

    def members(self, account: str) -> set[str]:
        return set(self.cluster.users_of(account))
